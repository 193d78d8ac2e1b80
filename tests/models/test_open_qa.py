"""The open-QA model's towers and scale."""

import keras
import numpy as np
import pytest

from realm_tf.models.embedder import Embedder
from realm_tf.models.open_qa import OpenQa
from realm_tf.models.reader import Reader


@pytest.fixture
def parts(make_encoder, randomize):
    embedder = Embedder(make_encoder(), pooling="mean", projection_dim=4)
    reader = Reader(make_encoder(), span_hidden_dim=6)
    randomize(embedder, seed=1)
    return embedder, reader


def test_the_scale_multiplies_the_query_only(parts, token_batch):
    embedder, reader = parts
    model = OpenQa(embedder, embedder, reader, score_scale=20.0)
    embedding = np.asarray(embedder(token_batch))
    np.testing.assert_allclose(
        np.asarray(model.embed_queries(token_batch)), 20 * embedding, rtol=1e-6
    )
    np.testing.assert_array_equal(
        np.asarray(model.embed_blocks(token_batch)), embedding
    )


def test_frozen_towers_have_no_dropout(make_encoder, token_batch):
    keras.utils.set_random_seed(0)
    tower = Embedder(make_encoder(dropout=0.5), projection_dim=4, dropout=0.5)
    reader = Reader(make_encoder(), span_hidden_dim=6)
    model = OpenQa(tower, tower, reader)
    calls = model.embed_queries, model.embed_blocks
    for is_trained in (True, False):
        tower.trainable = is_trained
        for embed in calls:
            expected = np.asarray(embed(token_batch))
            found = np.asarray(embed(token_batch, training=True))
            assert np.array_equal(found, expected) is not is_trained


def test_shared_towers_come_apart_as_equals(parts, token_batch, randomize):
    embedder, reader = parts
    shared = OpenQa(embedder, embedder, reader, score_scale=3.0)
    before = np.asarray(shared.embed_blocks(token_batch))
    separate = shared.separate_towers()
    assert shared.share_embedders and not separate.share_embedders
    assert separate.query_embedder is embedder
    assert separate.reader is reader
    assert separate.score_scale == 3.0
    assert separate.block_embedder.get_config() == embedder.get_config()
    np.testing.assert_array_equal(
        np.asarray(separate.embed_blocks(token_batch)), before
    )
    # What the query tower learns, the block tower does not.
    randomize(embedder, seed=2)
    np.testing.assert_array_equal(
        np.asarray(separate.embed_blocks(token_batch)), before
    )
    assert np.abs(np.asarray(embedder(token_batch)) - before).max() > 0.1


def test_the_block_tower_is_frozen_in_either_case(parts, make_encoder):
    embedder, reader = parts
    once = OpenQa(embedder, embedder, reader).separate_towers()
    assert not once.block_embedder.trainable_variables
    other = Embedder(make_encoder(), projection_dim=4)
    apart = OpenQa(embedder, other, reader)
    assert apart.block_embedder.trainable_variables
    assert apart.separate_towers() is apart
    assert not apart.block_embedder.trainable_variables
    assert apart.query_embedder.trainable_variables


def test_towers_of_two_widths_are_refused(parts, make_encoder):
    embedder, reader = parts
    wide = Embedder(make_encoder(), projection_dim=5)
    with pytest.raises(ValueError, match=r"embedding_dim=4, .*embedding_dim=5"):
        OpenQa(embedder, wide, reader)
