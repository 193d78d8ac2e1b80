"""The page of an evaluation shows its numbers, and nothing is executed."""

import html_reader

from realm_tf.answering import bootstrap
from realm_tf.evaluation.reports import breakdowns
from realm_tf.evaluation.reports import report

NASTY = '</p><script>alert("x")</script><img src=x onerror=y>&amp;\x00\ud800'
# The same, as a browser shows it.
SHOWN = NASTY.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")


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
    return html_reader.read(path)


def test_the_page_shows_the_numbers(tmp_path, make_lines):
    lines = make_lines(120)
    metrics = bootstrap.summarize(
        [{"exact_match": e["exact_match"], "f1": e["f1"]} for e in lines]
    )
    found, _ = write(tmp_path, lines, metrics=metrics)
    headline, recall, words, lengths, bins, *rest = found.tables
    low, high = metrics["f1_interval"]
    assert headline[2][:3] == [
        "F1",
        f"{metrics['f1']:.3f}",
        f"{low:.3f} to {high:.3f}",
    ]
    assert headline[3][:2] == ["questions", "120"] and len(headline) == 4
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


def test_the_page_shows_examples_with_their_evidence(tmp_path, make_lines):
    lines = make_lines(60)
    found, _ = write(tmp_path, lines)
    right, wrong = report.choose_examples(lines)
    shown = [*right, *wrong]
    assert found.texts["mark"] == [line["prediction"] for line in shown]
    assert len(found.texts["article"]) == len(shown) == 50
    for line, text in zip(shown, found.texts["article"], strict=True):
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
    links = [each["href"] for each in found.attributes["a"]]
    assert links[-50:] == [line["url"] for line in shown]


def test_a_report_of_answers_without_blocks(tmp_path, make_lines):
    lines = make_lines(9)
    for line in lines:
        for name in ("answer_ranks", "num_ranked"):
            del line[name]
        line.update(block_id=-1, title="", text="", url="", start=0, limit=0)
        line.update(candidates=[], retrieved=[])
    lines[0].update(prediction="", confidence=0.0)
    found, content = write(tmp_path, lines)
    assert found.texts["mark"] == [] and len(found.texts["article"]) == 9
    assert content.count("Answered without a block.") == 9
    assert "(no answer)" in content and ">Recall<" not in content


def test_what_came_from_elsewhere_is_text(tmp_path, make_lines):
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
    links = [url for url in links if not url.startswith("#")]
    assert sorted(links) == sorted(
        [
            f'https://example.org/"{SHOWN}',
            *(line["url"] for line in lines[2:]),
        ]
    )
    assert all(f"{SHOWN} no. 3." in text for text in found.texts["article"])


def test_a_candidate_is_right_by_the_rules_of_its_language(
    tmp_path, make_lines
):
    lines = make_lines(1)
    for candidate in lines[0]["candidates"]:
        candidate["answer"] = "die Stadt"
    lines[0].update(answer=["Stadt"], answer_type="string")
    found, _ = write(tmp_path, lines)
    assert not any("right" in row for row in found.tables[-2])
    lines[0]["language"] = "de"
    found, _ = write(tmp_path, lines)
    assert all("right" in row for row in found.tables[-2][1:])


def test_a_corpus_of_one_block_has_one_k(tmp_path, make_lines):
    lines = make_lines(4)
    for line in lines:
        line.update(num_ranked=1, answer_ranks={"realm": 1})
    found, content = write(tmp_path, lines)
    assert found.tables[1] == [["retriever", "@1"], ["realm", "1.000"]]
    assert "nan" not in content
