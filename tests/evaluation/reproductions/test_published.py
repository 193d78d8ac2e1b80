"""The published numbers: the docs show them, and they can be measured again."""

import argparse
import dataclasses
import importlib
import pathlib
import re
import shlex

import pytest

from realm_tf import cli
from realm_tf.errors import InputError
from realm_tf.evaluation.reproductions import published
from realm_tf.evaluation.reproductions.cells import Cell
from realm_tf.evaluation.reproductions.measurements import MEASUREMENTS
from realm_tf.evaluation.reproductions.measurements import PLACEHOLDERS
from realm_tf.evaluation.reproductions.published import Results

ROOT = pathlib.Path(__file__).parents[3]
RESULTS = published.read_all(ROOT)


def test_the_docs_show_what_the_results_say():
    assert published.write_tables(ROOT, check=True) == []


@pytest.mark.parametrize("name", RESULTS)
def test_published_numbers_can_be_measured_again(name):
    results = RESULTS[name]
    assert results.name == name
    # What commands give is measured; the rest are texts.
    assert bool(results.cells) == (name in MEASUREMENTS)
    for cell in results.cells:
        paths = re.split(" / | ", cell.source)
        expected = 1 if " / " in cell.source else len(paths)
        assert len(cell.numbers) == expected == cell.form.count("{")
        assert not cell.within or cell.accepts(cell.numbers)
    if results.cells:
        assert any(cell.within for cell in results.cells)


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_every_command_takes_its_options(name):
    assert name in RESULTS
    for line in MEASUREMENTS[name].lines:
        program, *words = shlex.split(line)
        assert set(re.findall("{(.*?)}", line)) <= set(PLACEHOLDERS)
        if program == "python":
            script = (ROOT / words[0]).read_text()
            flags = {word[2:] for word in words if word.startswith("--")}
            # As a parser has them, or as an argument of main.
            assert all(
                f'"--{flag}"' in script
                or f" {flag.replace('-', '_')}: " in script
                for flag in flags
            )
        else:
            assert program == "realm"
            _parse(*words)


def _parse(name, *arguments):
    """Reads the arguments of a command; stops at one that is wrong."""
    module_name, _, operation = cli.COMMANDS[name][0].partition(":")
    module = importlib.import_module(module_name)
    if operation:
        parsed = cli.parse(getattr(module, operation), list(arguments))
        assert not getattr(parsed, "beam_options", ())
        return
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    parser.parse_args(arguments)


@pytest.fixture
def root(tmp_path):
    """A repository with results of one measurement, and a page for them."""
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "README.md").write_text("Nothing.\n")
    page = "- text\n\n  <!-- results: speed -->\n  old\n  <!-- /results -->\n\nmore\n"
    (tmp_path / "docs" / "page.md").write_text(page)
    rows = {
        "ours": {
            "a second": {
                "numbers": [3],
                "source": "speed",
                "form": "{:.1f}",
                "within": "0.1",
            },
            "MB": {"numbers": [4, 5.0], "source": "a b", "form": "{} {:.2f}"},
        },
        "b": {"MB": "text"},
    }
    results = Results(
        *("speed", ["python speed.py"], "a core", "1"),
        [{"title": "of", "scale": 10, "rows": rows}],
    )
    results.write(str(tmp_path / "docs" / "results" / "speed.json"))
    assert Results.read(tmp_path / "docs" / "results" / "speed.json") == results
    return tmp_path


def test_tables_are_written_between_their_marks(root):
    assert published.write_tables(root, check=True) == ["docs/page.md"]
    assert "old" in (root / "docs" / "page.md").read_text()
    assert published.write_tables(root) == ["docs/page.md"]
    assert (root / "docs" / "page.md").read_text().splitlines() == [
        *("- text", "", "  <!-- results: speed -->", ""),
        "  | of | a second | MB |",
        "  | --- | --- | --- |",
        "  | ours | 3.0 | 4 5.00 |",
        "  | b |  | text |",
        "",
        "  On a core, version 1, by `realm reproduce speed`.",
        *("", "  <!-- /results -->", "", "more"),
    ]
    assert published.write_tables(root) == []


