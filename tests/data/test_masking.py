import collections

import numpy as np
import pytest
from annotated_passages import mark_passage

from realm_tf.data import masked_queries
from realm_tf.data.tokenized_passages import tokenize_passages
from realm_tf.errors import InputError

SENTENCES = (
    "<東京> was in the 👍🏽 <Café> of <São> the river.",
    "The city of <Capybara> was in the city of <e\u0301te\u0301>, <Öb>.",
    "The river was in the river, the city was in the city of the river.",
)


@pytest.fixture
def passage(letters):
    return _tokenized(mark_passage(*SENTENCES, block_id=3), letters)


def _tokenized(passage, letters):
    (found,) = tokenize_passages([passage], letters, collections.Counter())
    return found


def _text(ids, letters):
    pieces = " ".join(letters.vocabulary[piece] for piece in ids)
    return pieces.replace(" ##", "")


def _masker(letters, mode, **options):
    return masked_queries.Masker(letters.vocabulary, mode=mode, **options)


def _draws(masker, passage, number):
    return [
        masker.mask(passage, np.random.default_rng(seed))
        for seed in range(number)
    ]


def _chi_square(counts, expected):
    counts, expected = np.asarray(counts), np.asarray(expected)
    return float(np.sum((counts - expected) ** 2 / expected))


# Chi-square at 0.001 by degrees of freedom (any table).
CRITICAL = {2: 13.82, 4: 18.47, 6: 22.46, 9: 27.88, 11: 31.26, 14: 36.12}


@pytest.mark.parametrize("mode", masked_queries.MODES)
@pytest.mark.parametrize("max_query_length", [12, 96])
def test_an_example_is_masked(passage, letters, mode, max_query_length):
    passage.token_ids.flags.writeable = False
    masker = _masker(letters, mode, max_query_length=max_query_length)
    sentences = [
        letters.tokenize(sentence.replace("<", "").replace(">", "")).ids
        for sentence in SENTENCES
    ]
    seen = set()
    for example in _draws(masker, passage, 200):
        restored = example.token_ids.copy()
        assert (restored[example.mask_positions] == letters.mask_id).all()
        restored[example.mask_positions] = example.mask_ids
        assert restored[0] == letters.cls_id
        assert restored[-1] == letters.sep_id
        query = example.sentence_ids.tolist()
        assert restored[1:-1].tolist() == query
        (number,) = [
            number
            for number, ids in enumerate(sentences)
            if any(
                query == ids[first : first + max_query_length - 2]
                for first in range(max(1, len(ids) - max_query_length + 3))
            )
        ]
        # Nothing else is masked, and no place twice.
        num_masked = np.sum(example.token_ids == letters.mask_id)
        assert num_masked == len(example.mask_positions) >= 1
        assert (np.diff(example.mask_positions) > 0).all()
        assert example.block_id == 3
        assert example.token_ids.dtype == example.mask_ids.dtype == "int32"
        seen.add(number)
    # The third sentence has no salient span.
    assert seen == ({0, 1} if mode == "salient" else {0, 1, 2})


def test_salient_draws_whole_spans_uniformly(passage, letters):
    # Unevenly over the sentences; each span is as likely.
    draws = _draws(_masker(letters, "salient", max_masked=3), passage, 3000)
    counts = collections.Counter(_text(e.mask_ids, letters) for e in draws)
    # "Capybara" is five wordpieces: not eligible here.
    assert set(counts) == {"東 京", "cafe", "sao", "ete", "ob"}
    assert _chi_square(list(counts.values()), [600] * 5) < CRITICAL[4]
    assert all((np.diff(e.mask_positions) == 1).all() for e in draws)


@pytest.mark.parametrize("label", ["number", "CARDINAL"])
def test_numbers_are_masked_by_choice_alone(letters, label):
    marked = mark_passage("the <1869> and the <Capybara> in the <city>")
    marked.span_label = [label, "name", "date"]
    passage = _tokenized(marked, letters)
    assert passage.spans[2::3].tolist() == [1, 0, 0]
    for options, expected in (
        ({}, {"capybara", "city"}),
        ({"mask_numbers": True}, {"1869", "capybara", "city"}),
        ({"mask_numbers": True, "max_masked": 4}, {"1869", "city"}),
    ):
        draws = _draws(_masker(letters, "salient", **options), passage, 40)
        assert {_text(e.mask_ids, letters) for e in draws} == expected


def test_windows_hold_the_span_and_are_drawn_uniformly(letters):
    words = [f"{a}{b}" for a in "abcdef" for b in "123456789"]  # 108 pieces
    sentence = " ".join([*words[:20], "<river>", *words[20:]])
    passage = _tokenized(mark_passage(sentence), letters)
    assert len(passage.token_ids) == 109
    draws = _draws(_masker(letters, "salient"), passage, 3000)
    # 94 of 109 wordpieces: first of the window 0 to 15, the span is number
    # 40, so that its place in the window is 25 to 40.
    counts = collections.Counter(
        int(example.mask_positions[0]) - 1 for example in draws
    )
    assert sorted(counts) == list(range(25, 41))
    assert _chi_square(list(counts.values()), [3000 / 16] * 16) < 37.70
    assert all(len(example.token_ids) == 96 for example in draws)
    # Whole, at the very beginning and end, too.
    for place in (0, len(words)):
        sentence = " ".join([*words[:place], "<capybara>", *words[place:]])
        passage = _tokenized(mark_passage(sentence), letters)
        for example in _draws(_masker(letters, "salient"), passage, 20):
            assert _text(example.mask_ids, letters) == "capybara"


