"""Synthetic checkpoints in which every variable is different."""

import pytest
import tensorflow as tf
from named_weights import HEADS
from named_weights import assert_filled
from named_weights import random_arrays
from named_weights import save_tf
from tf1_world import EMBEDDERS
from tf1_world import PARTS
from tf1_world import PROJECTION
from tf1_world import bert
from tf1_world import check_embedder
from tf1_world import check_encoder
from tf1_world import check_reader
from tf1_world import embedder
from tf1_world import expected_bert
from tf1_world import masked_lm
from tf1_world import reader
from tf1_world import slot_shapes

from realm_tf.checkpoints import tf1
from realm_tf.errors import InputError


@pytest.fixture
def open_arrays(tmp_path):
    """Writes arrays and opens them as a source of six-wide BERTs."""

    def open_(arrays):
        prefix = save_tf(tmp_path / "model.ckpt-9", arrays)
        return tf1.open_source(prefix, HEADS)

    return open_


@pytest.mark.parametrize("generation", EMBEDDERS)
def test_an_embedder_of_every_generation(open_arrays, generation):
    shapes = embedder(generation)
    shapes |= masked_lm(EMBEDDERS[generation][0], next_sentence=True)
    arrays = random_arrays({**shapes, **slot_shapes(shapes)})
    source = open_arrays(arrays)
    assert set(source.makers) == {"embedder"}
    check_embedder(source.makers["embedder"](), arrays, generation)


@pytest.mark.parametrize("scope", ["", "module/"])
@pytest.mark.parametrize("with_more", [False, True])
def test_a_masked_lm_encoder(open_arrays, scope, with_more):
    # With more: as Google's bert_model.ckpt, but for the optimizer's.
    shapes = {**bert(scope), **masked_lm(scope, next_sentence=with_more)}
    if with_more:
        shapes |= slot_shapes(shapes)
    arrays = random_arrays(shapes)
    source = open_arrays(arrays)
    assert set(source.makers) == {"encoder", "bert"}
    check_encoder(source.makers["encoder"](), arrays, scope)
    # The same less the head.
    assert_filled(source.makers["bert"](), expected_bert(arrays, scope))


@pytest.mark.parametrize("generation", ["fine-tuned", "ict, fine-tuned"])
def test_a_fine_tuned_checkpoint_of_orqa(open_arrays, generation):
    read = {**embedder(generation), **reader(), "block_emb": (7, PROJECTION)}
    head = masked_lm("reader/module/", next_sentence=True)
    slots = slot_shapes({**read, **head})
    arrays = random_arrays({**read, **head, **slots})
    source = open_arrays(arrays)
    assert set(source.makers) == {"embedder", "reader"}
    check_embedder(source.makers["embedder"](), arrays, generation)
    check_reader(source.makers["reader"](), arrays)
    assert set(source.unread) == {*slots, *head}


def test_all_parts_in_one_checkpoint(open_arrays):
    # Names without any scope are the masked-LM encoder's and the projection's.
    generation = "ict without a scope"
    arrays = random_arrays(
        {
            **embedder(generation),
            **reader(),
            **bert(),
            **masked_lm(),
            "encoded/block_emb": (7, PROJECTION),
        }
    )
    source = open_arrays(arrays)
    assert not source.unread
    assert set(source.makers) == {"embedder", "encoder", "bert", "reader"}
    check_embedder(source.makers["embedder"](), arrays, generation)
    check_reader(source.makers["reader"](), arrays)
    check_encoder(source.makers["encoder"](), arrays)
    assert len(source.block_embeddings) == 7


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("bert", "bert/embeddings/position_embeddings"),
        ("bert", "bert/encoder/layer_0/intermediate/dense/kernel"),
        ("bert", "bert/encoder/layer_1/attention/self/key/bias"),
        ("encoder", "cls/predictions/output_bias"),
        ("embedder", "module/module/LayerNorm/gamma"),
        ("reader", "reader/dense_1/kernel"),
    ],
)
def test_a_missing_variable_is_named(open_arrays, kind, name):
    arrays = random_arrays(PARTS[kind])
    del arrays[name]
    with pytest.raises(InputError, match=f"-9 lacks .*{name}"):
        open_arrays(arrays).makers[kind]()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("bert", "bert/encoder/layer_0/adapter/kernel"),
        ("bert", "bert/encoder/layer_3/output/dense/bias"),
        ("bert", "classifier/bias"),
        ("encoder", "cls/predictions/decoder/kernel"),
        ("embedder", "module/module/dense_2/kernel"),
        ("reader", "global_step_2"),
    ],
)
def test_an_unknown_variable_is_named(open_arrays, kind, name):
    arrays = random_arrays({**PARTS[kind], name: (2,)})
    with pytest.raises(InputError, match=f"no part of the model .*{name}"):
        open_arrays(arrays)


def test_the_config_is_told_by_the_shapes(tmp_path):
    shapes = bert("module/", 1, (128, 9, 21, 33))
    prefix = save_tf(tmp_path / "model.ckpt-9", random_arrays(shapes))
    config = tf1.open_source(prefix).makers["bert"]().get_config()
    expected = {
        "vocabulary_size": 21,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 128,
        "intermediate_dim": 9,
        "max_sequence_length": 33,
    }
    assert expected.items() <= config.items()
    assert tf1.open_source(prefix, 8).makers["bert"]().num_heads == 8
    for heads in (3, 256):
        with pytest.raises(InputError, match=f"num_heads={heads}"):
            tf1.open_source(prefix, heads).makers["bert"]()


def test_heads_that_nothing_tells_must_be_given(tmp_path):
    prefix = save_tf(tmp_path / "model.ckpt-9", random_arrays(bert()))
    with pytest.raises(InputError, match="name the attention heads"):
        tf1.open_source(prefix).makers["bert"]()


def test_a_saver_of_tf1_writes_the_same(tmp_path):
    """In shards; of several steps one is named."""
    arrays = random_arrays(embedder())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in arrays.items():
            tf.compat.v1.get_variable(name, initializer=tf.constant(value))
        step = tf.compat.v1.train.get_or_create_global_step()
        saver = tf.compat.v1.train.Saver(sharded=True)
        session.run(tf.compat.v1.global_variables_initializer())
        path = str(tmp_path / "model.ckpt")
        for number in (9, 10):
            session.run(step.assign(number))
            saver.save(session, path, global_step=number)
    source = tf1.open_source(f"{path}-10", HEADS)
    assert f"{path}-10.index" in source.files
    with pytest.raises(InputError, match="holds a second embedder"):
        tf1.open_source(str(tmp_path), HEADS)
    check_embedder(source.makers["embedder"](), arrays, "pre-trained")
