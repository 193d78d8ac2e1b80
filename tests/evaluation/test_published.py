"""Published numbers, the tables made of them and the commands behind them."""

import json
import pathlib
import re
import shlex

import pytest

from realm_tf import cli
from realm_tf.errors import InputError
from realm_tf.evaluation import published
from realm_tf.evaluation.published import Cell

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = published.read_all(ROOT)


def test_the_docs_show_what_the_results_say(monkeypatch):
    monkeypatch.setattr(published, "write_text", lambda path, text: None)
    assert published.write_tables(ROOT) == []


@pytest.mark.parametrize("name", RESULTS)
def test_some_page_shows_each_table(name):
    paths = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    pages = "".join(path.read_text() for path in paths)
    for title in RESULTS[name].titles:
        assert (
            f"<!-- results: {name} -->" in pages
            or f"<!-- results: {name}: {title} -->" in pages
        ), title


@pytest.mark.parametrize("name", RESULTS)
def test_published_numbers_can_be_measured_again(name):
    results = RESULTS[name]
    assert results.name == name
    # What commands give is measured; the rest are texts.
    assert bool(results.cells) == bool(results.minutes)
    for cell in results.cells:
        paths = re.split(" / | ", cell.source)
        expected = 1 if " / " in cell.source else len(paths)
        assert len(cell.numbers) == expected == cell.form.count("{")
        assert not cell.within or cell.accepts(cell.numbers)
    assert not results.cells or any(cell.within for cell in results.cells)


@pytest.mark.parametrize(
    "name", [name for name, each in RESULTS.items() if each.cells]
)
def test_every_command_takes_its_options(name):
    for line in RESULTS[name].commands:
        program, *words = shlex.split(line)
        assert set(re.findall("{(.*?)}", line)) <= {
            "output",
            "data_dir",
            "wheel",
        }
        if program == "realm":
            command, *arguments = words
            parsed = cli.parse(cli.operation_class(command), arguments)
            assert not getattr(parsed, "beam_options", ())
            continue
        assert program == "python"
        script = (ROOT / words[0]).read_text()
        for word in words:
            flag = word.removeprefix("--")
            # As a parser has them, or as an argument of main.
            assert (
                flag == word
                or f'"--{flag}"' in script
                or f" {flag.replace('-', '_')}: " in script
            )


@pytest.fixture
def root(tmp_path):
    """A repository with results of one measurement, and a page for them."""
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "README.md").write_text("Nothing.\n")
    page = "- text\n\n  <!-- results: speed -->\n  old\n  <!-- /results -->\n\nmore\n"
    (tmp_path / "docs" / "page.md").write_text(page)
    rows = {
        "ours": {
            "a second": {"numbers": [3], "source": "speed", "form": "{:.1f}"},
            "MB": {"numbers": [4, 5.0], "source": "a b", "form": "{} {:.2f}"},
        },
        "b": {"MB": "text"},
    }
    results = {
        "name": "speed",
        "commands": ["python speed.py"],
        "machine": "a core",
        "version": "1",
        "tables": [
            {"title": "of", "scale": 10, "rows": rows},
            {"title": "others", "rows": {"theirs": {"MB": "2"}}},
        ],
    }
    path = tmp_path / "docs" / "results" / "speed.json"
    path.write_text(json.dumps(results))
    return tmp_path


