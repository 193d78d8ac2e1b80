"""The page of an evaluation shows its numbers, and nothing is executed."""

import math
import random

import html_reader
import pytest

from realm_tf.answering import bootstrap
from realm_tf.artifacts.question_files import Question
from realm_tf.evaluation import report

NASTY = '</p><script>alert("x")</script><img src=x onerror=y>&amp;\x00\ud800'
# The same, as a browser shows it.
SHOWN = NASTY.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")


_WORDS = ("Who", "What", "When", "Where", "Which", "How many", "How", "Name")


def make_lines(number):
    rng = random.Random(0)
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
                "question": f"{rng.choice(_WORDS)} is number {row}?",
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
                "answer_rank": rng.choice([None, *range(1, 31)]),
                "num_ranked": 30,
            }
        )
    return lines


def write(tmp_path, lines, **changed):
    path = str(tmp_path / "report.html")
    rows = [{"exact_match": line["exact_match"]} for line in lines]
    arguments = {
        "title": "Ours",
        "metrics": bootstrap.summarize(rows),
        "parameters": {"retriever": "realm", "num_reader_blocks": 5},
    }
    asked = [
        Question(
            line["question"],
            line["answer"],
            line.get("answer_type", "string"),
            line,
        )
        for line in lines
    ]
    report.write(path, asked, lines, **{**arguments, **changed})
    return html_reader.read(path)


def test_the_page_shows_the_numbers(tmp_path):
    lines = make_lines(120)
    metrics = bootstrap.summarize(
        [{"exact_match": e["exact_match"], "f1": e["f1"]} for e in lines]
    )
    found, _ = write(tmp_path, lines, metrics=metrics)
    headline, words, *rest = found.tables
    low, high = metrics["f1_interval"]
    assert headline[2] == [
        "F1",
        f"{metrics['f1']:.3f}",
        f"{low:.3f} to {high:.3f}",
    ]
    assert headline[3][:2] == ["questions", "120"] and len(headline) == 4
    assert "answer recall@k" in found.texts["figure"][0]
    assert [row[0] for row in words[1:]] == [*report.QUESTION_WORDS]
    assert sum(int(row[1]) for row in words[1:]) == 120
    # One of candidates an example, and the parameters.
    assert len(rest) == len(report.choose_examples(lines)) + 1
    assert rest[-1][1:] == [["retriever", "realm"], ["num reader blocks", "5"]]


def test_the_page_shows_examples_with_their_evidence(tmp_path):
    lines = make_lines(80)
    found, _ = write(tmp_path, lines)
    shown = [lines[row] for row in report.choose_examples(lines)]
    assert found.texts["mark"] == [line["prediction"] for line in shown]
    assert len(found.texts["article"]) == len(shown)
    verdicts = [bool(line["exact_match"]) for line in shown]
    assert 12 < sum(verdicts) <= 25 and 12 < verdicts.count(False) <= 25
    assert verdicts == sorted(verdicts, reverse=True)
    for line, text in zip(shown, found.texts["article"], strict=True):
        assert line["question"] in text and line["text"] in text
        assert f"Accepted: {line['answer'][0]}\n" in text
        verdict = "Right" if line["exact_match"] else "Wrong"
        assert f"{verdict}: {line['prediction']} confidence" in text
        assert f"of 30: {line['answer_rank'] or 'none'}." in text
    tables = found.tables[-len(shown) - 1 : -1]
    for line, table in zip(shown, tables, strict=True):
        block = line["block_id"]
        is_right = bool(line["exact_match"])
        assert table[1:] == [
            [
                *("0.7500", f"{block} (above)", line["prediction"]),
                *("right" if is_right else "", "1.00"),
            ],
            [
                *("0.2500", f"{block + 1}", "other"),
                *("" if is_right else "right", "0.00"),
            ],
        ]
    links = [each["href"] for each in found.attributes["a"]]
    assert links == [line["url"] for line in shown]


def test_a_report_of_answers_without_blocks(tmp_path):
    lines = make_lines(9)
    for line in lines:
        for name in ("answer_rank", "num_ranked"):
            del line[name]
        line.update(block_id=-1, title="", text="", url="", start=0, limit=0)
        line.update(candidates=[], retrieved=[])
    lines[0].update(prediction="", confidence=0.0)
    found, content = write(tmp_path, lines)
    assert found.texts["mark"] == [] and len(found.texts["article"]) == 9
    assert content.count("Answered without a block.") == 9
    assert "(no answer)" in content and ">Recall<" not in content


def test_what_came_from_elsewhere_is_text(tmp_path):
    lines = make_lines(6)
    for line in lines:
        line.update(
            question=NASTY,
            answer_type="regex",
            prediction=NASTY,
            title=NASTY,
            text=f"b {NASTY} c {NASTY}",
            start=2,
            limit=2 + len(NASTY),
        )
        for candidate in line["candidates"]:
            candidate["answer"] = NASTY
    lines[0]["url"] = "javascript:alert(1)"
    lines[1]["url"] = f'https://example.org/"{NASTY}'
    metrics = {NASTY: 0.5}
    found, content = write(
        tmp_path,
        lines,
        title=NASTY,
        metrics=metrics,
        parameters={NASTY: [NASTY]},
    )
    assert found.texts["h1"] == [SHOWN]
    assert found.texts["mark"] == [SHOWN] * 6
    assert len(found.texts["article"]) == 6
    links = [each["href"] for each in found.attributes["a"]]
    assert sorted(links) == sorted(
        [f'https://example.org/"{SHOWN}', *(line["url"] for line in lines[2:])]
    )


def test_the_recall_curve_by_counting():
    lines = make_lines(57)
    # An empty question, and one without a ranking.
    lines[4].update(answer_rank=None, num_ranked=0)
    del lines[5]["answer_rank"], lines[5]["num_ranked"]
    ranks = [line["answer_rank"] for line in lines if "answer_rank" in line]
    assert report.recall_curve(lines) == [
        len([1 for rank in ranks if rank and rank <= k]) / 56
        for k in range(1, 31)
    ]
    assert report.recall_curve([{"question": "Who?"}]) == []


@pytest.mark.parametrize(
    "question, word",
    [
        ("who wrote it", "who"),
        ("To WHOM was it given?", "who"),
        ("What's the river?", "what"),
        ("When was it where?", "when"),
        ("how   Many", "how many"),
        ("So, how?", "how"),
        ("the whole somewhat", "other"),
        ("", "other"),
    ],
)
def test_question_words(question, word):
    assert report.question_word(question) == word


def test_groups_by_counting():
    lines = make_lines(83)
    found = report.by_question_word(lines)
    # "Name" is no question word.
    assert list(found) == [*report.QUESTION_WORDS]
    for word, group in found.items():
        prefix = "name is" if word == "other" else f"{word} is"
        values = [
            line["exact_match"]
            for line in lines
            if line["question"].lower().startswith(prefix)
        ]
        count = len(values)
        assert group["questions"] == count
        share = sum(values) / count
        assert group["exact_match"] == pytest.approx(share)
        # Where the score test neither rejects nor holds.
        for end in group["interval"]:
            error = math.sqrt(end * (1 - end) / count)
            assert abs(share - end) == pytest.approx(1.959964 * error, abs=1e-5)
    assert sum(group["questions"] for group in found.values()) == 83
