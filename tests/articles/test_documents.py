"""Documents of a company's kind: Markdown, HTML, text, PDF, CSV, Parquet."""

import csv
import random

import pyarrow
import pyarrow.parquet
import pytest
from small_pdf import small_pdf

from realm_tf.articles import documents
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


@pytest.mark.parametrize(
    ("front_matter", "reason"),
    [
        ("", None),
        ("a: [1\n", "line 3"),
        ("a: [" * 2000 + "\n", "recursion"),
        ("a: 2024-02-30\n", None),
    ],
)
def test_front_matter_that_is_none(tmp_path, capsys, front_matter, reason):
    path = tmp_path / "page.md"
    path.write_text(f"---\n{front_matter}---\n# Leave\nTake it.\n")
    found = _read(path)
    error = capsys.readouterr().err
    if reason is None:
        assert found == [("Leave", "Take it.", "")]
        assert not error
    else:
        text = front_matter.strip()
        assert found == [("page", text, ""), ("page: Leave", "Take it.", "")]
        (line,) = error.splitlines()
        assert line.startswith(f"warning: {path} begins with front matter")
        assert reason in line


@pytest.mark.parametrize(
    ("front_matter", "titles"),
    [
        ('title: "On  leave"', ["On leave: Leave", "On leave: Leave: Sick"]),
        ("title: Leave", ["Leave", "Leave: Sick"]),
        (
            "title: Leave\n...\n\n# Days\nFew.\n",
            ["Leave: Days", "Leave", "Leave: Sick"],
        ),
        ("title: ''", ["Leave", "Leave: Sick"]),
        ("title: 2024", ["2024: Leave", "2024: Leave: Sick"]),
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


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (
            "\ufeffPark on\nlevel 2.\n\n\nNever on level 1.\n",
            "Park on level 2.\nNever on level 1.",
        ),
        (
            "Phones of\nthe office:\n- Ann, 10\n- Bob, 11\n2. Eve\n\nx",
            "Phones of the office:\n- Ann, 10\n- Bob, 11\n2. Eve\nx",
        ),
    ],
    ids=["paragraphs", "items of a list"],
)
def test_plain_text(tmp_path, written, text):
    path = tmp_path / "parking_rules.txt"
    path.write_text(written)
    assert _read(path) == [("parking rules", text, "")]


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


def test_tables_that_are_none_are_refused(tmp_path):
    path = str(tmp_path / "x.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"id": ["1"]}), path)
    with pytest.raises(InputError, match="has no column text, title"):
        list(readers.read_pages(path))
    texts = {name: ["1"] for name in ("id", "title", "text")}
    late = pyarrow.array([300_000_000_000], pyarrow.timestamp("s"))
    pyarrow.parquet.write_table(pyarrow.table({**texts, "day": late}), path)
    with pytest.raises(InputError, match="a date that Python cannot hold"):
        list(readers.read_pages(path))
    with open(path, "r+b") as file:
        file.truncate(20)
    with pytest.raises(InputError, match="no whole Parquet file"):
        list(readers.read_pages(path))


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        pytest.param(
            "Run ./<script> on <name>@host.\n\n## Keys\nIn <b>B</b>.<br>Ask.\n",
            [
                ("page", "Run ./<script> on <name>@host."),
                ("page: Keys", "In B. Ask."),
            ],
            id="what nothing closes is text",
        ),
        pytest.param(
            "<header> is required.\n\nMore.\n",
            [("page", "<header> is required. More.")],
            id="also at the beginning of a line",
        ),
        pytest.param(
            "---\n\n# Leave\n\nEveryone: 25 days.\n\n---\n\n# Travel\nx\n",
            [("page: Leave", "Everyone: 25 days."), ("page: Travel", "x")],
            id="rules are no front matter",
        ),
    ],
)
def test_markdown_of_many_kinds(tmp_path, capsys, text, pages):
    path = tmp_path / "page.md"
    path.write_text(text)
    assert [
        (title, found.replace("\n", " ")) for title, found, _ in _read(path)
    ] == pages
    assert not capsys.readouterr().err


