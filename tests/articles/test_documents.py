"""Documents of a company's kind: Markdown, HTML, text, PDF, CSV, Parquet."""

import pyarrow
import pyarrow.parquet
import pytest
from small_pdf import small_pdf

from realm_tf.articles import readers
from realm_tf.errors import InputError

pytestmark = pytest.mark.fast

MARKDOWN = """# Travel policy

Book *early*.

## Hotels

| City | Limit |
|------|-------|
| Oslo | 160 EUR |
| Rome |  |

### Late arrival

- Call the hotel.
- Keep the receipt

## Meals

Lunch is 20 EUR
a day.
"""
HTML = """<!DOCTYPE html>
<html><head><title>Badges &amp; keys</title><style>p {}</style></head>
<body><nav>Home</nav><header>Menu</header>
<form><p>Ask the <b>front desk</b>.<!-- not this --></p></form>
<h2 id="lost">Lost badges</h2><div>Call 555.<br>At once.</div>
<table><caption>Fees</caption><tr><th>Badge</th><th>Fee</th></tr>
<tr><td>Blue</td><td>10 EUR</td></tr></table>
<script>hide()</script><footer>Imprint</footer></body></html>
"""


def _read(path, **options):
    found = []
    for page in readers.read_pages(str(path), **options):
        format = options.get("format") or readers.detect_format(str(path))
        text = readers.article_text(page, format=format).text
        found.append((page.title, text, page.dropped))
    return found


def test_markdown_in_sections(tmp_path):
    path = tmp_path / "travel_policy.md"
    path.write_text(MARKDOWN)
    assert readers.detect_format(str(path)) == "markdown"
    assert _read(path) == [
        ("Travel policy", "Book early.", ""),
        (
            "Travel policy: Hotels",
            "City: Oslo; Limit: 160 EUR.\nCity: Rome.",
            "",
        ),
        (
            "Travel policy: Hotels: Late arrival",
            "Call the hotel.\nKeep the receipt",
            "",
        ),
        ("Travel policy: Meals", "Lunch is 20 EUR a day.", ""),
    ]
    pages = list(readers.read_pages(str(path), base_url="https://x.example/d/"))
    assert [page.number for page in pages] == [1, 2, 3, 4]
    assert len({page.article_id for page in pages}) == 4
    assert pages[1].url == "https://x.example/d/travel_policy.md"


