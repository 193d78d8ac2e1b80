import gzip
import json

import pytest

from realm_tf.data.question_sets.forms import read_natural_questions
from realm_tf.data.question_sets.natural_questions import join_tokens
from realm_tf.data.question_sets.natural_questions import strip_tags
from realm_tf.errors import InputError

# Tokens as in the published data, with tags, an entity and a two-byte letter.
HTML = (
    "<p>Zoë's cat sat on <b>May&nbsp;5</b>, 1869 at AT&amp;T Park (old "
    "town).</p>"
)
_TOKENS = (
    "<p>|Zoë|'s|cat|sat|on|<b>|May&nbsp;5|</b>|,|1869|at|AT&amp;T|Park|(|old"
    "|town|)|.|</p>"
)
TOKENS = _TOKENS.split("|")


def _tokens():
    page, place, tokens = HTML.encode(), 0, []
    for token in TOKENS:
        start = page.index(token.encode(), place)
        place = start + len(token.encode())
        is_tag = token.startswith("<")
        shown = token if is_tag else strip_tags(token)
        tokens.append(
            {
                "token": shown,
                "start_byte": start,
                "end_byte": place,
                "html_token": is_tag,
            }
        )
    return tokens


def _span(start, limit):
    tokens = _tokens()
    return {
        "start_token": start,
        "end_token": limit,
        "start_byte": tokens[start]["start_byte"],
        "end_byte": tokens[limit - 1]["end_byte"],
    }


def _annotation(*spans, yes_no="NONE"):
    return {
        "short_answers": [_span(*span) for span in spans],
        "yes_no_answer": yes_no,
    }


def _example(*annotations, question="who sat"):
    return {
        "question_text": question,
        "document_html": HTML,
        "document_tokens": _tokens(),
        "annotations": list(annotations),
    }


def _simplified(example):
    """As the data set's authors simplify it."""
    tokens = [t["token"].replace(" ", "_") for t in example["document_tokens"]]
    annotations = json.loads(json.dumps(example["annotations"]))
    for annotation in annotations:
        for span in annotation["short_answers"]:
            del span["start_byte"], span["end_byte"]
    return {
        "question_text": example["question_text"],
        "document_text": " ".join(tokens),
        "annotations": annotations,
    }


def _read(tmp_path, *examples, **options):
    path = tmp_path / "nq.jsonl.gz"
    lines = "".join(f"{json.dumps(each)}\n" for each in examples)
    path.write_bytes(gzip.compress(lines.encode()))
    return list(read_natural_questions(str(path), **options))


def test_answers_are_what_the_page_says(tmp_path):
    spans = [(1, 3), (6, 11), (12, 14), (14, 18)]
    example = _example(*(_annotation(span) for span in spans))
    (entry,) = _read(tmp_path, example)
    # Entities are resolved, tags go, spaces are the page's.
    assert entry.answers == [
        "Zoë's",
        "May\u00a05, 1869",
        "AT&T Park",
        "(old town)",
    ]
    assert (entry.question, entry.dropped) == ("who sat", "")
    assert entry.answer_type == "string"
    # The same by English habits.
    (same,) = _read(tmp_path, _simplified(example))
    assert [a.replace("_", "\u00a0") for a in same.answers] == entry.answers


@pytest.mark.parametrize("form", [lambda e: e, _simplified])
def test_which_examples_are_open_questions(tmp_path, form):
    examples = [
        # Several spans are several answers.
        _example(_annotation((1, 2), (3, 4))),
        # 5 tokens with the tags, and 6.
        _example(_annotation((6, 11), (5, 11))),
        _example(_annotation((5, 11))),
        # One annotator of several is enough.
        _example(_annotation(), _annotation(yes_no="YES"), _annotation((3, 4))),
        _example(_annotation(), _annotation(yes_no="NO")),
        _example(_annotation((5, 11)), _annotation(yes_no="NO")),
        _example(_annotation(), _annotation()),
        _example(),
    ]
    entries = _read(tmp_path, *map(form, examples))
    assert [entry.dropped for entry in entries] == [
        *("", "", "long_answer", "", "yes_no", "long_answer"),
        *("no_answer", "no_answer"),
    ]
    assert entries[0].answers == ["Zoë", "cat"]
    assert len(entries[1].answers) == 1
    assert entries[3].answers == ["cat"]
    assert entries[4].place.endswith("nq.jsonl.gz, line 5")


def test_another_limit(tmp_path):
    example = _example(_annotation((5, 11), (3, 5)))
    (entry,) = _read(tmp_path, example, max_answer_tokens=6)
    assert entry.answers == ["on May\u00a05, 1869", "cat sat"]
    (entry,) = _read(tmp_path, example, max_answer_tokens=1)
    assert (entry.answers, entry.dropped) == ([], "long_answer")


@pytest.mark.parametrize(
    "tokens, expected",
    [
        ("T . J . Miller", "T. J. Miller"),
        ("Zachary John Quinto", "Zachary John Quinto"),
        ("the Jones ' house", "the Jones' house"),
        ("they 'll not", "they'll not"),
        ("did n't", "didn't"),
        ("`` Hey , Jude ''", '"Hey, Jude"'),
        ("$ 5 ( 10 % )", "$5 (10%)"),
        ("six geese a - laying", "six geese a-laying"),
        ("1914 – 1918", "1914 – 1918"),
        ('<Td_colspan="2"> x < y </Td>', "x < y"),
    ],
)
def test_tokens_without_their_spaces(tokens, expected):
    assert join_tokens(tokens.split(" ")) == expected


@pytest.mark.parametrize(
    "spoil",
    [
        lambda e: e.pop("question_text"),
        lambda e: e.pop("annotations"),
        lambda e: e["annotations"][0].pop("short_answers"),
        lambda e: e["annotations"][0]["short_answers"][0].pop("end_token"),
        lambda e: e.pop("document_html"),
        lambda e: [e.pop("document_html"), e.update(document_text="Zoë")],
        None,
    ],
)
def test_other_lines_are_refused(tmp_path, spoil):
    good, bad = _example(_annotation((1, 2))), _example(_annotation((1, 2)))
    if spoil:
        spoil(bad)
    else:
        bad = [17]
    with pytest.raises(InputError, match=r"nq.jsonl.gz, line 2 is not of"):
        _read(tmp_path, good, bad)