WIDE = "A line of this text is as long as those of letters are."


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("The infor-\nmation.\n\nx", set(), ["The information.", "x"]),
        ("The infor\u00ad\nmation.", set(), ["The information."]),
        (
            "A well-\nknown COVID-\n19 case",
            {"well-known"},
            ["A well-known COVID-19 case"],
        ),
        ("state-of-the-\nart", set(), ["state-of-the-art"]),
        ("the pre-\nand post-war", set(), ["the pre- and post-war"]),
        ("A well-\nknown one", None, ["A well-known one"]),
        (
            "Points:\n\u2022 one\n\u2022 two",
            None,
            ["Points:", "\u2022 one", "\u2022 two"],
        ),
        ("Name: Ann\nPhone: 555", None, ["Name: Ann", "Phone: 555"]),
        ("Title\n=====\nText.", None, ["Title", "Text."]),
        (
            f"Heading\n{WIDE}\nIt goes on.",
            None,
            ["Heading", f"{WIDE} It goes on."],
        ),
        (
            f"{WIDE}\n    ./configure\n    make",
            None,
            [WIDE, "./configure", "make"],
        ),
        ("a   b\nc   d", None, ["a b", "c d"]),
        (f"{'long ' * 50}\nshort", None, [("long " * 50).strip(), "short"]),
    ],
)
def test_lines_that_are_one_paragraph(text, words, expected):
    assert documents.paragraphs(text, words) == expected


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("\ufeffGr\u00fc\u00dfe".encode("utf-16"), "Gr\u00fc\u00dfe"),
        (
            "Gr\u00fc\u00dfe an Ann".encode("utf-16-le"),
            "Gr\u00fc\u00dfe an Ann",
        ),
        (
            "Caf\u00e9 \u201ca b c\u201d".encode("cp1252"),
            "Caf\u00e9 \u201ca b c\u201d",
        ),
        (
            "\u0412\u0441\u0435 \u043b\u044e\u0434\u0438 \u0440\u043e\u0436\u0434\u0430\u044e\u0442\u0441\u044f \u0441\u0432\u043e\u0431\u043e\u0434\u043d\u044b\u043c\u0438.".encode(
                "cp1251"
            ),
            "\u0412\u0441\u0435 \u043b\u044e\u0434\u0438 \u0440\u043e\u0436\u0434\u0430\u044e\u0442\u0441\u044f \u0441\u0432\u043e\u0431\u043e\u0434\u043d\u044b\u043c\u0438.",
        ),
        # Composed, and a ligature of typesetting.
        ("Cafe\u0301 \ufb01nds \u2028x".encode(), "Caf\u00e9 finds x"),
        (b"a\fb\r\nc", "a b c"),
    ],
)
def test_encodings(tmp_path, content, text):
    path = tmp_path / "x.txt"
    path.write_bytes(content)
    ((_, found, _),) = _read(path)
    assert found == text


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("iso-8859-1", "cp1252", "\u201ca\u201d 5 \u20ac"),
        ("gb2312", "gb18030", "\u6731\u9555\u57fa"),
        ("iso-2022-jp", "iso-2022-jp", "\u6f22\u5b57"),
    ],
)
def test_what_is_declared_is_read_as_browsers_do(
    tmp_path, declared, encoding, text
):
    path = tmp_path / "x.html"
    path.write_text(f"<meta charset={declared}><p>{text}", encoding=encoding)
    assert [found for _, found, _ in _read(path)] == [text]


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("x.md", '{"id": 1}', "markdown"),
        ("x.txt", "<html>", "text"),
        ("x.jsonl", "", "jsonl"),
        ("x.tsv", "id\ttext\ttitle", "dpr"),
        ("x.tsv", "a\tb", "csv"),
        ("x.xml-p1p22.bz2", "<mediawiki>", "mediawiki"),
        ("x", '{"id": 1}', "jsonl"),
    ],
)
def test_the_extension_decides(tmp_path, name, content, format):
    path = tmp_path / name
    path.write_text(content)
    assert readers.detect_format(str(path)) == format


