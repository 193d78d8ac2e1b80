"""The published numbers: the docs show them, and they can be measured again."""

import argparse
import importlib
import json
import pathlib
import re

import pytest

from realm_tf import cli
from realm_tf.errors import InputError
from realm_tf.evaluation.reproductions import measurement
from realm_tf.evaluation.reproductions import published

ROOT = pathlib.Path(__file__).parents[3]
RESULTS = published.read_results(ROOT)
MEASUREMENTS = pytest.mark.parametrize(
    "measured", published.MEASUREMENTS.values(), ids=lambda each: each.name
)


def test_the_docs_show_what_the_results_say():
    assert published.write_tables(ROOT, check=True) == []


@MEASUREMENTS
def test_every_number_that_is_measured_is_published(measured):
    tables = RESULTS[measured.name]["tables"]
    judged = 0
    for title, cells in measured.tables.items():
        for cell in cells:
            numbers = tables[title][cell.row][cell.column]
            paths = re.split(" / | ", cell.paths)
            expected = 1 if " / " in cell.paths else len(paths)
            assert len(numbers) == expected == cell.form.count("{")
            if cell.tolerance:
                judged += 1
                assert all(cell.accepts(each, each) for each in numbers)
    assert judged
    text = published.tables(RESULTS[measured.name], measured)
    assert f"`realm reproduce {measured.name}`" in text


@MEASUREMENTS
def test_every_command_takes_its_options(measured):
    assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", measured.name)
    for line in measured.commands:
        program, *words = line.split()
        for name in re.findall(r"{(.*?)}", line):
            assert name in measurement.PLACEHOLDERS
        if program == "python":
            script = (ROOT / words[0]).read_text()
            flags = {word for word in words if word.startswith("--")}
            assert [f for f in flags if f[2:] not in script] == []
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
    results = {
        "name": "speed",
        "commands": ["python speed.py"],
        "machine": "a core",
        "version": "1",
        "tables": {
            "of": {"ours": {"a second": "3", "MB": "4"}, "b": {"MB": "5"}}
        },
    }
    path = tmp_path / "docs" / "results" / "speed.json"
    published.write_results(str(path), results)
    return tmp_path


def test_tables_are_written_between_their_marks(root):
    assert published.write_tables(root, check=True) == ["docs/page.md"]
    assert "old" in (root / "docs" / "page.md").read_text()
    assert published.write_tables(root) == ["docs/page.md"]
    assert (root / "docs" / "page.md").read_text().splitlines() == [
        *("- text", "", "  <!-- results: speed -->", ""),
        "  | of | a second | MB |",
        "  | --- | --- | --- |",
        "  | ours | 3 | 4 |",
        "  | b |  | 5 |",
        "",
        "  On a core, version 1, by `python speed.py`.",
        *("", "  <!-- /results -->", "", "more"),
    ]
    assert published.write_tables(root) == []


def test_results_that_no_page_shows_or_no_file_has(root):
    path = root / "docs" / "results" / "speed.json"
    path.write_text(path.read_text().replace('"speed"', '"other"'))
    with pytest.raises(
        InputError, match="page.md shows results 'speed'; .* other"
    ):
        published.write_tables(root)
    (root / "docs" / "page.md").write_text("")
    with pytest.raises(
        InputError, match="No page shows the results other: put"
    ):
        published.write_tables(root)
    path.write_text("{}")
    with pytest.raises(InputError, match="speed.json is no results"):
        published.write_tables(root)


def test_a_results_file_has_a_cell_in_each_line(root):
    path = root / "x.json"
    cells = {"a": {"b": [1, -2.5, 1e-07]}, "c": {"b": "text [ 1 ]"}}
    published.write_results(str(path), {"tables": {"t": cells}})
    assert '"b": [1, -2.5, 1e-07]' in path.read_text()
    assert json.loads(path.read_text()) == {"tables": {"t": cells}}


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
    cell = measurement.Cell("r", "c", "x", tolerance=tolerance)
    assert cell.accepts(2.5, got) == is_accepted


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
    cell = measurement.Cell("r", "c", paths, scale=10)
    found = cell.read(str(tmp_path), "command-2.stdout")
    assert found == [10 * number for number in numbers]


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
    cell = measurement.Cell("r", "c", paths)
    with pytest.raises((OSError, LookupError, ValueError), match=error):
        cell.read(str(tmp_path), "command-1.stdout")