def test_tables_are_written_between_their_marks(root):
    assert published.write_tables(root) == ["docs/page.md"]
    page = root / "docs" / "page.md"
    lines = page.read_text().splitlines()
    of = ["| of | a second | MB |", "| --- | --- | --- |"]
    of += ["| ours | 3.0 | 4 5.00 |", "| b |  | text |"]
    others = ["| others | MB |", "| --- | --- |", "| theirs | 2 |"]
    where = "On a core, version 1, by `realm reproduce speed`."
    shown = [f"  {each}" if each else "" for each in ("", *of, "", *others)]
    assert lines[:3] == ["- text", "", "  <!-- results: speed -->"]
    assert lines[3:-5] == [*shown, ""]
    assert lines[-5:] == [
        f"  {where}",
        *("", "  <!-- /results -->", "", "more"),
    ]
    assert published.write_tables(root) == []
    # One table of several.
    page.write_text(
        "<!-- results: speed: others -->\n<!-- /results -->\n"
        "<!-- results: speed: of -->\n<!-- /results -->\n"
    )
    published.write_tables(root)
    lines = page.read_text().splitlines()
    assert lines[:6] == [
        "<!-- results: speed: others -->",
        *("", *others, ""),
    ]


@pytest.mark.parametrize(
    "page, complaint",
    [
        ("<!-- results: slow -->\n<!-- /results -->\n", "results 'slow'"),
        ("<!-- results: speed: all -->\n<!-- /results -->\n", "table 'all'"),
    ],
)
def test_pages_and_results_that_do_not_match(root, page, complaint):
    (root / "docs" / "page.md").write_text(page)
    with pytest.raises(InputError, match=complaint):
        published.write_tables(root)


def test_damaged_results(root):
    path = root / "docs" / "results" / "speed.json"
    for content in ("{}", "[]", "{", path.read_text().replace("form", "from")):
        path.write_text(content)
        with pytest.raises(InputError, match="speed.json is no results"):
            published.write_tables(root)


@pytest.mark.parametrize(
    "tolerance, got, is_accepted",
    [
        ("0.1", 2.6, True),
        ("0.1", 2.4, True),
        ("0.1", 2.6001, False),
        ("5 %", 2.625, True),
        ("5 %", 2.63, False),
        ("0", 2.5, True),
        ("0", 2.5001, False),
        ("100", float("nan"), False),
    ],
)
def test_a_tolerance_is_the_largest_difference(tolerance, got, is_accepted):
    cell = Cell("t", "r", "c", [1, 2.5], "x y", "{} {}", tolerance)
    assert cell.accepts([1, got]) == is_accepted


@pytest.fixture
def written(tmp_path):
    """What commands wrote and printed."""
    printed = (
        '{ no JSON\n{"speed": 2.5,\n "runs": [0, {"bytes": 4e6}]}\nthe end\n'
    )
    (tmp_path / "command-2.stdout").write_text(printed)
    (tmp_path / "log.jsonl").write_text('{"nq.dev": 3}\n{"nq.dev": 2}\n')
    (tmp_path / "all.json").write_text('{"a.b": [6, 7]}')
    (tmp_path / "lines.stdout").write_text('{"b": 4}\n{"b": 5}\n')
    (tmp_path / "text.stdout").write_text("text\n")

    def find(source):
        cell = Cell("t", "r", "c", [0], source, "{}", scale=10)
        return cell.find(str(tmp_path), "command-2.stdout")

    return find


@pytest.mark.parametrize(
    "paths, numbers",
    [
        ("speed", [2.5]),
        ("runs/-1/bytes speed", [4e6, 2.5]),
        ("runs/-1/bytes / speed", [1.6e6]),
        ("log.jsonl:-1/nq.dev", [2]),
        ("all.json:a.b/1", [7]),
        ("lines.stdout:1/b", [5]),
    ],
)
def test_numbers_are_read_where_paths_say(written, paths, numbers):
    assert written(paths) == [10 * number for number in numbers]


@pytest.mark.parametrize(
    "paths, error",
    [
        ("runs/0/bytes", "there is no 'bytes'"),
        ("runs/2", "there is no '2'"),
        ("fast", "there is no 'fast'"),
        ("no.json:x", "No such file"),
        ("text.stdout:x", "no JSON was printed"),
    ],
)
def test_numbers_that_are_not_there(written, paths, error):
    with pytest.raises((OSError, LookupError, ValueError), match=error):
        written(paths)