@pytest.mark.parametrize(
    "title", ["Microsoft Word - Document1", "untitled", "draft.docx", " "]
)
def test_what_programs_write_is_no_title(tmp_path, title):
    path = tmp_path / "leave.pdf"
    path.write_bytes(b"\r\n" + small_pdf([["Text."]], title=title))
    assert _read(path) == [("leave", "Text.", "")]


def test_many_pages_and_a_broken_one(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "_MOST_PAGES", 2)
    path = tmp_path / "x.pdf"
    path.write_bytes(small_pdf([["a"]] * 3))
    (page,) = readers.read_pages(str(path))
    assert "it has 3 pages" in page.text and page.dropped


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            'Frage;Antwort\r\nTage?;"30; ab 2024."\r\nWer?;Ann.\r\n',
            [
                ("Tage?", "Frage: Tage?; Antwort: 30; ab 2024."),
                ("Wer?", "Frage: Wer?; Antwort: Ann."),
            ],
            id="semicolons and CRLF",
        ),
        pytest.param(
            'name,note\nAnn,\'tis fine\n\nBob,"a, ""b"""\n',
            [
                ("Ann", "name: Ann; note: 'tis fine."),
                ("Bob", 'name: Bob; note: a, "b".'),
            ],
            id="quotes",
        ),
        pytest.param(
            '\ufeffName\t"Room, floor"\nAnn\t1\n',
            [("Ann", "Name: Ann; Room, floor: 1.")],
            id="tabs",
        ),
        pytest.param(
            'Name;Size\n"Ann;1\nBob;5" wide\n"Eve\nB";"2"\n',
            [
                ('"Ann', 'Name: "Ann; Size: 1.'),
                ("Bob", 'Name: Bob; Size: 5" wide.'),
                ("Eve B", "Name: Eve B; Size: 2."),
            ],
            id="a quote that nothing closes",
        ),
        pytest.param(
            '\n;\nsep=;\nName;Text\nAnn;"a\nb"\n',
            [("Ann", "Name: Ann; Text: a b.")],
            id="what stands above the headers",
        ),
        pytest.param(
            "Name;Price\nA;1,5\nB;2,5\n",
            [("A", "Name: A; Price: 1,5."), ("B", "Name: B; Price: 2,5.")],
            id="decimal commas",
        ),
    ],
)
def test_csv_of_many_kinds(tmp_path, text, expected):
    path = tmp_path / "phone_list.csv"
    path.write_bytes(text.encode())
    assert _read(path) == [
        (f"phone list: {title}", found, "") for title, found in expected
    ]


def test_any_csv_that_python_writes_is_read(tmp_path):
    generator = random.Random(0)
    for delimiter in (",", ";", "\t", "|"):
        for _ in range(40):
            rows = [
                [
                    " ".join(
                        generator.choices(
                            ["a", "b;", "c,", 'd"', "e|", "'f", "g\nh"], k=4
                        )
                    )
                    for _ in range(3)
                ]
                for _ in range(4)
            ]
            path = tmp_path / "x.csv"
            with open(path, "w", newline="") as file:
                writer = csv.writer(file, delimiter=delimiter)
                writer.writerows([["id", "title", "text"], *rows])
            pages = list(readers.read_pages(str(path)))
            assert [(p.article_id, p.text) for p in pages] == [
                (row[0], row[2]) for row in rows
            ]


def test_a_row_of_too_many_cells_is_counted(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,title,text\n1,One,A text, which goes on.\n2,Two,x,\n")
    assert [dropped for _, _, dropped in _read(path)] == [
        "bad_record_columns",
        "",
    ]


def test_rows_keep_their_ids_when_others_come(tmp_path):
    path = tmp_path / "rates.csv"

    def ids(*rows):
        path.write_text("\n".join(("City,Stay", *rows)))
        found = readers.read_pages(str(path))
        return [page.article_id.removeprefix(str(path)) for page in found]

    assert ids("Oslo,160", "Oslo,170") == ["#Oslo", "#Oslo~2"]
    assert ids("Rome,90", "Oslo,160") == ["#Rome", "#Oslo"]
