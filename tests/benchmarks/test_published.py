"""Published numbers, the tables made of them and the commands behind them."""

import json
import re
import shlex

import published
import pytest

from realm_tf import cli

RESULTS = published.read_all()
MEASURED = [name for name in RESULTS if published.cells_of(RESULTS[name])]


def test_the_docs_show_the_results():
    assert published.write_tables(check=True) == []


@pytest.mark.parametrize("name", RESULTS)
def test_some_page_shows_each_table(name):
    paths = [published.ROOT / "README.md"]
    paths += (published.ROOT / "docs").rglob("*.md")
    pages = "".join(path.read_text() for path in paths)
    for table in RESULTS[name]["tables"]:
        assert (
            f"<!-- results: {name} -->" in pages
            or f"<!-- results: {name}: {table['title']} -->" in pages
        ), table["title"]


@pytest.mark.parametrize("name", RESULTS)
def test_published_numbers_can_be_measured_again(name):
    results = RESULTS[name]
    assert results["name"] == name
    cells = published.cells_of(results)
    # Numbers in cells are measured; the rest are texts.
    assert bool(cells) == bool(results.get("minutes"))
    for cell in cells:
        paths = re.split(" / | ", cell["source"])
        expected = 1 if " / " in cell["source"] else len(paths)
        assert len(cell["numbers"]) == expected == cell["form"].count("{")
        assert not cell["within"] or published.accepts(cell, cell["numbers"])
    assert not cells or any(cell["within"] for cell in cells)


@pytest.mark.parametrize("name", MEASURED)
def test_every_command_takes_its_options(name):
    for line in RESULTS[name]["commands"]:
        program, *words = shlex.split(line)
        places = set(re.findall("{(.*?)}", line))
        assert places <= {"output", "data_dir", "wheel"}
        if program == "realm":
            command, *arguments = words
            parsed = cli.parse(cli.operation_class(command), arguments)
            assert not getattr(parsed, "beam_options", ())
            continue
        assert program == "python"
        script = (published.ROOT / words[0]).read_text()
        for word in words:
            flag = word.removeprefix("--")
            # As a parser has them, or as an argument of a function.
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
    page = "text\n\n<!-- results: speed -->\nold\n<!-- /results -->\n\nmore\n"
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
    page = root / "docs" / "page.md"
    old = page.read_text()
    assert published.write_tables(root, check=True) == ["docs/page.md"]
    assert page.read_text() == old
    assert published.write_tables(root) == ["docs/page.md"]
    of = ["| of | a second | MB |", "| --- | --- | --- |"]
    of += ["| ours | 3.0 | 4 5.00 |", "| b |  | text |"]
    others = ["| others | MB |", "| --- | --- |", "| theirs | 2 |"]
    by = "`python benchmarks/published.py measure speed`."
    shown = ["", *of, "", *others, "", f"On a core, version 1, by {by}", ""]
    assert page.read_text().splitlines() == [
        *("text", "", "<!-- results: speed -->", *shown),
        *("<!-- /results -->", "", "more"),
    ]
    assert published.write_tables(root) == []
    # One table of several.
    page.write_text(
        "<!-- results: speed: others -->\n<!-- /results -->\n"
        "<!-- results: speed: of -->\n<!-- /results -->\n"
    )
    published.write_tables(root)
    assert page.read_text().splitlines()[:6] == [
        "<!-- results: speed: others -->",
        *("", *others, ""),
    ]


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
    cell = {"numbers": [1, 2.5], "within": tolerance}
    assert published.accepts(cell, [1, got]) == is_accepted


@pytest.fixture
def find(tmp_path):
    """Finds numbers in the files and the output of commands."""
    printed = (
        '{ no JSON\n{"speed": 2.5,\n "runs": [0, {"bytes": 4e6}]}\nthe end\n'
    )
    (tmp_path / "command-2.stdout").write_text(printed)
    (tmp_path / "log.jsonl").write_text('{"nq.dev": 3}\n{"nq.dev": 2}\n')
    (tmp_path / "all.json").write_text('{"a.b": [6, 7]}')
    (tmp_path / "lines.stdout").write_text('{"b": 4}\n{"b": 5}\n')
    (tmp_path / "text.stdout").write_text("text\n")

    def find(source):
        cell = {"source": source, "scale": 10}
        return published.find(cell, tmp_path, "command-2.stdout")

    return find


