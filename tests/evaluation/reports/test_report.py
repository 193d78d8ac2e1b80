"""The report, and the numbers in it against brute force."""

import fractions
import html.parser
import itertools
import math
import random
import re

import pytest

from realm_tf.answering import bootstrap
from realm_tf.errors import InputError
from realm_tf.evaluation.reports import breakdowns
from realm_tf.evaluation.reports import charts
from realm_tf.evaluation.reports import page
from realm_tf.evaluation.reports import report

NASTY = '</p><script>alert("x")</script><img src=x onerror=y>&amp;\x00\ud800'
# The same, as a browser shows it.
SHOWN = NASTY.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
WORDS = ("Who", "What", "When", "Where", "Which", "How many", "How", "Name")


def make_lines(number, seed=0):
    """Lines as `realm evaluate` writes them."""
    rng = random.Random(seed)
    lines = []
    for row in range(number):
        # Of two decimals: some confidences are the same.
        confidence = round(rng.random(), 2)
        is_right = rng.random() < 0.2 + 0.6 * confidence
        answer = " ".join(["word"] * rng.randrange(1, 8))
        text = f"🚢 Before {answer} after {row}."
        start = text.index(answer)
        lines.append(
            {
                "question": f"{rng.choice(WORDS)} is number {row}?",
                "answer": [answer] if is_right else ["other"],
                "prediction": answer,
                "score": 1.5,
                "confidence": confidence,
                "block_id": row,
                "title": f"Title {row}",
                "text": text,
                "url": f"https://example.org/{row}",
                "start": start,
                "limit": start + len(answer),
                "retrieved": [row, row + 1],
                "candidates": [
                    {
                        "block_id": row + away,
                        "log_prob": math.log(share),
                        "answer": said,
                        "score": 1.0 - away,
                    }
                    for away, share, said in (
                        (0, 0.75, answer),
                        (1, 0.25, "other"),
                    )
                ],
                "exact_match": float(is_right),
                "f1": float(is_right),
                "answer_recall@1": 0.0,
                "answer_ranks": {
                    "realm": rng.choice([None, *range(1, 31)]),
                    "bm25": rng.choice([None, 1, 2, 30]),
                },
                "num_ranked": 30,
            }
        )
    return lines


class Reader(html.parser.HTMLParser):
    """What a browser would show of the page."""

    VOID = {"meta", "line", "circle", "rect", "polyline", "link", "img"}

    def __init__(self, content):
        super().__init__()
        self.open = []
        self.tags = []
        self.examples = []
        self.marks = []
        self.titles = []
        self.links = []
        self.tables = []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        assert not any(name.startswith("on") for name in attributes)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "article":
            self.examples.append("")
        elif tag == "mark":
            self.marks.append("")
        elif tag == "a":
            self.links.append(attributes["href"])
        elif tag == "h1":
            self.titles.append("")
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "article" in self.open:
            self.examples[-1] += data
        if "mark" in self.open:
            self.marks[-1] += data
        if "h1" in self.open:
            self.titles[-1] += data
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data


def write(tmp_path, lines, **changed):
    path = str(tmp_path / "report.html")
    rows = [{"exact_match": line["exact_match"]} for line in lines]
    arguments = {
        "title": "Ours",
        "metrics": bootstrap.summarize(rows),
        "lines": lines,
        "parameters": {"retriever": "realm", "num_reader_blocks": 5},
    }
    report.write(path, **{**arguments, **changed})
    with open(path, encoding="utf-8") as file:
        content = file.read()
    return Reader(content), content


def test_recall_curves_by_counting():
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
    assert breakdowns.recall_curve([2, None, 1, 4], 3) == [0.25, 0.5, 0.5]
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
    ],
)
def test_answer_lengths(line, group):
    assert breakdowns.answer_length(line) == group
    assert group in breakdowns.answer_lengths()


def test_groups_by_counting():
    lines = make_lines(83)
    found = breakdowns.by_group(
        lines,
        lambda line: breakdowns.question_word(line["question"]),
        breakdowns.QUESTION_WORDS,
    )
    # "Name" is no question word.
    assert list(found) == [*(w.lower() for w in WORDS[:-1]), "other"]
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
    order = ("b", "a", "none")
    found = breakdowns.by_group(
        lines, lambda line: "ab"[line["block_id"] % 2], order
    )
    assert list(found) == ["b", "a"] and found["b"]["questions"] == 41


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


def test_risk_and_coverage_by_trying_every_threshold():
    lines = make_lines(90)
    found = breakdowns.risk_coverage(lines, risks=(0.0, 0.1, 0.2, 0.4, 1.0))
    thresholds = sorted({line["confidence"] for line in lines}, reverse=True)
    assert len(thresholds) < 90
    best = dict.fromkeys(found["coverage_at"], 0.0)
    for threshold, point in zip(thresholds, found["points"], strict=True):
        given = [e for e in lines if e["confidence"] >= threshold]
        risk = len([e for e in given if not e["exact_match"]]) / len(given)
        assert point == pytest.approx((threshold, len(given) / 90, risk))
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


