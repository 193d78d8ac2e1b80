"""Packing and answer matching on tensors, against loops over lists."""

import numpy as np
import pytest

from realm_tf.models import joint

SEP = 3


def _join(query, body):
    return [*query, *body, SEP]


def test_join_bert_leaves_no_gap():
    queries = [[2, 11, 12, 3], [2, 13, 3]]
    bodies = [[21, 22], [23, 24, 25]]
    query_ids = np.array([[2, 11, 12, 3, 0], [2, 13, 3, 0, 0]])
    joined = joint.join_bert(
        query_ids,
        (query_ids > 0).astype(int),
        np.array([[21, 22, 0], [23, 24, 25]]),
        np.array([2, 3]),
        sep_id=SEP,
    )
    for row, (query, body) in enumerate(zip(queries, bodies, strict=True)):
        expected = _join(query, body)
        padding = [0] * (9 - len(expected))
        assert np.asarray(joined["token_ids"])[row].tolist() == (
            expected + padding
        )
        assert np.asarray(joined["segment_ids"])[row].tolist() == (
            [0] * len(query) + [1] * (len(body) + 1) + padding
        )
        assert np.asarray(joined["padding_mask"])[row].tolist() == (
            [1] * len(expected) + padding
        )
        assert np.asarray(joined["block_positions"])[row].tolist() == (
            [-1] * len(query)
            + list(range(len(body)))
            + [-1] * (9 - len(query) - len(body))
        )


def test_join_bert_with_an_empty_block_is_the_null_block():
    joined = joint.join_bert(
        np.array([[2, 11, 3]]),
        np.ones((1, 3), int),
        np.zeros((1, 4), int),
        np.array([0]),
        sep_id=SEP,
    )
    assert np.asarray(joined["token_ids"])[0].tolist() == [
        *(2, 11, 3, 3, 0, 0, 0, 0)
    ]
    assert not np.any(np.asarray(joined["block_positions"]) >= 0)


def test_trim_cuts_to_the_longest_row():
    joined = joint.join_bert(
        np.array([[2, 11, 3, 0, 0]]),
        np.array([[1, 1, 1, 0, 0]]),
        np.zeros((1, 4), int),
        np.array([1]),
        sep_id=SEP,
    )
    trimmed = joint.trim(joined)
    import keras

    width = 5 if keras.backend.backend() == "tensorflow" else 10
    assert trimmed["token_ids"].shape[1] == width


def test_allowed_spans_against_a_loop():
    positions = np.array([[-1, -1, 0, 1, 2, -1], [-1, 0, -1, -1, -1, -1]])
    allowed = np.asarray(joint.allowed_spans(positions, 3))
    for row in range(2):
        for start in range(6):
            for width in range(1, 4):
                inside = start + width <= 6 and all(
                    positions[row, p] >= 0 for p in range(start, start + width)
                )
                assert allowed[row, start, width - 1] == inside


def _match_loop(tokens, answers, continuation, max_width):
    found = np.zeros((len(tokens), max_width), bool)
    for start in range(len(tokens)):
        for answer in answers:
            limit = start + len(answer)
            if (
                answer
                and len(answer) <= max_width
                and tokens[start:limit] == answer
                and not (
                    limit < len(tokens)
                    and tokens[limit] >= 0
                    and continuation[tokens[limit]]
                )
            ):
                found[start, len(answer) - 1] = True
    return found


def test_match_answers_against_a_loop():
    random = np.random.default_rng(0)
    continuation = np.zeros(8, bool)
    continuation[[5, 6]] = True
    tokens = random.integers(0, 8, (20, 15))
    tokens[:, 12:] = -2
    answers = [
        [
            random.integers(0, 8, random.integers(0, 5)).tolist()
            for _ in range(3)
        ]
        for _ in range(20)
    ]
    padded = np.full((20, 3, 4), -1)
    for row, row_answers in enumerate(answers):
        for column, answer in enumerate(row_answers):
            padded[row, column, : len(answer)] = answer
    found = np.asarray(
        joint.match_answers(tokens, padded, continuation, max_span_width=3)
    )
    assert found.any()
    for row in range(20):
        np.testing.assert_array_equal(
            found[row],
            _match_loop(tokens[row].tolist(), answers[row], continuation, 3),
        )


@pytest.mark.parametrize("whole_words", [True, False])
def test_contains_answer_against_match_answers_and_a_loop(whole_words):
    random = np.random.default_rng(3)
    continuation = np.zeros(8, bool)
    continuation[[5, 6]] = True
    flags = continuation if whole_words else np.zeros(8, bool)
    # (b, n, l); some blocks are shorter.
    tokens = random.integers(0, 8, (4, 30, 12))
    tokens[:, ::3, 9:] = -2
    answers = np.full((4, 5, 6), -1)
    for row in answers.reshape(-1, 6):
        length = random.integers(0, 5)
        row[:length] = random.integers(0, 8, length)
    found = np.asarray(
        joint.contains_answer(
            tokens, answers, continuation if whole_words else None
        )
    )
    assert found.shape == (4, 30) and 0 < found.mean() < 1
    for row in range(4):
        lists = [[p for p in a if p >= 0] for a in answers[row].tolist()]
        for column in range(30):
            expected = _match_loop(
                tokens[row, column].tolist(), lists, flags, 6
            ).any()
            assert found[row, column] == expected


