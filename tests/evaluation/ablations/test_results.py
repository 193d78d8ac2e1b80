"""Tables and plots of comparisons whose numbers are written by hand."""

import json

import numpy as np
import pytest
from comparisons import make_ablate
from comparisons import write_directory
from matplotlib import image

from realm_tf.answering import bootstrap
from realm_tf.artifacts.paths import Path
from realm_tf.configs import pretrain as pretrain_configs
from realm_tf.evaluation.ablations import results as ablation_results
from realm_tf.evaluation.ablations import tables
from realm_tf.evaluation.ablations.systems import list_operations

# Exact matches of four questions, by system and seed, and recall@5 before
# fine-tuning.
TABLE_2 = {
    "realm": {0: ([1, 1, 1, 0], 0.75), 1: ([1, 1, 0, 0], 0.5)},
    "orqa": {0: ([1, 1, 0, 0], 0.25), 1: ([0, 1, 0, 0], 0.25)},
    "stale_30x": {0: ([0, 0, 0, 0], 0.5), 1: ([0, 1, 0, 0], 0.25)},
}
SECONDS = {"InverseClozeTask": 60.0, "FineTune": 30.0, "Pretrain": 5.0}


def _files(matches, recall):
    """What `realm evaluate` writes, if an answer is always found."""
    found = {f"answer_recall@{k}": 1.0 for k in (5, 20, 100)}
    found["answer_recall@1"] = recall
    rows = [
        {
            "question": f"{number}?",
            "answer": ["x"],
            "exact_match": float(match),
            **found,
        }
        for number, match in enumerate(matches)
    ]
    metrics = {"exact_match": float(np.mean(matches)), "questions": 4, **found}
    return {
        "metrics.json": json.dumps(metrics),
        "predictions.jsonl": "".join(f"{json.dumps(row)}\n" for row in rows),
    }


def _collect(root, suite, numbers):
    """What `collect` makes of operations that gave these numbers."""
    given = make_ablate(root, suite=suite, cells=list(numbers), seeds=[0, 1])
    graph, cells = list_operations(given)
    written = {}
    for cell in cells:
        matches, recall = numbers[cell.system.name][cell.seed]
        written[cell.evaluations["nq"]] = _files(matches, recall)
        for each in cell.zero_shot.values():
            metrics = {"answer_recall@5": recall, "questions": 4}
            written[each] = {"metrics.json": json.dumps(metrics)}
    for step in graph.steps:
        result = step.operation.result
        write_directory(
            result.path,
            kind=result.kinds[0],
            seconds=SECONDS.get(type(step.operation).__name__, 1000.0),
            files=written.get(result, ()),
        )
    return ablation_results.collect(given, graph, cells), given.chosen


@pytest.fixture(scope="module")
def table_2(tmp_path_factory):
    root = tmp_path_factory.mktemp("table2")
    return (*_collect(root, "table2", TABLE_2), str(root / "output"))


def test_means_and_ranges_over_seeds(table_2):
    results, *_ = table_2
    assert results["seeds"] == [0, 1] and results["tests"] == ["nq"]
    assert results["recipes"]["ict"]["num_steps"] == 7
    tiny = pretrain_configs.RECIPES["tiny"]
    assert results["recipes"]["pretrain"] == tiny.flat()
    summary = results["summary"]["nq"]
    assert summary["realm"]["exact_match"] == {
        "mean": 0.625,
        "low": 0.5,
        "high": 0.75,
    }
    assert summary["stale_30x"]["zero_shot_answer_recall@5"] == {
        "mean": 0.375,
        "low": 0.25,
        "high": 0.5,
    }
    seeds = results["systems"]["orqa"]["seeds"]
    assert seeds["1"]["metrics"]["nq"]["exact_match"] == 0.25
    # Packing and measuring are no training.
    assert seeds["1"]["training_seconds"] == 90.0
    seeds = results["systems"]["realm"]["seeds"]
    assert seeds["1"]["training_seconds"] == 95.0


def _cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_has_the_paper_s_form(table_2):
    results, suite, _ = table_2
    lines = tables.markdown(results, suite).splitlines()
    start = lines.index("## nq") + 2
    header, _, *rows = (_cells(line) for line in lines[start : start + 5])
    assert header == [
        *("system", "exact match", "zero-shot answer recall@5"),
        "*paper: exact match*",
        "*paper: zero-shot answer recall@5*",
    ]
    ours = "62.5 (50.0 to 75.0)"
    assert rows == [
        ["REALM", ours, ours, "*38.2*", "*38.5*"],
        [
            *("Baseline (ORQA)", "37.5 (25.0 to 50.0)", "25.0 (25.0 to 25.0)"),
            *("*31.3*", "*13.9*"),
        ],
        [
            *("30x stale index", "12.5 (0.0 to 25.0)", "37.5 (25.0 to 50.0)"),
            *("*28.7*", "*15.1*"),
        ],
    ]
    text = "\n".join(lines)
    assert "13 million blocks, and so not comparable" in text
    assert any("Cloze Task are trained once" in line for line in lines)
    assert "seeds 0, 1." in text


