"""Comparisons, recomputed from the files that were compared."""

import json
import re

import numpy as np
import pytest

from realm_tf import cli
from realm_tf.answering.bootstrap import paired_difference
from realm_tf.answering.bootstrap import summarize
from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.evaluation.comparison import markdown
from realm_tf.operations.compare import Compare

NUM_QUESTIONS = 60
# Names that Markdown and HTML must escape.
NAMES = ("a|b", "<i>", "c*")


def make_lines(quality, seed):
    """What a system of some quality said of the questions."""
    random = np.random.default_rng(seed)
    lines = []
    for number in range(NUM_QUESTIONS):
        is_right = float(random.random() < quality)
        rank = int(random.integers(1, 40))
        line = {
            "question": f"What is number {number}?",
            "answer": ["this"],
            "prediction": "this" if is_right else "that",
            "exact_match": is_right,
            "f1": is_right or round(random.random(), 1),
            "answer_recall@5": float(rank <= 5),
        }
        if number % 3 == 0:
            line["gold_recall@1"] = float(rank <= 15)
        lines.append(line)
    return lines


def write(directory, lines, *, questions="of these"):
    """An evaluation directory."""
    metrics = summarize(
        [{k: v for k, v in e.items() if isinstance(v, float)} for e in lines]
    )
    with artifact.write(
        str(directory),
        kind="evaluation",
        parameters={"retriever": directory.name},
        parents={"questions": questions},
    ) as stage:
        write_text(stage.path("metrics.json"), json.dumps(metrics))
        write_text(
            stage.path("predictions.jsonl"),
            "".join(f"{json.dumps(line)}\n" for line in lines),
        )
    return str(directory)


def compare(evaluations, output):
    """The content of a comparison."""
    return Compare(evaluations=evaluations, output=output).run().content


@pytest.fixture
def systems(tmp_path):
    """Three systems: lines by name, directories."""
    lines = {
        "base": make_lines(0.4, 1),
        "better": make_lines(0.7, 2),
        "other": make_lines(0.45, 3),
    }
    # Closed-book: nothing was retrieved.
    for line in lines["other"]:
        for name in ("answer_recall@5", "gold_recall@1"):
            line.pop(name, None)
    directories = [write(tmp_path / name, each) for name, each in lines.items()]
    return lines, directories


def test_differences_are_paired(systems, tmp_path):
    lines, directories = systems
    compared = compare(directories, str(tmp_path / "comparison"))
    assert list(compared["differences"]) == ["better", "other"]
    measured = {
        "better": ["exact_match", "f1", "answer_recall@5", "gold_recall@1"],
        "other": ["exact_match", "f1"],
    }
    for system, metrics in measured.items():
        differences = compared["differences"][system]
        assert list(differences) == metrics
        for metric in metrics:
            values, first = (
                [line[metric] for line in lines[name] if metric in line]
                for name in (system, "base")
            )
            assert differences[metric] == paired_difference(values, first)
    assert compared["differences"]["better"]["exact_match"]["interval"][0] > 0
    assert 0.05 < compared["differences"]["other"]["f1"]["sign_flips"] < 0.95


def test_what_is_written(systems, tmp_path):
    lines, directories = systems
    output = str(tmp_path / "comparison")
    compared = compare(directories, output)
    stored = json.loads(Path(f"{output}/comparison.json").read_text())
    assert stored == compared
    assert compared["questions"] == NUM_QUESTIONS
    for name, directory in zip(lines, directories, strict=True):
        metrics = json.loads(Path(f"{directory}/metrics.json").read_text())
        assert compared["systems"][name] == {
            "metrics": metrics,
            "parameters": {"retriever": name},
        }
    text = Path(f"{output}/comparison.md").read_text()
    assert text == markdown(compared)
    metadata = artifact.read(output, kind="comparison")
    assert metadata["parameters"] == {"names": ["base", "better", "other"]}
    assert metadata["parents"]["questions"] == "of these"
    rows = {
        cells[0]: cells[1:]
        for cells in (
            [cell.strip() for cell in row.split("|")[1:-1]]
            for row in text.split("\n\n")[0].splitlines()
        )
    }
    assert rows["60 questions"] == ["base", "better", "other"]
    for metric, name in (("exact match", "exact_match"), ("F1", "f1")):
        for cell, each in zip(rows[metric], lines.values(), strict=True):
            value, low, high = map(float, re.findall(r"\d\.\d+", cell))
            assert value == pytest.approx(
                np.mean([line[name] for line in each]), abs=6e-4
            )
            assert low < value < high
    assert rows["gold recall@1"][2] == rows["answer recall@5"][2] == ""
    assert "better less base, paired bootstrap" in text
    found = compared["differences"]["better"]["exact_match"]
    low, high = found["interval"]
    assert (
        f"| {found['difference']:+.3f}     | {low:+.3f} to {high:+.3f} |"
    ) in text


def test_the_command_prints_the_tables(systems, tmp_path, capsys):
    lines, _ = systems
    directories = [write(tmp_path / name, lines["base"]) for name in NAMES]
    output = str(tmp_path / "comparison")
    arguments = ["compare", *directories, "--output", output]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    assert printed == Path(f"{output}/comparison.md").read_text()
    assert r"| a\|b " in printed and r"\<i\> less a\|b" in printed
    assert cli.main(arguments) == 2
    assert "exists already" in capsys.readouterr().err


def test_directories_of_the_same_name_are_told_apart(tmp_path):
    lines = make_lines(0.5, 1)
    directories = [
        write(tmp_path / name / "evaluation", lines) for name in "ab"
    ]
    compared = compare(directories, str(tmp_path / "comparison"))
    assert list(compared["systems"]) == directories
    again = compare([f"{directories[0]}/"], str(tmp_path / "one"))
    assert list(again["systems"]) == ["evaluation"]


def _refused(directories, tmp_path, match):
    output = tmp_path / "comparison"
    with pytest.raises(InputError, match=match):
        compare(directories, str(output))
    assert not output.exists()


def test_what_does_not_compare_is_named(systems, tmp_path):
    lines, directories = systems
    first = re.escape(directories[0])
    other = write(tmp_path / "of others", lines["base"], questions="others")
    _refused(
        [*directories, other],
        tmp_path,
        f"{re.escape(other)} is of another questions file than {first}",
    )
    _refused([str(tmp_path / "none")], tmp_path, "none does not exist")
    _refused([], tmp_path, "one evaluation or more.*Received: none")
    _refused([directories[0], directories[0]], tmp_path, "each once")
