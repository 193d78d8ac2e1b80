"""The numbers of a comparison of systems, collected from its evaluations."""

import statistics

from realm_tf.answering import bootstrap
from realm_tf.answering import recall
from realm_tf.artifacts.objects import Evaluation
from realm_tf.configs import ablations as configs
from realm_tf.configs.ablations import RANGE
from realm_tf.operations.training import Training

# What predictions.jsonl has of each question.
_OF_QUESTIONS = (
    configs.EXACT_MATCH,
    *(f"answer_recall@{k}" for k in recall.RECALL_AT),
)


def collect(given, graph, cells) -> dict:
    """Reads what was measured.

    Args:
        given: `Ablate`.
        graph: `Graph`.
        cells: list of `Cell`, all of which are measured.

    Returns:
        dict: `systems` by name, each seed's `training_seconds` and, by test,
        `metrics`; `summary` by test, system and metric: `mean`, `low`, `high`;
        for intervals over questions `differences` from the reference, as
        `bootstrap.paired_difference`. Shares are between 0 and 1.
    """
    suite, tests = given.chosen, list(given.tests)
    systems = {
        system.name: {"title": system.title, "paper": system.paper, "seeds": {}}
        for system in suite.systems
    }
    for cell in cells:
        systems[cell.system.name]["seeds"][str(cell.seed)] = {
            "training_seconds": _training_seconds(graph, cell),
            "metrics": {test: _metrics(cell, test) for test in tests},
        }
    seeds = sorted({cell.seed for cell in cells})
    results = {
        "suite": given.suite,
        "spread": suite.spread,
        "seeds": seeds,
        "tests": tests,
        "recipes": {
            name: recipe and recipe.flat()
            for name, recipe in given.recipes.items()
        },
        "notes": notes(given, seeds),
        "systems": systems,
        "summary": {},
    }
    for test in tests:
        if suite.spread == RANGE:
            results["summary"][test] = {
                name: _ranges(suite, found["seeds"].values(), test)
                for name, found in systems.items()
            }
            continue
        rows = {
            name: _means_over_seeds(
                [cell for cell in cells if cell.system.name == name], test
            )
            for name in systems
        }
        results["summary"][test] = {
            name: _intervals(suite, found) for name, found in rows.items()
        }
        differences = results.setdefault("differences", {})
        differences[test] = _differences(suite, rows)
    results["noise"] = [
        line for test in tests for line in noise(results, suite, test)
    ]
    return results


def _training_seconds(graph, cell):
    """Of all that was trained for it, also what others share."""
    seconds = [
        step.seconds
        for step in graph.ancestors(cell.model)
        if isinstance(step.operation, Training)
    ]
    return round(sum(seconds), 1)


def _metrics(cell, test):
    """All metrics of a cell on a test, those before fine-tuning prefixed."""
    found = dict(cell.evaluations[test].metrics)
    if cell.zero_shot:
        found |= {
            configs.ZERO_SHOT + name: value
            for name, value in cell.zero_shot[test].metrics.items()
            if name != "questions"
        }
    return found


def _ranges(suite, seeds, test):
    """Mean and range of each metric over the seeds."""
    return {
        metric: {
            "mean": round(statistics.mean(values), bootstrap.DIGITS),
            "low": min(values),
            "high": max(values),
        }
        for metric in suite.metrics
        for values in [[seed["metrics"][test][metric] for seed in seeds]]
    }


def _means_over_seeds(cells, test):
    """A dict of metrics for each question."""
    lines = [
        # Read and let go: they hold all texts that were found.
        Evaluation(cell.evaluations[test].path).predictions
        for cell in cells
    ]
    return [
        {
            name: statistics.mean(line[name] for line in of_question)
            for name in _OF_QUESTIONS
        }
        for of_question in zip(*lines, strict=True)
    ]


def _intervals(suite, rows):
    """The bootstrap over questions."""
    metrics = bootstrap.summarize(rows)
    return {
        name: {
            "mean": metrics[name],
            "low": metrics[f"{name}_interval"][0],
            "high": metrics[f"{name}_interval"][1],
        }
        for name in suite.metrics
    }


def _differences(suite, rows):
    """How far each system but the reference is from it, question by question."""
    return {
        name: {
            metric: bootstrap.paired_difference(
                [row[metric] for row in found],
                [row[metric] for row in rows[suite.reference]],
            )
            for metric in suite.metrics
        }
        for name, found in rows.items()
        if name != suite.reference
    }


def noise(results: dict, suite: configs.Suite, test: str) -> list[str]:
    """Which differences from the reference are noise, by `tables`: a line a metric."""
    titles = {system.name: system.title for system in suite.systems}
    reference = titles.pop(suite.reference)
    # With one seed there is no range that tells a difference from noise.
    no_range = suite.spread == RANGE and len(results["seeds"]) == 1
    if not titles or no_range:
        return []
    return [
        f"{test}, {title}, compared with {reference}: "
        f"{_sorted_by_noise(results, suite, test, metric, titles)}."
        for metric, title in suite.metrics.items()
    ]


def _sorted_by_noise(results, suite, test, metric, titles):
    summary = results["summary"][test]
    mine = summary[suite.reference][metric]
    within, beyond = [], []
    for name, title in titles.items():
        if suite.spread == RANGE:
            other = summary[name][metric]
            is_noise = (
                other["low"] <= mine["high"] and mine["low"] <= other["high"]
            )
        else:
            found = results["differences"][test][name][metric]
            low, high = found["interval"]
            is_noise = low <= 0 <= high
            title += f" {100 * found['difference']:+.1f} "
            title += f"({100 * low:+.1f} to {100 * high:+.1f})"
        (within if is_noise else beyond).append(title)
    return "; ".join(
        f"{where} noise: {', '.join(found)}"
        for where, found in (("beyond", beyond), ("within", within))
        if found
    )


def notes(given, seeds: list[int]) -> list[str]:
    """What a reader of the table must know.

    Args:
        given: `Ablate`.
        seeds: list of int.
    """
    found = [
        "The masked-LM warm-up and the Inverse Cloze Task are trained once for "
        "all seeds."
    ]
    if given.recipes["ict"] is None:
        found.append(
            "No Inverse Cloze Task was trained (num_steps=0): the initial "
            "model takes the place of the model that it gives."
        )
    pretrain = given.recipes["pretrain"]
    factor = configs.PRETRAININGS[configs.STALE]["stale_factor"]
    every = factor * pretrain.index.refresh_every
    is_stale = any(
        each.towers == configs.STALE for each in given.chosen.systems
    )
    if is_stale and not 0 < every < pretrain.num_steps:
        found.append(
            f"In {pretrain.num_steps} steps, an index that is {factor} times "
            "staler is never refreshed."
        )
    if len(seeds) == 1:
        found.append("One seed: how much another would change is not known.")
    return found