@pytest.mark.parametrize(
    "paths, numbers",
    [
        ("speed", [2.5]),
        ("runs/-1/bytes speed", [4e6, 2.5]),
        ("runs/-1/bytes / speed", [1.6e6]),
        ("log.jsonl:-1/nq.dev", [2]),
        ("all.json:a.b/1", [7]),
        ("lines.stdout:b", [5]),
    ],
)
def test_numbers_are_read_at_their_paths(find, paths, numbers):
    assert find(paths) == [10 * number for number in numbers]


# Prints numbers; counts how often it ran.
_SCRIPT = """
import argparse
import json
import pathlib
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--output", required=True)
parser.add_argument("--speed", type=float, default=2.5)
parser.add_argument("--status", type=int, default=0)
args = parser.parse_args()
count = pathlib.Path(args.output, "runs.txt")
runs = len(count.read_text()) if count.exists() else 0
count.write_text((runs + 1) * "x")
print(json.dumps({"speed": args.speed, "bytes": 4e6}))
sys.exit(args.status)
"""
_RUN = "python speed.py --output {output}"
_SPEED = {"numbers": [2.5], "source": "speed", "within": "0.1"}
_MEMORY = {"numbers": [99], "source": "bytes", "scale": 1e-6}


@pytest.fixture
def measure(tmp_path):
    """Measures `fast`; returns the rows without the name."""
    (tmp_path / "speed.py").write_text(_SCRIPT)

    def measure(*commands, speed=_SPEED):
        rows = {"speed": {"got": speed, "said": "much"}, "MB": {"got": _MEMORY}}
        kept = {
            "name": "fast",
            "commands": list(commands),
            "machine": "a core",
            "tables": [{"title": "of", "form": "{:.1f}", "rows": rows}],
        }
        values = {"output": tmp_path / "out", "data_dir": tmp_path / "a b"}
        found = published.measure_one(kept, values, tmp_path)
        return [row[1:] for row in found]

    return measure


def test_numbers_are_compared_with_the_published_ones(measure, tmp_path):
    assert measure(_RUN) == [
        ["of", "speed", "got", "2.5 ± 0.1", "2.5", "ok"],
        ["of", "MB", "got", "99.0", "4.0", "not judged"],
    ]
    # The new file may replace the published one.
    results = json.loads((tmp_path / "out/results.json").read_text())
    numbers = [cell["numbers"] for cell in published.cells_of(results)]
    assert numbers == [[2.5], [4.0]]
    assert "much" not in published.markdown(results)
    assert results["commands"] == [_RUN] and results["machine"] != "a core"
    assert results["date"]


@pytest.mark.parametrize(
    "speed, verdict",
    [({}, "OUTSIDE"), ({"source": "none.json:x"}, "MISSING: FileNotFound")],
)
def test_numbers_outside_and_missing(measure, tmp_path, speed, verdict):
    found, _ = measure(f"{_RUN} --speed 2.7", speed={**_SPEED, **speed})
    assert found[-1].startswith(verdict)
    assert (tmp_path / "out/results.json").exists() == (verdict == "OUTSIDE")


def test_done_commands_are_not_run_again(measure, tmp_path, monkeypatch):
    """The commands from the failed one on run; other commands are refused."""
    first, second, third = (f"{_RUN} --speed {n}" for n in (1, 2, 2.5))

    def runs(*commands):
        measure(*commands)
        return len((tmp_path / "out/runs.txt").read_text())

    with pytest.raises(SystemExit, match="failed with status 7"):
        measure(first, second + " --status 7", third)
    assert not (tmp_path / "out/results.json").exists()
    assert runs(first, second, third) == 4
    assert runs(first, second, third) == 4
    with pytest.raises(SystemExit, match="other commands"):
        runs(first, second + "0", third)
    monkeypatch.setattr(published.realm, "__version__", "another")
    with pytest.raises(SystemExit, match="another version"):
        runs(first, second, third)
    assert (tmp_path / "out/results.json").exists()


def test_measurements_are_listed(capsys):
    assert published.measure() == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == MEASURED


def test_a_measurement_of_this_repository(tmp_path, capsys):
    """The one that takes seconds, as a user runs it."""
    assert published.measure(("tagger-rules",), output=tmp_path / "out") == 0
    assert capsys.readouterr().out.count("| ok ") == 5