def test_what_generators_keep_above_the_text_is_not_read(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("---\ntitle: Leave\ntags: [a]\n---\n# Leave\nTake it.\n")
    assert _read(path) == [("Leave", "Take it.", "")]
    # A rule within the text is none of it.
    path.write_text("# Leave\nTake it.\n\n---\n\nNow.\n")
    assert _read(path) == [("Leave", "Take it.\nNow.", "")]


@pytest.mark.parametrize(
    ("front_matter", "reason"),
    [
        ("", None),
        ("# nothing yet\n", None),
        ("a: 1\n", None),
        ("a: [1\n", "line 3"),
        ("a: *b\n", "undefined alias"),
        ("a: !made-up 1\n", "!made-up"),
        ("a: 2024-02-30\n", "day is out of range"),
        ("- a\n", "it names no values"),
        ("Some words.\n", "it names no values"),
    ],
)
def test_front_matter_that_is_none_is_named(
    tmp_path, capsys, front_matter, reason
):
    path = tmp_path / "page.md"
    path.write_text(f"---\n{front_matter}---\n# Leave\nTake it.\n")
    assert _read(path) == [("Leave", "Take it.", "")]
    error = capsys.readouterr().err
    if reason is None:
        assert not error
    else:
        (line,) = error.splitlines()
        assert line.startswith(f"warning: {path} begins with front matter")
        assert reason in line


@pytest.mark.parametrize(
    ("front_matter", "titles"),
    [
        ('title: "On  leave"', ["On leave: Leave", "On leave: Leave: Sick"]),
        ("title: Leave", ["Leave", "Leave: Sick"]),
        ("title: ''", ["Leave", "Leave: Sick"]),
        ("title: 2024", ["Leave", "Leave: Sick"]),
    ],
)
def test_the_title_of_front_matter(tmp_path, front_matter, titles):
    path = tmp_path / "page.md"
    path.write_text(
        f"---\n{front_matter}\n---\n# Leave\nTake it.\n## Sick\nCall.\n"
    )
    assert [title for title, _, _ in _read(path)] == titles


def test_html_without_what_is_around_the_text(tmp_path):
    path = tmp_path / "page"
    path.write_text(HTML)
    assert readers.detect_format(str(path)) == "html"
    assert _read(path) == [
        ("Badges & keys", "Ask the front desk.", ""),
        (
            "Badges & keys: Lost badges",
            "Call 555.\nAt once.\nFees\nBadge: Blue; Fee: 10 EUR.",
            "",
        ),
    ]
    pages = list(readers.read_pages(str(path), base_url="https://x.example"))
    assert pages[1].url == "https://x.example/page#lost"


def test_plain_text_in_paragraphs(tmp_path):
    path = tmp_path / "parking_rules.txt"
    path.write_text("\ufeffPark on\nlevel 2.\n\n\nNever on level 1.\n")
    assert _read(path) == [
        ("parking rules", "Park on level 2.\nNever on level 1.", "")
    ]


def test_pdf_pages(tmp_path):
    path = tmp_path / "leave.pdf"
    pages = [
        ["Leave is 30 days. Un-", "used days end in", "March."],
        ["Ask Ann."],
    ]
    path.write_bytes(small_pdf(pages, title="Leave rules"))
    assert _read(path) == [
        ("Leave rules", "Leave is 30 days. Unused days end in March.", ""),
        ("Leave rules", "Ask Ann.", ""),
    ]


def test_rows_of_a_table_are_told_with_its_header(tmp_path):
    path = tmp_path / "phone_list.csv"
    path.write_text('Name;Room;Phone\n"Ann; HR";12;555\nBob;;556\n')
    assert _read(path) == [
        ("phone list: Ann; HR", "Name: Ann; HR; Room: 12; Phone: 555.", ""),
        ("phone list: Bob", "Name: Bob; Phone: 556.", ""),
    ]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_of_articles(tmp_path, kind):
    path = str(tmp_path / f"articles.{kind}")
    columns = {
        "id": ["1", ""],
        "url": ["https://x.example/1", ""],
        "title": ["One", "Two"],
        "text": ["A text.", "Another."],
    }
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    else:
        lines = [",".join(row) for row in zip(*columns.values(), strict=True)]
        with open(path, "w") as file:
            file.write("\n".join([",".join(columns), *lines]))
    first, second = readers.read_pages(path)
    assert (first.article_id, first.title, first.text, first.url) == (
        *("1", "One", "A text.", "https://x.example/1"),
    )
    assert second.dropped == "bad_record_no_id"


def test_a_document_that_cannot_be_read_is_named_and_counted(tmp_path, capsys):
    path = tmp_path / "broken.pdf"
    path.write_bytes(small_pdf([["x"]])[:60])
    ((_, _, dropped),) = _read(path)
    assert dropped == "bad_record_document"
    assert f"warning: {path} cannot be read" in capsys.readouterr().err
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"caf\xe9")
    ((_, _, dropped),) = _read(latin)
    assert dropped == "bad_record_document"


def test_tables_that_are_none_are_refused(tmp_path):
    path = str(tmp_path / "x.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"id": ["1"]}), path)
    with pytest.raises(InputError, match="has no column text, title"):
        list(readers.read_pages(path))
    with open(path, "r+b") as file:
        file.truncate(20)
    with pytest.raises(InputError, match="no whole Parquet file"):
        list(readers.read_pages(path))
    latin = tmp_path / "latin.csv"
    latin.write_bytes(b"a,b\ncaf\xe9,1\n")
    with pytest.raises(InputError, match="no CSV file in UTF-8"):
        list(readers.read_pages(str(latin)))