def test_bins_of_confidence_by_comparing():
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


def test_examples_are_spread_over_the_file():
    lines = make_lines(300)
    for chosen, is_right in zip(
        report.choose_examples(lines), (1.0, 0.0), strict=True
    ):
        kind = [line for line in lines if line["exact_match"] == is_right]
        places = [kind.index(line) for line in chosen]
        assert len(places) == 25
        for part, place in enumerate(places):
            assert len(kind) * part / 25 <= place < len(kind) * (part + 1) / 25
    right, wrong = report.choose_examples(lines[:8])
    assert right + wrong == sorted(
        lines[:8], key=lambda line: -line["exact_match"]
    )
    assert report.choose_examples([{"exact_match": 0.0}])[0] == []


def test_the_page_shows_the_numbers(tmp_path):
    lines = make_lines(120)
    metrics = {
        **bootstrap.summarize(
            [{"exact_match": e["exact_match"], "f1": e["f1"]} for e in lines]
        ),
        "calibration": {"temperature": 1.25, "thresholds": {"0.1": {"a": 2}}},
    }
    found, _ = write(tmp_path, lines, metrics=metrics)
    headline, calibration, recall, words, lengths, bins, *rest = found.tables
    low, high = metrics["f1_interval"]
    assert headline[2][:3] == [
        "F1",
        f"{metrics['f1']:.3f}",
        f"{low:.3f} to {high:.3f}",
    ]
    assert headline[3][:2] == ["questions", "120"] and len(headline) == 4
    assert calibration[1:] == [
        ["temperature", "1.25"],
        ["thresholds", "0.1 a 2"],
    ]
    curves = breakdowns.recall_curves(lines)
    assert recall == [
        ["retriever", "@1", "@2", "@5", "@10", "@20"],
        *(
            [name, *(f"{curve[k - 1]:.3f}" for k in (1, 2, 5, 10, 20))]
            for name, curve in curves.items()
        ),
    ]
    assert sum(int(row[1]) for row in words[1:]) == 120
    assert [row[0] for row in lengths[1:]] == ["1", "2", "3", "4", "5 or more"]
    assert sum(int(row[1]) for row in bins[1:]) == 120
    # One of candidates an example, and the parameters.
    assert len(rest) == 51
    assert rest[-1][1:] == [
        ["retriever", "realm"],
        ["num reader blocks", "5"],
    ]


def test_the_page_shows_examples_with_their_evidence(tmp_path):
    lines = make_lines(60)
    found, _ = write(tmp_path, lines)
    right, wrong = report.choose_examples(lines)
    shown = [*right, *wrong]
    assert found.marks == [line["prediction"] for line in shown]
    assert len(found.examples) == len(shown) == 50
    for line, text in zip(shown, found.examples, strict=True):
        assert line["question"] in text and line["text"] in text
        assert f"Accepted: {line['answer'][0]}\n" in text
        verdict = "Right" if line["exact_match"] else "Wrong"
        assert f"{verdict}: {line['prediction']} confidence" in text
        ranks = (
            f"{name} {'none' if rank is None else f'no. {rank}'}"
            for name, rank in line["answer_ranks"].items()
        )
        assert f"of 30: {', '.join(ranks)}." in text
    tables = found.tables[-51:-1]
    for line, table in zip(shown, tables, strict=True):
        block = line["block_id"]
        is_right = bool(line["exact_match"])
        assert table[1:] == [
            [
                "0.7500",
                f"{block} (above)",
                line["prediction"],
                "right" if is_right else "",
                "1.00",
            ],
            [
                "0.2500",
                f"{block + 1}",
                "other",
                "" if is_right else "right",
                "0.00",
            ],
        ]
    assert found.links[-50:] == [line["url"] for line in shown]


def test_a_report_of_answers_without_blocks(tmp_path):
    lines = make_lines(9)
    for line in lines:
        for name in ("answer_ranks", "num_ranked"):
            del line[name]
        line.update(block_id=-1, title="", text="", url="", start=0, limit=0)
        line.update(candidates=[], retrieved=[])
    lines[0].update(prediction="", confidence=0.0)
    found, content = write(tmp_path, lines)
    assert found.marks == [] and found.tags.count("article") == 9
    assert content.count("Answered without a block.") == 9
    assert "(no answer)" in content and ">Recall<" not in content


