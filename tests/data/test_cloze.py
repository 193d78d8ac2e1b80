import re

import pytest
from annotated_passages import passage
from annotated_passages import write_annotated

from realm_tf.artifacts import question_files
from realm_tf.artifacts.objects import Passages
from realm_tf.artifacts.objects import QuestionSet
from realm_tf.cli import main
from realm_tf.data import cloze
from realm_tf.retrieval.bm25 import Bm25

CANAL = (
    "Suez Canal",
    "It was opened by [Ismail|name] on [17 November 1869|date] after ten years "
    "of work.",
    "It has no locks because both seas are equally high there.",
)
KHEDIVE = (
    "Ismail",
    "On [17 November 1869|date] the khedive [Ismail|name] received guests from "
    "all over [Europe|name] who had come for the opening of the canal.",
)
RIVER = (
    "Nile",
    "The [Nile|name] flows north through eleven countries of [Africa|name].",
    "It floods.",
)


def marked(title, *sentences):
    return passage(*sentences, title=title)


def questions(*texts, num_questions=100, seed=0):
    passages = [marked(*each) for each in texts]
    return list(
        cloze.make_cloze_questions(
            passages,
            make_retriever=Bm25,
            num_questions=num_questions,
            seed=seed,
        )
    )


def test_a_span_is_asked_for_where_another_passage_holds_it():
    found = questions(CANAL, KHEDIVE, RIVER)
    texts = {each[0]: marked(*each).text for each in (CANAL, KHEDIVE)}
    assert sorted(each["answer"][0] for each in found) == [
        *["17 November 1869"] * 2,
        # Not that of the canal: "on 17 November" follows it in both.
        "Ismail",
    ]
    for each in found:
        assert set(each) == {"question", "answer", "evidence"}
        (answer,) = each["answer"]
        assert answer not in each["question"]
        text = texts[each["evidence"]["title"]]
        assert answer in each["evidence"]["sentence"]
        assert each["evidence"]["sentence"] in text
        # Not the sentence that the question was made of.
        words = each["question"].split(": ")[-1].split()
        assert not all(word in text for word in words)


def test_the_form_of_a_question():
    by_title = {
        (each["evidence"]["title"], each["answer"][0]): each["question"]
        for each in questions(CANAL, KHEDIVE, RIVER)
    }
    # A window of the sentence, and the title where the sentence lacks it.
    asked = by_title["Ismail", "17 November 1869"]
    title, window = asked.split(": ")
    assert title == "Suez Canal"
    whole = "It was opened by Ismail on when after ten years of work."
    assert window in whole and " when" in f" {window}"
    asked = by_title["Suez Canal", "Ismail"]
    # Its own title is the answer.
    assert re.search(r"khedive (what|who|which) received", asked)
    assert 8 <= len(asked.split()) <= 21


def test_copies_are_no_evidence():
    copy = ("Ismail's canal", *CANAL[1:])
    assert not questions(CANAL, copy)


def test_one_answer_is_not_asked_for_again_and_again():
    gifts = [
        *("road", "well", "lamp", "mill", "dam", "quay", "tower", "bridge"),
        *("market", "garden"),
    ]
    towns = [
        (
            f"Town of the {gift}",
            f"It stood here beside the {gift} when [Ismail|name] {other} and "
            f"all had come to the {other}.",
        )
        for gift, other in zip(gifts, gifts[1:] + gifts[:1], strict=True)
    ]
    found = questions(*towns)
    assert [each["answer"] for each in found] == [["Ismail"]] * 6


def test_the_draw():
    many = [CANAL, KHEDIVE, RIVER]
    assert questions(*many) == questions(*many)
    assert questions(*many, num_questions=2) == questions(*many)[:2]
    assert any(
        questions(*many, seed=n) != questions(*many) for n in range(1, 5)
    )


def test_bytes_are_not_characters():
    found = questions(
        (
            "Zoë",
            "In Zürich the painter [Zoë Ä|per] showed the tower for years.",
        ),
        (
            "Zürich",
            "Many came to the tower that [Zoë Ä|per] had shown in Zürich.",
        ),
    )
    assert [each["answer"] for each in found] == [["Zoë Ä"]] * 2
    assert all(" who " in each["question"] for each in found)


@pytest.mark.parametrize("label", ["ORG", "MISC"])
def test_who_asks_for_persons_alone(label):
    passages = (
        ("Etna", f"In the year the [Nile Club|{label}] rose to great fame."),
        ("Nile", f"Many of them came to the [Nile Club|{label}] from afar."),
    )
    asked = [each for n in range(8) for each in questions(*passages, seed=n)]
    words = {word for each in asked for word in each["question"].split()}
    assert {"what", "which"} <= words
    assert "who" not in words


def test_the_command(tmp_path, capsys):
    corpus, output = str(tmp_path / "annotated"), str(tmp_path / "cloze")
    passages = [marked(*each) for each in (CANAL, KHEDIVE, RIVER)]
    write_annotated(corpus, passages)
    arguments = ["questions", "--from", "cloze", "--corpus", corpus]
    arguments += ["--output", output]
    assert main([*arguments, "--num-questions", "3"]) == 0
    assert "questions.jsonl: questions 3" in capsys.readouterr().out
    made = QuestionSet(output)
    found = question_files.read_questions(made.file("questions.jsonl"))
    expected = questions(CANAL, KHEDIVE, RIVER)
    assert [each.line for each in found] == expected
    assert made.parents == {"corpus": Passages(corpus).fingerprint}


def test_passages_that_answer_nothing(tmp_path, capsys):
    corpus = write_annotated(
        tmp_path / "annotated", [marked(*CANAL), marked(*RIVER)]
    )
    arguments = ["questions", "--from", "cloze", "--output", "cloze"]
    assert main(arguments) == 2
    assert "--from cloze needs --corpus" in capsys.readouterr().err
    assert main([*arguments, "--corpus", corpus]) == 2
    assert "makes no question" in capsys.readouterr().err
