import itertools
import random
import time

import labelled
import pytest

from realm_tf import quickstart
from realm_tf.text import sentences


def split(text, **kwargs):
    spans = sentences.split(text, **kwargs)
    return [text[start:limit] for start, limit in spans]


def test_hand_labelled_boundaries():
    """What the library finds today; a worse release will show."""
    num_found = num_wrong = num_labelled = 0
    for passage in labelled.read_passages(quickstart.SENTENCE_BOUNDARIES):
        text = " ".join(passage)
        limits = set(itertools.accumulate(len(s) + 1 for s in passage[:-1]))
        found = {limit + 1 for _, limit in sentences.split(text)[:-1]}
        num_labelled += len(limits)
        num_found += len(limits & found)
        num_wrong += len(found - limits)

    assert num_labelled == 348
    assert num_found >= 327
    assert num_wrong <= 1


def test_spans_are_code_points_without_the_space_around():
    text = "  Temüjin 🙂 ran.   He fell. \n\n  “New” one."

    assert sentences.split(text) == [(2, 16), (19, 27), (32, 42)]


def test_a_line_break_ends_a_sentence():
    assert split("The first line\nthe second\r\nthe third\u2028end") == [
        *("The first line", "the second", "the third", "end")
    ]


def test_languages():
    german = "Am 3. Oktober 1990 kam er. Er ging z. B. nach Bonn."

    assert split(german, language="de") == [
        "Am 3. Oktober 1990 kam er.",
        "Er ging z. B. nach Bonn.",
    ]
    assert split("私は行く。彼は来た。", language="ja") == [
        "私は行く。",
        "彼は来た。",
    ]
    assert split("यह है। वह था।", language="hi") == ["यह है।", "वह था।"]
    assert split("One. Two.", language="xx") == ["One.", "Two."]


@pytest.mark.parametrize(
    "expected",
    [
        ["She won the show Jeopardy! in the 1960s.", "Then she left."],
        ["all is small here.", "it goes on."],
        ["He sold it.", "eBay paid."],
        ["He left.", "(She had known.)", "Nobody came."],
        ["(He left.)", "She stayed."],
        ["See vol. 2 and Figs. 3 and 4.", "Ms. Ortega drew them."],
        ["It began at 9 a.m. EDT.", "It ended late."],
        ["He came at 9 a.m.", "Matt left at noon."],
        ["They met in the U.S.", "However they wrote letters."],
        ["It was in the U.S. Senate."],
        ["Run ./configure now.", "Use cd .. or -o.", "Is x!=y?", "No."],
        ["ASP.NET 4.5.2 is at http://x.example/a.B?c=d!e now.", "See .bashrc."],
        ["His degree was an M.B. Ch.B. from London."],
        ['He wrote: "It is so." .'],
        ["It lacks vitamin C.", "The cure is fruit."],
    ],
)
def test_english(expected):
    assert split(" ".join(expected)) == expected


@pytest.mark.parametrize(
    "pattern", ["(He said. ", '"He said. ', "!", '(."" ', "U.S.", " ", "etc. "]
)
def test_time_is_linear(pattern):
    # Some 0.1 s here; a minute and more, were it quadratic.
    started = time.process_time()
    sentences.split(pattern * (200_000 // len(pattern)))

    assert time.process_time() - started < 5


def test_a_long_quotation_is_split_inside():
    first = "She wrote: “The island lies far from the shore, " + "far " * 70
    first = first.strip() + "away."
    quote = f"{first} Nobody lives there.” Then she left."

    assert len(first) > sentences.LONG_SENTENCE
    assert split(quote) == [first, "Nobody lives there.”", "Then she left."]
    # An opening mark stays with its sentence.
    start = ("(A bracket never closed " + "goes on " * 40).strip() + " here."
    quoted = '"Quoted words," he said.'
    assert split(f"{start} {quoted}") == [start, quoted]


def test_empty():
    assert sentences.split("") == []
    assert sentences.split(" \n\t\n") == []


def test_nothing_is_lost_whatever_the_text():
    generator = random.Random(7)
    alphabet = "aBc .!?\"'()[]\n。é😀\u0301\u2028\x85中」「U.S.Dr.1.5"
    for _ in range(500):
        length = generator.randint(0, 400)
        text = "".join(generator.choices(alphabet, k=length))
        spans = sentences.split(text)
        limits = [0, *(limit for _, limit in spans)]

        for (start, limit), last in zip(spans, limits, strict=False):
            assert last <= start < limit
            assert not text[last:start].strip()
            assert not text[start].isspace()
            assert not text[limit - 1].isspace()
        assert not text[limits[-1] :].strip()