def test_what_came_from_elsewhere_is_text(tmp_path):
    lines = make_lines(6)
    for line in lines:
        line.update(
            question=NASTY,
            answer=[NASTY, "("],
            answer_type="regex",
            prediction=NASTY,
            title=NASTY,
            text=f"b {NASTY} c {NASTY}",
            start=2,
            limit=2 + len(NASTY),
            answer_ranks={NASTY: 3},
        )
        for candidate in line["candidates"]:
            candidate["answer"] = NASTY
    lines[0]["url"] = "javascript:alert(1)"
    lines[1]["url"] = f'https://example.org/"{NASTY}'
    metrics = {NASTY: 0.5, "calibration": {NASTY: NASTY}}
    found, content = write(
        tmp_path,
        lines,
        title=NASTY,
        metrics=metrics,
        parameters={NASTY: [NASTY]},
    )
    assert not {"script", "img"} & set(found.tags)
    assert found.titles == [SHOWN]
    assert found.marks == [SHOWN] * 6
    assert len(found.examples) == 6
    links = [url for url in found.links if not url.startswith("#")]
    assert sorted(links) == sorted(
        [
            f'https://example.org/"{SHOWN}',
            *(line["url"] for line in lines[2:]),
        ]
    )
    assert all(f"{SHOWN} no. 3." in text for text in found.examples)
    assert re.search("default-src 'none'", content)


def test_the_page_needs_nothing_else(tmp_path):
    lines = make_lines(40)
    _, content = write(tmp_path, lines)
    links = re.findall(r'<a href="https?:[^"]*"', content)
    assert len(re.findall("https?:", content)) == len(links) > 0
    assert not re.search(r"<link|@import|url\(|\bsrc=|<script", content)
    assert 'name="viewport" content="width=device-width' in content
    assert "prefers-color-scheme: dark" in content
    assert write(tmp_path, lines)[1] == content


def places(svg, tag="polyline"):
    (points,) = re.findall(f'<{tag} points="([^"]*)" class="curve"', svg)
    return [tuple(map(float, each.split(","))) for each in points.split()]


def test_curves_are_drawn_where_their_values_are():
    curve = [0.2, 0.4, 0.5, 0.5, 0.6, 0.7, 0.7, 0.8, 0.8, 0.8]
    svg = charts.line_chart(
        [charts.Series("one", list(enumerate(curve, 1)))],
        description="d",
        x_label="x",
        y_label="y",
        log_x=True,
    )
    drawn = places(svg)
    left, right = drawn[0][0], drawn[-1][0]
    # The ends of the axis, as its lowest line has them.
    ((start, bottom, end),) = re.findall(
        r'<line x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)"[^>]*class="axis"', svg
    )
    assert (left, right) == (float(start), float(end))
    for k, (x, y) in enumerate(drawn, 1):
        along = math.log10(k)
        assert x == pytest.approx(left + along * (right - left), abs=0.06)
        # 0 at the bottom, 1 at the top.
        height = (float(bottom) - y) / (float(bottom) - 10)
        assert height == pytest.approx(curve[k - 1], abs=1e-3)
    assert re.findall(r'middle">(\d+)</text>', svg) == ["1", "2", "5", "10"]


def test_small_values_and_long_curves():
    points = [(n / 5000, 0.08 * n / 5000) for n in range(1, 5001)]
    svg = charts.line_chart(
        [charts.Series("a", points), charts.Series("<b>", [(0.5, 0.01)])],
        description="d",
        x_label="x",
        y_label="y",
    )
    # The first one alone is a line; of the second there is a point.
    drawn = places(svg)
    assert len(drawn) == 240 and svg.count("<circle") == 1
    top, bottom = 10, 270 - 42
    assert drawn[-1][1] == pytest.approx(bottom - 0.8 * (bottom - top), abs=0.1)
    assert ">0.1</text>" in svg and ">0.2</text>" in svg
    assert "&lt;b&gt;" in svg and "<b>" not in svg
    # Another colour and other dashes.
    styles = re.findall(r'style="stroke: var\((--c\d)\); [^"]*: ([^"]*)"', svg)
    assert styles[-2:] == [("--c0", "none"), ("--c1", "7 3")]


def test_a_corpus_of_one_block_has_one_k(tmp_path):
    lines = make_lines(4)
    for line in lines:
        line.update(num_ranked=1, answer_ranks={"realm": 1})
    found, content = write(tmp_path, lines)
    assert found.tables[1] == [["retriever", "@1"], ["realm", "1.000"]]
    assert "nan" not in content


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(InputError, match="report on no question"):
        report.write("x.html", title="", metrics={}, lines=[], parameters={})
    path = str(tmp_path / "none" / "report.html")
    with pytest.raises(InputError, match="report.html cannot be written"):
        report.write(
            path, title="", metrics={}, lines=make_lines(1), parameters={}
        )
    assert page.escape(page.Markup("<b>")) == "<b>"
    assert page.escape("<b>'\"") == "&lt;b&gt;&#x27;&quot;"
