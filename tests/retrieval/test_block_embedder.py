import eight_devices
import numpy as np
import pytest
from one_row import one_row

from realm_tf.models import model_directory
from realm_tf.retrieval import block_embedder
from realm_tf.retrieval.block_embedder import BlockEmbedder


@pytest.fixture(scope="module")
def loaded(model_dir):
    return model_directory.load(model_dir)


def _direct(loaded, title, body, *, max_length, segment_ids=(0, 1)):
    """The embedding of one block, packed by hand, without any padding."""
    tokenizer = loaded.tokenizer
    title = title[: max_length - 3]
    body = body[: max_length - 3 - len(title)]
    token_ids = [
        *(tokenizer.cls_id, *title, tokenizer.sep_id),
        *(*body, tokenizer.sep_id),
    ]
    segments = [segment_ids[0]] * (len(title) + 2)
    segments += [segment_ids[1]] * (len(body) + 1)
    inputs = one_row(token_ids, segments)
    return np.asarray(loaded.model.block_embedder(inputs))[0]


def _rows(num_rows, *, longest, seed=0):
    random = np.random.default_rng(seed)
    return [
        random.integers(5, 49, random.integers(0, longest + 1)).tolist()
        for _ in range(num_rows)
    ]


@pytest.mark.parametrize("max_length", [8, 16, 20, 64])
def test_against_one_by_one_without_padding(loaded, max_length):
    # The last title is longer than some blocks may be.
    titles = [*_rows(6, longest=4), list(range(5, 35))]
    bodies = [*_rows(6, longest=30, seed=1), [40, 41]]
    embedder = BlockEmbedder(loaded, max_length=max_length)
    assert embedder.embedding_dim == 8
    embeddings, mask = embedder.embed_ids(titles, bodies)
    assert embeddings.dtype == "float32"
    expected = [
        _direct(loaded, title, body, max_length=max_length)
        for title, body in zip(titles, bodies, strict=True)
    ]
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)
    lengths = [
        min(len(title) + len(body) + 3, max_length)
        for title, body in zip(titles, bodies, strict=True)
    ]
    assert mask.sum(axis=1).tolist() == lengths
    # Few shapes: multiples of 8, or the most there can be.
    assert mask.shape[1] in (*range(8, 56, 8), max_length)
    assert mask.shape[1] - max(lengths) < 8


def test_the_model_says_which_segments(loaded):
    single = model_directory.LoadedModel(
        loaded.model, loaded.tokenizer, block_segment_ids=(0, 0)
    )
    title, body = [37], [12, 10, 38]
    (embedding,), _ = BlockEmbedder(single, max_length=20).embed_ids(
        [title], [body]
    )
    expected = _direct(loaded, title, body, max_length=20, segment_ids=(0, 0))
    np.testing.assert_allclose(embedding, expected, atol=1e-5)
    other = _direct(loaded, title, body, max_length=20)
    assert np.abs(embedding - other).max() > 1e-3


def _reader(titles, bodies):
    return lambda places: (
        [titles[place] for place in places],
        [bodies[place] for place in places],
    )


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_many_come_in_their_order(loaded, batch_size):
    titles, bodies = _rows(23, longest=4), _rows(23, longest=30, seed=1)
    lengths = [len(t) + len(b) for t, b in zip(titles, bodies, strict=True)]
    embedder = BlockEmbedder(loaded, max_length=64)
    done = []
    found = embedder.embed_all(
        lengths,
        _reader(titles, bodies),
        batch_size=batch_size,
        after_batch=done.append,
    )
    expected, _ = embedder.embed_ids(titles, bodies)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert len(done) == -(-23 // batch_size)
    assert done == sorted(done)
    assert done[-1] == 23


def test_an_error_ends_it(loaded):
    titles, bodies = _rows(200, longest=4), _rows(200, longest=9)
    done = []

    def after_batch(number):
        done.append(number)
        if len(done) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BlockEmbedder(loaded, max_length=64).embed_all(
            [*range(200)],
            _reader(titles, bodies),
            batch_size=1,
            after_batch=after_batch,
        )
    # The other thread may begin some until it is told.
    assert len(done) < 100


def test_an_accelerator_compiles_fewer_shapes(loaded, monkeypatch):
    titles, bodies = _rows(4, longest=4), _rows(4, longest=30, seed=1)
    embedder = BlockEmbedder(loaded, max_length=64)
    expected, narrow = embedder.embed_ids(titles, bodies)
    monkeypatch.setattr(block_embedder, "accelerator", lambda: "gpu")
    embeddings, wide = embedder.embed_ids(titles, bodies)
    assert narrow.shape[1] < wide.shape[1] == 64
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)


def test_several_devices_share_the_rows(model_dir):
    """Keras' distribution belongs to a thread."""
    code = """
    import sys
    import keras, numpy as np
    from realm_tf.models import model_directory
    from realm_tf.retrieval import block_embedder

    seen = []
    predict = block_embedder.predict

    def spy(*arguments):
        seen.append(keras.distribution.distribution())
        return predict(*arguments)

    block_embedder.predict = spy
    devices = keras.distribution.list_devices()
    distribution = keras.distribution.DataParallel(devices=devices)
    embedder = block_embedder.BlockEmbedder(
        model_directory.load(sys.argv[1]), max_length=20
    )
    ids = [np.arange(5, 5 + n % 7) for n in range(80)]
    arguments = (
        np.array([len(each) for each in ids]),
        lambda places: ([ids[n] for n in places], [ids[n] for n in places]),
    )
    alone = embedder.embed_all(*arguments, batch_size=64)
    assert seen == [None] * 2
    with distribution.scope():
        shared = embedder.embed_all(*arguments, batch_size=64)
    assert seen[2:] == [distribution] * 2 and len(devices) == 8
    np.testing.assert_allclose(shared, alone, atol=1e-5)
    """
    eight_devices.run(code, model_dir)