def test_what_is_within_noise(table_2):
    results, suite, _ = table_2
    assert results["noise"] == [
        "nq, exact match, compared with REALM: beyond noise: 30x stale index; "
        "within noise: Baseline (ORQA).",
        "nq, zero-shot answer recall@5, compared with REALM: beyond noise: "
        "Baseline (ORQA); within noise: 30x stale index.",
    ]
    changed = dict(results)
    changed["seeds"] = [0]
    assert ablation_results.noise(changed, suite, "nq") == []


def test_the_plot_shows_every_seed_its_mean_and_range(table_2):
    results, suite, output = table_2
    tables.write(results, suite, output)
    pixels = image.imread(f"{output}/results.png")
    assert pixels.shape[0] > 200 and pixels.shape[1] > 600
    assert json.loads(Path(f"{output}/results.json").read_text()) == results
    assert Path(f"{output}/results.md").read_text() == (
        tables.markdown(results, suite)
    )
    drawn = tables.figure(results, suite)
    exact_match, _ = drawn.axes
    assert exact_match.get_title() == "exact match, nq"
    dots, _ = exact_match.collections
    (means,) = exact_match.lines
    assert sorted(map(tuple, dots.get_offsets().tolist())) == sorted(
        [(75, 0), (50, 0), (50, 1), (25, 1), (0, 2), (25, 2)]
    )
    assert means.get_xydata().tolist() == [[62.5, 0], [37.5, 1], [12.5, 2]]
    (container,) = exact_match.containers
    (ranges,) = container.lines[2]
    assert [line[:, 0].tolist() for line in ranges.get_segments()] == [
        *([50, 75], [25, 50], [0, 25]),
    ]


def test_intervals_are_over_questions(tmp_path):
    """Of each question's mean over seeds, by an own bootstrap."""
    random = np.random.default_rng(5)
    matches = random.integers(0, 2, (2, 60))
    numbers = {
        "start": {0: (matches[0].tolist(), 0.5), 1: (matches[1].tolist(), 0.5)},
        "realm": {0: ([1] * 60, 1.0), 1: ([1] * 60, 1.0)},
    }
    results, suite = _collect(tmp_path, "table1", numbers)
    found = results["summary"]["nq"]["start"]["exact_match"]
    values = matches.mean(axis=0)
    assert found["mean"] == pytest.approx(values.mean(), abs=1e-4)
    means = values[random.integers(0, 60, (20_000, 60))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    assert found["low"] == pytest.approx(low, abs=0.02)
    assert found["high"] == pytest.approx(high, abs=0.02)
    # All questions answered: nothing varies.
    assert results["summary"]["nq"]["realm"]["exact_match"] == {
        "mean": 1.0,
        "low": 1.0,
        "high": 1.0,
    }
    text = tables.markdown(results, suite)
    row = next(line for line in text.splitlines() if "Start, " in line)
    # 30 s of fine-tuning alone.
    assert _cells(row)[-2:] == ["100.0 (100.0 to 100.0)", "0.5"]
    assert "paper" not in text
    found = results["differences"]["nq"]["start"]["exact_match"]
    assert found == bootstrap.paired_difference(values, np.ones(60))
    low, high = (100 * end for end in found["interval"])
    assert results["noise"][0] == (
        "nq, exact match, compared with REALM: beyond noise: Start, retriever "
        f"not trained {100 * values.mean() - 100:+.1f} "
        f"({low:+.1f} to {high:+.1f})."
    )
    assert results["noise"][2] == (
        "nq, answer recall@5, compared with REALM: within noise: Start, "
        "retriever not trained +0.0 (+0.0 to +0.0)."
    )
    assert "both systems' answers to a question together" in text
    assert suite.reference == "realm"


def _notes(root, cells, *, seeds=(0, 1), **changes):
    suite = "table2" if "realm" in cells else "table1"
    given = make_ablate(root, suite=suite, cells=cells, **changes)
    return ablation_results.notes(given, seeds)


def test_what_a_reader_of_the_table_is_told(tmp_path):
    stale = "In 6 steps, an index that is 30 times staler is never refreshed."
    both = ["realm", "stale_30x"]
    for told, expected in (
        (
            _notes(tmp_path, ["realm"], set_ict=["num_steps=0"]),
            ["No Inverse Cloze Task"],
        ),
        (_notes(tmp_path, ["realm"]), []),
        (_notes(tmp_path, both), [stale]),
        # Every 60 steps.
        (_notes(tmp_path, both, set_pretrain=["num_steps=61"]), []),
        (_notes(tmp_path, ["start"], seeds=[3]), ["One seed: "]),
    ):
        assert told[0].startswith("The masked-LM warm-up and the Inverse")
        for note, start in zip(told[1:], expected, strict=True):
            assert note.startswith(start)