def test_sentences_are_drawn_uniformly_in_the_ablations(passage, letters):
    for mode in ("uniform", "random_span"):
        draws = _draws(_masker(letters, mode), passage, 3000)
        counts = collections.Counter(tuple(e.sentence_ids) for e in draws)
        assert _chi_square(list(counts.values()), [1000] * 3) < CRITICAL[2]


def _words_of_one_piece(number):
    return " ".join(["river"] * number)


@pytest.mark.parametrize("mode", ["uniform", "random_span"])
@pytest.mark.parametrize(
    ("length", "masked"),
    [(1, 1), (2, 1), (9, 1), (11, 2), (20, 3), (40, 6), (65, 10), (94, 10)],
)
def test_fifteen_percent_but_one_to_ten(letters, mode, length, masked):
    passage = _tokenized(mark_passage(_words_of_one_piece(length)), letters)
    for example in _draws(_masker(letters, mode), passage, 30):
        assert len(example.mask_ids) == masked


def test_uniform_masks_each_wordpiece_as_often(letters):
    passage = _tokenized(mark_passage(_words_of_one_piece(15)), letters)
    masker = _masker(letters, "uniform", mask_rate=0.2)
    counts = np.zeros(15)
    pairs = 0
    for example in _draws(masker, passage, 4000):
        np.add.at(counts, example.mask_positions - 1, 1)
        pairs += np.sum(np.diff(example.mask_positions) == 1)
    # Without replacement: the variance is (1 - 3/15) of a multinomial's.
    assert _chi_square(counts, [800] * 15) / 0.8 < CRITICAL[14] * 15 / 14
    # Neighbours as often as chance has them: 14 pairs, P = 3 * 2 / (15 * 14).
    assert pairs == pytest.approx(4000 * 14 * 6 / 210, rel=0.05)


def test_uniform_keeps_a_share_on_demand(letters):
    passage = _tokenized(mark_passage(_words_of_one_piece(94)), letters)
    masker = _masker(letters, "uniform", mask_rate=0.1, keep_rate=0.4)
    draws = _draws(masker, passage, 1000)
    river = letters.tokenize("river").ids[0]
    put = np.concatenate([e.token_ids[e.mask_positions] for e in draws])
    counts = [np.sum(put == letters.mask_id), np.sum(put == river)]
    assert sum(counts) == len(put) == 9000
    # Three standard deviations.
    assert abs(counts[1] / 9000 - 0.4) < 3 * (0.24 / 9000) ** 0.5
    assert all((example.mask_ids == river).all() for example in draws)


def test_span_lengths_are_geometric():
    generator = np.random.default_rng(0)
    lengths = [
        masked_queries.draw_span_length(generator) for _ in range(20_000)
    ]
    weights = np.array([0.8**k * 0.2 for k in range(10)])
    expected = 20_000 * weights / weights.sum()
    counts = np.bincount(lengths, minlength=11)[1:]
    assert _chi_square(counts, expected) < CRITICAL[9]
    # Joshi et al., 2020, section 3.1, state 3.8.
    assert np.mean(lengths) == pytest.approx(3.8, abs=0.05)


def test_random_spans_are_whole_words(letters):
    sentence = "capybara in abc river of abcd, the " * 3
    passage = _tokenized(mark_passage(sentence.strip()), letters)
    masker = _masker(letters, "random_span")
    first_pieces = [
        not letters.vocabulary[i].startswith("##") for i in passage.token_ids
    ]
    word_of = np.cumsum(first_pieces)
    runs = set()
    for example in _draws(masker, passage, 300):
        places = set((example.mask_positions - 1).tolist())
        for place in places:
            word = np.flatnonzero(word_of == word_of[place])
            assert places.issuperset(word.tolist())
        assert 1 <= len(places) <= 8  # 15 % of 51
        breaks = np.flatnonzero(np.diff(example.mask_positions) > 1) + 1
        for run in np.split(example.mask_ids, breaks):
            runs.add(_text(run, letters))
    # Every word of up to eight wordpieces has its turn; texts as words.
    assert {"capybara", "abc", "abcd", "abcd ,", "in abc"} <= runs


def test_a_word_longer_than_the_budget_is_masked_in_part(letters):
    passage = _tokenized(mark_passage("abcdefgh bcdefghi"), letters)
    draws = _draws(_masker(letters, "random_span"), passage, 50)
    places = {tuple(example.mask_positions.tolist()) for example in draws}
    assert places == {(1, 2), (9, 10)}  # 15 % of 16 is 2.


def test_more_masks_than_a_query_holds_are_refused(letters):
    with pytest.raises(InputError, match="`max_masked` must fit"):
        _masker(letters, "salient", max_query_length=11)
