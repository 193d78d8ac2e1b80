import io

import pytest
from rich.console import Console

from realm_tf.answering.answer import Alternative
from realm_tf.answering.answer import Answer
from realm_tf.answering.answer import Candidate
from realm_tf.serving.rendering import AnswerView

FRANKENSTEIN = (
    "Frankenstein is a novel. It was written by Mary Shelley “in” 1818. "
    "It came out in London."
)


def make_answer(text=FRANKENSTEIN, span="Mary Shelley", **changes):
    start = text.index(span)
    values = {
        "answer": span,
        "score": 12.5,
        "confidence": 0.75,
        "block_id": 7,
        "title": "Frankenstein",
        "text": text,
        "url": "https://example.org/frankenstein",
        "start": start,
        "limit": start + len(span),
        "nbest": (Alternative(span, 12.5),),
        "candidates": (
            Candidate(7, "Frankenstein", text, span, -0.5),
            Candidate(2, "London", "London is large.", "London", -1.0),
        ),
        "answer_sentence": "It was written by Mary Shelley “in” 1818."
        if text == FRANKENSTEIN
        else text,
    }
    return Answer(**{**values, **changes})


def printed(answer, *, terminal, evidence_license=None):
    console = Console(
        file=io.StringIO(),
        force_terminal=terminal,
        width=60,
        color_system="standard" if terminal else None,
    )
    view = AnswerView(answer, "who?", evidence_license=evidence_license)
    console.print(view, soft_wrap=not terminal)
    return console.file.getvalue()


def test_everything_is_printed():
    assert printed(make_answer(), terminal=False) == (
        "Q: who?\n"
        "A: Mary Shelley   (score 12.50, confidence 0.75)\n"
        "   Frankenstein (block 7)  https://example.org/frankenstein\n"
        "   It was written by [[Mary Shelley]] “in” 1818.\n"
        "   p(z|x)  block read, its share, and its own answer\n"
        "   0.6065  Frankenstein (block 7): Mary Shelley\n"
        "   0.3679  London (block 2): London\n"
    )


@pytest.mark.parametrize(
    "changes, text",
    [
        (
            {"fields": "date=2024; tags=hr"},
            "/frankenstein\n   date=2024; tags=hr\n   It was",
        ),
        (
            {"answered": False},
            "\nA: not sure; the likeliest is Mary Shelley   (score 12.50, ",
        ),
        # Markup and control characters are shown, not obeyed.
        (
            {"text": "[red]A\x1b[2J Mary Shelley[/red]\n\u202esat\u2069."},
            r"[red]A\x1b[2J [[Mary Shelley]][/red] \u202esat\u2069.",
        ),
        ({"title": "[b]\x07\x9b"}, r"[b]\x07\x9b (block 7)"),
        # Of several equal sentences the one that holds the answer.
        (
            {
                "text": "Mary Shelley sat. She sat. She sat.",
                "answer_sentence": "She sat.",
                "span": "She",
                "start": 27,
                "limit": 30,
            },
            "   [[She]] sat.\n",
        ),
        # An earlier export has no sentences.
        ({"answer_sentence": ""}, "   Frankenstein is a novel. It was"),
        # The sentence is the answer itself, and not shown twice.
        (
            {"span": "It came out in London.", "is_sentence": True},
            "frankenstein\n   p(z|x)",
        ),
        # Long sentences are cut around the answer.
        (
            {"text": "a" * 500 + " Mary Shelley " + "b" * 500},
            f"   …{'a' * 199} [[Mary Shelley]] {'b' * 199}…\n",
        ),
    ],
)
def test_what_an_answer_prints(changes, text):
    printed_text = printed(make_answer(**changes), terminal=False)
    assert text in printed_text
    assert "\x1b" not in printed_text


def test_the_terms_of_the_evidence_are_printed():
    text = printed(
        make_answer(), terminal=False, evidence_license="CC BY-SA\x1b 4.0"
    )
    lines = text.split("\n")
    assert lines[3:5] == [
        "   It was written by [[Mary Shelley]] “in” 1818.",
        r"   Evidence: CC BY-SA\x1b 4.0",
    ]
    # Where there is no evidence there are no terms.
    empty = make_answer(answer="", block_id=-1, text="", span="")
    text = printed(empty, terminal=False, evidence_license="CC0")
    assert "Evidence" not in text


def test_terminals_show_bold():
    text = printed(make_answer(), terminal=True)
    assert "A: \x1b[1mMary Shelley\x1b[0m " in text
    assert "\x1b[1m[[Mary Shelley]]\x1b[0m “in” 1818." in text


def test_wrapped_lines_stay_indented():
    long = make_answer(text="word " * 30 + "cat", span="cat")
    lines = printed(long, terminal=True).splitlines()
    assert lines[3].rstrip() == "   " + " ".join(["word"] * 11)
    assert lines[4].startswith("   word word")
    assert max(map(len, lines[3:5])) <= 60


def test_no_answer():
    empty = make_answer(
        answer="", block_id=-1, text="", span="", candidates=(), url=""
    )
    assert printed(empty, terminal=False) == "Q: who?\nA: (no answer)\n"
