"""The numbers behind the means of an evaluation, against brute force."""

import fractions
import itertools
import math

import pytest

from realm_tf.evaluation.reports import breakdowns


def test_recall_curves_by_counting(make_lines):
    lines = make_lines(57)
    # Whose retriever was not asked, and an empty question.
    lines[3]["answer_ranks"] = {"realm": 7}
    lines[4].update(answer_ranks={"realm": None, "bm25": None}, num_ranked=0)
    del lines[5]["answer_ranks"], lines[5]["num_ranked"]
    curves = breakdowns.recall_curves(lines)
    assert list(curves) == ["realm", "bm25"]
    for name, curve in curves.items():
        ranks = [
            line["answer_ranks"][name]
            for line in lines
            if name in line.get("answer_ranks", {})
        ]
        assert len(ranks) == {"realm": 56, "bm25": 55}[name]
        assert curve == [
            len([1 for rank in ranks if rank and rank <= k]) / len(ranks)
            for k in range(1, 31)
        ]
    assert breakdowns.recall_curves([{"question": "Who?"}]) == {}


@pytest.mark.parametrize(
    "question, word",
    [
        ("who wrote it", "who"),
        ("To WHOM was it given?", "who"),
        ("Whose is it?", "who"),
        ("What's the river?", "what"),
        ("in which year was it", "which"),
        ("When was it where?", "when"),
        ("How many moons are there", "how many"),
        ("how   Many", "how many"),
        ("how much is it", "how"),
        ("So, how?", "how"),
        ("the other one", "other"),
        ("the whole somewhat", "other"),
        ("", "other"),
    ],
)
def test_question_words(question, word):
    assert breakdowns.question_word(question) == word


@pytest.mark.parametrize(
    "line, group",
    [
        ({"answer": ["one two three", "the  one two."]}, "2"),
        ({"answers": "Rome"}, "1"),
        ({"answer": ["a b c d e"]}, "4"),
        ({"answer": ["v w x y z"]}, "5 or more"),
        ({"answer": ["one " * 30]}, "5 or more"),
        # Nothing is left of it.
        ({"answer": ["The"]}, "1"),
        ({"answer": ["19.."], "answer_type": "regex"}, "pattern"),
        # An article of German; "die" is a word of English.
        ({"answer": ["die Stadt"], "language": "de"}, "1"),
        ({"answer": ["die Stadt"]}, "2"),
    ],
)
def test_answer_lengths(line, group):
    assert breakdowns.answer_length(line) == group
    assert group in breakdowns.answer_lengths()


def test_groups_by_counting(make_lines):
    lines = make_lines(83)
    found = breakdowns.by_group(
        lines,
        lambda line: breakdowns.question_word(line["question"]),
        breakdowns.QUESTION_WORDS,
    )
    # "Name" is no question word.
    assert list(found) == [*breakdowns.QUESTION_WORDS]
    for word, group in found.items():
        prefix = "name is" if word == "other" else f"{word} is"
        values = [
            line["exact_match"]
            for line in lines
            if line["question"].lower().startswith(prefix)
        ]
        assert group["questions"] == len(values)
        assert group["exact_match"] == pytest.approx(sum(values) / len(values))
    assert sum(group["questions"] for group in found.values()) == 83


def test_the_interval_holds_what_the_score_test_does_not_reject():
    def rejected(truth, share, trials):
        return abs(share - truth) > 1.959963984540054 * math.sqrt(
            truth * (1 - truth) / trials
        )

    for trials, successes in ((5, 5), (5, 0), (7, 3), (200, 31), (1, 1)):
        share = successes / trials
        low, high = breakdowns.wilson_interval(successes, trials)
        grid = [n / 100_000 for n in range(1, 100_000)]
        kept = [t for t in grid if not rejected(t, share, trials)]
        assert low == pytest.approx(kept[0], abs=2e-5)
        assert high == pytest.approx(kept[-1], abs=2e-5)
    # Nothing below 0 by rounding; what is certain is not.
    low, high = breakdowns.wilson_interval(0, 5)
    assert low == 0.0 and high == pytest.approx(0.4345, abs=1e-4)


def test_risk_and_coverage_by_trying_every_threshold(make_lines):
    lines = make_lines(90)
    found = breakdowns.risk_coverage(lines, risks=(0.0, 0.1, 0.2, 0.4, 1.0))
    thresholds = sorted({line["confidence"] for line in lines}, reverse=True)
    assert len(thresholds) < 90
    best = dict.fromkeys(found["coverage_at"], 0.0)
    for threshold, point in zip(thresholds, found["points"], strict=True):
        given = [e for e in lines if e["confidence"] >= threshold]
        risk = len([e for e in given if not e["exact_match"]]) / len(given)
        assert point == pytest.approx((len(given) / 90, risk))
        for limit in best:
            if risk <= limit:
                best[limit] = max(best[limit], len(given) / 90)
    assert found["coverage_at"] == pytest.approx(best)
    assert best[1.0] == 1.0 and 0 < best[0.2] < best[0.4] < 1


def test_the_area_is_the_mean_over_all_orders_of_equal_confidences():
    confidences = [0.9, 0.5, 0.5, 0.5, 0.2, 0.2]
    right = [1, 0, 1, 1, 0, 1]
    areas = []
    for order in itertools.permutations(range(6)):
        if any(
            confidences[first] < confidences[second]
            for first, second in itertools.pairwise(order)
        ):
            continue
        wrong = [1 - right[row] for row in order]
        risks = [fractions.Fraction(sum(wrong[:n]), n) for n in range(1, 7)]
        areas.append(sum(risks) / 6)
    assert len(areas) == 12
    lines = [
        {"confidence": confidence, "exact_match": float(value)}
        for confidence, value in zip(confidences, right, strict=True)
    ]
    found = breakdowns.risk_coverage(lines)
    assert found["area"] == pytest.approx(float(sum(areas) / 12))
    # Without knowledge the area is the share of wrong answers.
    for line in lines:
        line["confidence"] = 0.5
    assert breakdowns.risk_coverage(lines)["area"] == pytest.approx(1 / 3)


def test_bins_of_confidence_by_comparing(make_lines):
    lines = make_lines(150)
    lines[0]["confidence"], lines[1]["confidence"] = 0.0, 1.0
    # 0.3 * 10 and the like must not slip into the bin below.
    for row, tenth in enumerate(range(10), 2):
        lines[row]["confidence"] = tenth / 10
    for line in lines:
        if 0.4 <= line["confidence"] < 0.5:
            line["confidence"] = 0.55
    found = breakdowns.reliability(lines)
    assert [(b["low"], b["high"]) for b in found] == [
        (n / 10, (n + 1) / 10) for n in range(10) if n != 4
    ]
    for b in found:
        inside = [
            line
            for line in lines
            if b["low"] <= line["confidence"] < b["high"]
            or line["confidence"] == b["high"] == 1.0
        ]
        count = len(inside)
        assert b["questions"] == count
        assert b["exact_match"] == pytest.approx(
            sum(line["exact_match"] for line in inside) / count
        )
        assert b["confidence"] == pytest.approx(
            sum(line["confidence"] for line in inside) / count
        )
        assert b["interval"] == breakdowns.wilson_interval(
            sum(line["exact_match"] for line in inside), count
        )
    assert sum(b["questions"] for b in found) == 150