def test_contains_answer_inside_a_graph():
    """Of any number of answers, as a training step has it."""
    import keras

    tokens = np.array([[[1, 2, 3], [2, 3, -2], [3, 1, 2]]])
    answers = np.array([[[1, 2], [3, 3]]])
    expected = [[True, False, True]]
    continuation = np.array([False, False, False, True])

    def contains(tokens, answers):
        return joint.contains_answer(tokens, answers, continuation)

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        contains = tf.function(
            contains,
            input_signature=[
                tf.TensorSpec([None, None, None], tf.int64),
                tf.TensorSpec([None, None, 2], tf.int64),
            ],
        )
    else:
        import jax

        contains = jax.jit(contains)
    # "1 2" goes on in the first block: 3 continues its word.
    assert np.asarray(contains(tokens, answers)).tolist() == [
        [False, False, True]
    ]
    continuation = np.array([False] * 4)
    assert (
        np.asarray(
            joint.contains_answer(tokens, answers, continuation)
        ).tolist()
        == expected
    )


@pytest.mark.parametrize("num_rows", [1, 2, 5, 8, 11])
@pytest.mark.parametrize("num_groups", [1, 2, 4])
def test_rows_in_groups_are_those_of_all_at_once(num_rows, num_groups):
    """A running sum depends on a row's own wordpieces, and is 0 at padding."""
    import keras
    from keras import ops

    random = np.random.default_rng(num_rows)
    lengths = random.integers(1, 10, num_rows)
    mask = (np.arange(9)[None] < lengths[:, None]).astype("int32")
    token_ids = random.integers(1, 50, (num_rows, 9)) * mask
    widths = []

    def function(rows):
        widths.append(rows["token_ids"].shape)
        sums = ops.cumsum(rows["token_ids"], axis=1)
        sums = ops.cast(sums * rows["padding_mask"], "float32")
        return ops.stack([sums, -sums], axis=-1)

    joined = {
        "token_ids": ops.convert_to_tensor(token_ids, "int32"),
        "padding_mask": ops.convert_to_tensor(mask),
    }
    found = np.asarray(joint.in_length_groups(function, joined, num_groups))
    sums = np.cumsum(token_ids, axis=1) * mask
    np.testing.assert_array_equal(found, np.stack([sums, -sums], axis=-1))
    if keras.backend.backend() == "tensorflow" and num_groups > 1:
        assert len(widths) == num_groups
        # The shortest rows come first, and no group is wider than its own.
        ordered = np.sort(lengths)
        size = -(-num_rows // num_groups)
        for group, (rows, width) in enumerate(widths):
            last = min(group * size, num_rows - size) + size - 1
            assert (rows, width) == (size, ordered[last])


@pytest.mark.parametrize("num_rows", [0, 1, 4, 5, 9])
def test_groups_of_rows_give_what_all_rows_give(num_rows):
    from keras import ops

    random = np.random.default_rng(num_rows)
    lengths = random.permutation(np.arange(1, num_rows + 1))
    mask = (np.arange(num_rows + 2) < lengths[:, None]).astype("int32")
    token_ids = random.integers(1, 9, mask.shape).astype("int32") * mask
    joined = {"token_ids": token_ids, "padding_mask": mask}

    def function(rows):
        sums = ops.cumsum(rows["token_ids"], axis=1)
        sums = sums * rows["padding_mask"]
        return ops.stack([sums, -sums], axis=-1)

    found = joint.in_groups_of(
        function,
        {k: ops.convert_to_tensor(v) for k, v in joined.items()},
        4,
        shape=(2,),
        dtype="int32",
    )
    sums = np.cumsum(token_ids, axis=1) * mask
    np.testing.assert_array_equal(found, np.stack([sums, -sums], axis=-1))


def test_match_answers_wants_whole_words():
    continuation = np.array([False, False, False, True])
    us, us_a = [[1, 2]], [[1, 3]]
    for tokens, expected in ((us, True), (us_a, False)):
        found = joint.match_answers(
            np.array(tokens),
            np.array([[[1]]]),
            continuation,
            max_span_width=2,
        )
        assert bool(np.asarray(found)[0, 0, 0]) is expected


@pytest.mark.parametrize("length", [3, 4])
def test_answers_wider_than_a_span_are_never_found(length):
    tokens = np.array([[1, 2, 1, 2]])
    answer = np.array([[([1, 2] * 2)[:length]]])
    found = joint.match_answers(
        tokens, answer, np.zeros(3, bool), max_span_width=3
    )
    assert bool(np.asarray(found).any()) is (length == 3)


def test_the_layer_joins_each_query_with_each_candidate():
    import keras

    random = np.random.default_rng(1)
    query_ids = np.array([[2, 11, 12, 3], [2, 13, 3, 0]])
    block_ids = random.integers(20, 30, (2, 3, 5))
    lengths = np.array([[0, 5, 2], [0, 1, 4]])
    layer = joint.JoinBert(SEP, max_length=8)
    arguments = (query_ids, (query_ids > 0).astype(int), block_ids, lengths)
    joined = {k: np.asarray(v) for k, v in layer(*arguments).items()}
    for query, candidate in np.ndindex(2, 3):
        alone = joint.join_bert(
            query_ids[query : query + 1],
            arguments[1][query : query + 1],
            block_ids[query, candidate][None],
            lengths[query, candidate][None],
            sep_id=SEP,
            max_length=8,
        )
        for name, array in joined.items():
            assert array.shape == (6, 8)
            np.testing.assert_array_equal(
                array[3 * query + candidate], np.asarray(alone[name])[0]
            )
    symbolic = [
        keras.Input(array.shape[1:], dtype="int32") for array in arguments
    ]
    model = keras.Model(symbolic, layer(*symbolic))
    copy = keras.Model.from_config(model.get_config())
    outputs = copy([array.astype("int32") for array in arguments])
    for name, array in joined.items():
        np.testing.assert_array_equal(np.asarray(outputs[name]), array)