def test_results_that_no_page_shows_or_no_file_has(root):
    path = root / "docs" / "results" / "speed.json"
    other = path.rename(path.with_name("other.json"))
    with pytest.raises(
        InputError, match="page.md shows results 'speed'; .* other"
    ):
        published.write_tables(root)
    (root / "docs" / "page.md").write_text("")
    with pytest.raises(
        InputError, match="No page shows the results other: of: put"
    ):
        published.write_tables(root)
    for content in ("{}", "[]", "{", other.read_text().replace("form", "from")):
        other.write_text(content)
        with pytest.raises(InputError, match="other.json is no results"):
            published.write_tables(root)


def test_one_table_of_several(root):
    page = root / "docs" / "page.md"
    results = published.read_all(root)["speed"]
    results.tables.append({"title": "others", "rows": {"theirs": {"MB": "2"}}})
    results.write(str(root / "docs" / "results" / "speed.json"))
    page.write_text("<!-- results: speed: others -->\n<!-- /results -->\n")
    with pytest.raises(InputError, match="No page shows the results speed: of"):
        published.write_tables(root)
    assert page.read_text().splitlines()[:5] == [
        *("<!-- results: speed: others -->", ""),
        *("| others | MB |", "| --- | --- |", "| theirs | 2 |"),
    ]
    page.write_text("<!-- results: speed: all -->\n<!-- /results -->\n")
    with pytest.raises(
        InputError, match="'all' of speed, which has of, others"
    ):
        published.write_tables(root)


def test_another_run_has_its_numbers_and_no_texts(root):
    results = published.read_all(root)["speed"]
    path = root / "docs" / "results" / "speed.json"
    assert '"numbers": [4, 5.0], "source": "a b"' in path.read_text()
    cells = [
        dataclasses.replace(cell, numbers=[n + 1 for n in cell.numbers])
        for cell in results.cells
    ]
    again = results.measured(cells, version="2")
    assert "| ours | 4.0 | 5 6.00 |" in again.markdown()
    assert "| b |" not in again.markdown() and "version 2" in again.markdown()
    assert again.cells == cells and cells[0].scale == 10


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
def test_numbers_are_read_where_paths_say(tmp_path, paths, numbers):
    printed = (
        '{ no JSON\n{"speed": 2.5,\n "runs": [0, {"bytes": 4e6}]}\nthe end\n'
    )
    (tmp_path / "command-2.stdout").write_text(printed)
    (tmp_path / "log.jsonl").write_text('{"nq.dev": 3}\n{"nq.dev": 2}\n')
    (tmp_path / "all.json").write_text('{"a.b": [6, 7]}')
    (tmp_path / "lines.stdout").write_text('{"b": 4}\n{"b": 5}\n')
    cell = Cell("t", "r", "c", [0], paths, "{}", scale=10)
    found = cell.measured(str(tmp_path), "command-2.stdout")
    assert found.numbers == [10 * number for number in numbers]


@pytest.mark.parametrize(
    "paths, error",
    [
        ("runs/0/bytes", "there is no 'bytes'"),
        ("runs/2", "there is no '2'"),
        ("fast", "there is no 'fast'"),
        ("runs", "is no number"),
        ("no.json:x", "No such file"),
        ("text.stdout:x", "no JSON was printed"),
    ],
)
def test_numbers_that_are_not_there(tmp_path, paths, error):
    (tmp_path / "command-1.stdout").write_text('{"runs": [1, {"bytes": 2}]}')
    (tmp_path / "text.stdout").write_text("text\n")
    cell = Cell("t", "r", "c", [0], paths, "{}")
    with pytest.raises((OSError, LookupError, ValueError), match=error):
        cell.measured(str(tmp_path), "command-1.stdout")
