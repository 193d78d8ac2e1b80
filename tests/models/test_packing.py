"""Packing on tensors, against lists and `text.packing`."""

import keras
import numpy as np
import pytest

from realm_tf.models import packing
from realm_tf.text import packing as numpy_packing

CLS = 2
SEP = 3


def test_trim_cuts_to_the_longest_row():
    joined = packing.join_bert(
        np.array([[2, 11, 3, 0, 0]]),
        np.array([[1, 1, 1, 0, 0]]),
        np.zeros((1, 4), int),
        np.array([1]),
        sep_id=SEP,
    )
    trimmed = packing.trim(joined)
    width = 5 if keras.backend.backend() == "tensorflow" else 10
    assert trimmed["token_ids"].shape[1] == width


def _in_a_graph(function):
    """Compiled, with as few static shapes as the backend allows."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    def signature(array):
        return tf.TensorSpec([None] * array.ndim, array.dtype)

    def call(*arrays):
        traced = tf.function(function, autograph=False)
        return traced.get_concrete_function(*map(signature, arrays))(*arrays)

    return call


@pytest.mark.parametrize("way", [lambda function: function, _in_a_graph])
@pytest.mark.parametrize("segment_ids", [(0, 1), (0, 0), (1, 0)])
@pytest.mark.parametrize("max_length", [4, 9, 20, 40])
def test_it_packs_as_numpy_does(way, segment_ids, max_length):
    """Titles and bodies of any length, eagerly and in a graph."""
    random = np.random.default_rng(max_length)
    rows = [
        [random.integers(4, 99, size).tolist() for size in sizes]
        for sizes in [*random.integers(0, 15, (20, 2)), (0, 14), (14, 0)]
    ]
    arguments = {"cls_id": CLS, "sep_id": SEP}

    def dense(texts):
        lengths = np.array(list(map(len, texts)), "int32")
        ids = np.zeros((len(texts), 15), "int32")
        for row, text in enumerate(texts):
            ids[row, : len(text)] = text
        return ids, lengths

    def pair(*inputs):
        return packing.join_block(
            *inputs, max_length=max_length, segment_ids=segment_ids, **arguments
        )

    def single(*inputs):
        return packing.pack_text(*inputs, **arguments)

    titles, bodies = zip(*rows, strict=True)
    for found, segments, longest in (
        (way(pair)(*dense(titles), *dense(bodies)), rows, max_length),
        (way(single)(*dense(titles)), [row[:1] for row in rows], 17),
    ):
        expected = numpy_packing.join_bert(
            segments,
            pad_id=0,
            max_length=longest,
            segment_ids=segment_ids if segments is rows else (0,),
            **arguments,
        )
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            array = np.asarray(found[name])
            assert array.dtype == value.dtype == "int32"
            # What is trimmed holds no wordpiece.
            width = array.shape[1]
            np.testing.assert_array_equal(array, value[:, :width])
            assert not value[:, width:].any()


def test_a_batch_of_no_rows():
    none = np.zeros((0, 5), "int32"), np.zeros(0, "int32")
    joined = packing.join_block(
        *none, *none, cls_id=CLS, sep_id=SEP, max_length=9
    )
    # Encoders look at the first column.
    assert all(v.shape[0] == 0 and v.shape[1] for v in joined.values())


def test_the_layer_joins_each_query_with_each_candidate():
    random = np.random.default_rng(1)
    query_ids = np.array([[2, 11, 12, 3], [2, 13, 3, 0]])
    block_ids = random.integers(20, 30, (2, 3, 5))
    lengths = np.array([[0, 5, 2], [0, 1, 4]])
    layer = packing.JoinBert(SEP, max_length=8)
    arguments = (query_ids, (query_ids > 0).astype(int), block_ids, lengths)
    joined = {k: np.asarray(v) for k, v in layer(*arguments).items()}
    for query, candidate in np.ndindex(2, 3):
        alone = packing.join_bert(
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
