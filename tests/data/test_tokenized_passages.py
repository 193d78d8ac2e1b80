import dataclasses
from collections import Counter

import numpy as np

from realm_tf.data.tokenized_passages import tokenize_passages

# Characters of one to four bytes before, inside and after the spans; an
# accent as a character of its own; a capital whose lower case is two.
HARD = (
    "<東京> was in the 👍🏽 <Café> of <São> İ.",
    "The cafe\u0301 <e\u0301te\u0301> was in <the 東京 city>, <👍>.",
    "Ünï <Ünïbara-Öb> the <river>.",
)


def _tokenize(passage, tokenizer):
    counts = Counter()
    (found,) = tokenize_passages([passage], tokenizer, counts)
    return found, counts


def _words(found, span, tokenizer):
    return [tokenizer.vocabulary[i] for i in found.token_ids[span[0] : span[1]]]


def test_byte_by_byte_the_same(mark_passage, letters):
    # The rule on bytes, over every wordpiece, as the original applies it.
    passage = mark_passage(*HARD)
    found, _ = _tokenize(passage, letters)
    expected = []
    first = 0
    for number, sentence in enumerate(passage.sentences()):
        pieces = letters.tokenize(sentence)
        begin = passage.sentence_byte_start[number]
        bounds = [
            (
                begin + len(sentence[:start].encode()),
                begin + len(sentence[:limit].encode()),
            )
            for start, limit in zip(pieces.starts, pieces.limits, strict=True)
        ]
        assert found.sentences[number].tolist() == [
            first,
            begin,
            passage.sentence_byte_limit[number],
        ]
        for start, limit in zip(
            passage.span_byte_start, passage.span_byte_limit, strict=True
        ):
            inside = [
                first + place
                for place, (a, b) in enumerate(bounds)
                if a >= start and b <= limit
            ]
            if inside:
                expected.append((inside, start, limit))
        first += len(pieces)
    assert first == len(found.token_ids)
    assert expected == [
        (list(range(a, b)), start, limit)
        for a, b, start, limit, _ in found.spans.tolist()
    ]


def test_pieces_that_stick_out_of_a_span_are_not_in_it(mark_passage, letters):
    # "cafe" is one wordpiece; "capy" and "##bara" are five.
    found, counts = _tokenize(
        mark_passage("the c<af>e of ca<pybar>a, ca<pybara>."), letters
    )
    assert [_words(found, span, letters) for span in found.spans] == [
        ["##p", "##y"],
        ["##p", "##y", "##bara"],
    ]
    assert counts["spans_without_wordpiece"] == 1
    assert counts["spans"] == 3


def test_what_is_left_out_is_counted(mark_passage, letters):
    passage = mark_passage("\u200d", "<The> river.", "The <city>.")
    # From the second sentence into the third, and in the space between.
    passage.span_byte_start += [12, 14]
    passage.span_byte_limit += [18, 17]
    passage.span_label += ["name", "name"]
    found, counts = _tokenize(passage, letters)
    assert counts == {
        "passages": 1,
        "sentences": 3,
        "sentences_without_wordpiece": 1,
        "spans": 4,
        "spans_outside_sentences": 2,
        "spans_without_wordpiece": 0,
    }
    assert found.sentences.tolist() == [[0, 4, 14], [3, 15, 24]]
    assert [_words(found, s, letters) for s in found.spans] == [
        ["the"],
        ["city"],
    ]


def test_passages_together_are_as_each_alone(mark_passage, letters):
    passages = [mark_passage(*HARD), mark_passage(), mark_passage(HARD[1])]
    together = tokenize_passages(passages, letters, Counter())
    for passage, found in zip(passages, together, strict=True):
        alone, _ = _tokenize(passage, letters)
        for field in dataclasses.fields(alone):
            np.testing.assert_array_equal(
                getattr(alone, field.name), getattr(found, field.name)
            )
    assert together[1].sentences.shape == (0, 3)
