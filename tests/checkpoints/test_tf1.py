"""Synthetic checkpoints in which every variable is different.

Names are written out here as REALM, ORQA and BERT write them.
"""

import numpy as np
import pytest
import tensorflow as tf
from named_weights import ATTENTION
from named_weights import HEADS
from named_weights import HIDDEN
from named_weights import INNER
from named_weights import LAYER
from named_weights import POSITIONS
from named_weights import VOCABULARY
from named_weights import assert_filled
from named_weights import random_arrays
from named_weights import save_tf

from realm_tf.checkpoints import tf1
from realm_tf.checkpoints import tf1_names
from realm_tf.checkpoints.tf1_names import Part
from realm_tf.checkpoints.tf_checkpoint import open_checkpoint
from realm_tf.errors import InputError

PROJECTION, SPAN = 4, 5
SIZES = (HIDDEN, INNER, VOCABULARY, POSITIONS)
LAYER_NAMES = dict(
    zip(
        LAYER,
        (
            *(f"attention/self/{name}" for name in ("query", "key", "value")),
            *("attention/output/dense", "attention/output/LayerNorm"),
            *("intermediate/dense", "output/dense", "output/LayerNorm"),
        ),
        strict=True,
    )
)
# What published REALM embedders hold: BERT's scope, projection's, LayerNorm.
EMBEDDERS = {
    "pre-trained": ("module/module/module/", "module/module/", "LayerNorm"),
    "fine-tuned": (
        "module/module/module/module/",
        "module/module/module/",
        "LayerNorm",
    ),
    "ict": ("module/", "module/", "layer_normalization"),
    "ict without a scope": ("module/", "", "layer_normalization"),
    "ict, fine-tuned": ("module/module/", "module/", "layer_normalization"),
}
EPSILONS = {"LayerNorm": 1e-12, "layer_normalization": 1e-3}


def _dense(name, inputs, outputs):
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def _layer_norm(name, width):
    return {f"{name}/gamma": (width,), f"{name}/beta": (width,)}


def _bert(scope="", layers=2, sizes=SIZES):
    """Names and shapes of a BERT."""
    hidden, inner, vocabulary, positions = sizes
    shapes = {
        "bert/embeddings/word_embeddings": (vocabulary, hidden),
        "bert/embeddings/position_embeddings": (positions, hidden),
        "bert/embeddings/token_type_embeddings": (2, hidden),
        **_layer_norm("bert/embeddings/LayerNorm", hidden),
        **_dense("bert/pooler/dense", hidden, hidden),
    }
    for i in range(layers):
        for ours, theirs in LAYER_NAMES.items():
            name = f"bert/encoder/layer_{i}/{theirs}"
            if ours.endswith("norm"):
                shapes |= _layer_norm(name, hidden)
            elif ours in ATTENTION:
                shapes |= _dense(name, hidden, hidden)
            elif "intermediate" in ours:
                shapes |= _dense(name, hidden, inner)
            else:
                shapes |= _dense(name, inner, hidden)
    return {scope + name: shape for name, shape in shapes.items()}


def _masked_lm(scope="", next_sentence=False):
    shapes = {
        "cls/predictions/output_bias": (VOCABULARY,),
        **_dense("cls/predictions/transform/dense", HIDDEN, HIDDEN),
        **_layer_norm("cls/predictions/transform/LayerNorm", HIDDEN),
    }
    if next_sentence:
        shapes |= {
            "cls/seq_relationship/output_weights": (2, HIDDEN),
            "cls/seq_relationship/output_bias": (2,),
        }
    return {scope + name: shape for name, shape in shapes.items()}


def _reader():
    return {
        **_bert("reader/module/", layers=1),
        **_dense("reader/dense", HIDDEN, 2 * SPAN),
        **_layer_norm("reader/layer_normalization", SPAN),
        **_dense("reader/dense_1", SPAN, 1),
    }


def _embedder(generation="pre-trained", layers=2):
    scope, head_scope, layer_norm = EMBEDDERS[generation]
    return {
        **_bert(scope, layers),
        **_dense(f"{head_scope}dense", HIDDEN, PROJECTION),
        **_layer_norm(f"{head_scope}{layer_norm}", PROJECTION),
    }


PARTS = {
    "embedder": _embedder(),
    "encoder": {**_bert(), **_masked_lm()},
    "reader": _reader(),
    "bert": _bert(),
}


def _slots(names):
    """States of REALM's optimizer and of TF1's Adam."""
    return {
        **dict.fromkeys(("global_step", "beta1_power", "beta2_power"), ()),
        **{
            f"{name}/{slot}": (3,)
            for name in names
            for slot in ("adam_m", "adam_v", "Adam", "Adam_1")
        },
    }


@pytest.fixture
def write(tmp_path):
    """Writes arrays and opens them."""
    path = tmp_path / "model.ckpt-9"
    return lambda arrays: open_checkpoint(save_tf(path, arrays))


def _expected(arrays, layers):
    """Names of our layers' variables to arrays, by names of theirs."""
    return {
        f"{ours}/{kind}": arrays[f"{theirs}/{kind}"]
        for ours, theirs in layers.items()
        for kind in ("kernel", "bias", "gamma", "beta")
        if f"{theirs}/{kind}" in arrays
    }


def _expected_bert(arrays, scope, layers=2):
    theirs = f"{scope}bert/embeddings/"
    return {
        "token_embedding/embeddings": arrays[f"{theirs}word_embeddings"],
        "position_embedding/embeddings": arrays[f"{theirs}position_embeddings"],
        "segment_embedding/embeddings": arrays[
            f"{theirs}token_type_embeddings"
        ],
        **_expected(
            arrays,
            {
                "embeddings_layer_norm": f"{theirs}LayerNorm",
                "pooled_dense": f"{scope}bert/pooler/dense",
                **{
                    f"transformer_layer_{i}/{ours}": (
                        f"{scope}bert/encoder/layer_{i}/{name}"
                    )
                    for i in range(layers)
                    for ours, name in LAYER_NAMES.items()
                },
            },
        ),
    }


def _check_embedder(model, arrays, generation):
    scope, head_scope, layer_norm = EMBEDDERS[generation]
    head = {
        "projection": f"{head_scope}dense",
        "projection_layer_norm": f"{head_scope}{layer_norm}",
    }
    bert = _expected_bert(arrays, scope)
    assert_filled(model, {**bert, **_expected(arrays, head)})
    assert model.layer_norm_epsilon == EPSILONS[layer_norm]


def _check_reader(model, arrays):
    head = {
        "span_scorer/endpoints": "reader/dense",
        "span_scorer/layer_norm": "reader/layer_normalization",
        "span_scorer/score": "reader/dense_1",
    }
    bert = _expected_bert(arrays, "reader/module/", layers=1)
    assert_filled(model, {**bert, **_expected(arrays, head)})
    assert model.layer_norm_epsilon == 1e-3
    assert (model.span_hidden_dim, model.max_span_width) == (SPAN, 10)


def _check_encoder(model, arrays, scope=""):
    theirs = f"{scope}cls/predictions"
    head = {
        "masked_lm_head/intermediate_dense": f"{theirs}/transform/dense",
        "masked_lm_head/intermediate_layer_norm": (
            f"{theirs}/transform/LayerNorm"
        ),
    }
    expected = {**_expected_bert(arrays, scope), **_expected(arrays, head)}
    expected["masked_lm_head/output_bias"] = arrays[f"{theirs}/output_bias"]
    assert_filled(model, expected)


@pytest.mark.parametrize("generation", EMBEDDERS)
@pytest.mark.parametrize("with_more", [False, True])
def test_an_embedder_of_every_generation(write, generation, with_more):
    shapes = _embedder(generation)
    scope, head_scope, layer_norm = EMBEDDERS[generation]
    if with_more:
        shapes |= _masked_lm(scope, next_sentence=True)
        shapes |= _slots(shapes)
    arrays = random_arrays(shapes)
    tensors = write(arrays)
    part = Part("embedder", scope, head_scope, layer_norm)
    assert tf1_names.classify(tensors.names()) == (part,)
    model = tf1.make(tensors, "embedder", num_heads=HEADS)
    _check_embedder(model, arrays, generation)


@pytest.mark.parametrize("scope", ["", "module/"])
@pytest.mark.parametrize("with_more", [False, True])
def test_a_masked_lm_encoder(write, scope, with_more):
    # With more: as Google's bert_model.ckpt, but for the optimizer's.
    shapes = {**_bert(scope), **_masked_lm(scope, next_sentence=with_more)}
    if with_more:
        shapes |= _slots(shapes)
    arrays = random_arrays(shapes)
    tensors = write(arrays)
    parts = tf1_names.classify(tensors.names())
    assert parts == (Part("encoder", scope, scope),)
    model = tf1.make(tensors, "encoder", num_heads=HEADS)
    _check_encoder(model, arrays, scope)
    # The same less the head.
    model = tf1.make(tensors, "bert", num_heads=HEADS)
    assert_filled(model, _expected_bert(arrays, scope))


def test_a_bert_without_a_head(write):
    shapes = _bert()
    arrays = random_arrays({**shapes, **_slots(shapes)})
    tensors = write(arrays)
    assert tf1_names.classify(tensors.names()) == (Part("bert", ""),)
    model = tf1.make(tensors, "bert", num_heads=HEADS)
    assert_filled(model, _expected_bert(arrays, ""))
    with pytest.raises(
        InputError,
        match=r"does not hold a knowledge-augmented encoder. .*cls/predictions"
        r".*Found: BERT \(bert/\*\)",
    ):
        tf1.make(tensors, "encoder", num_heads=HEADS)


@pytest.mark.parametrize("generation", ["fine-tuned", "ict, fine-tuned"])
def test_a_fine_tuned_checkpoint_of_orqa(write, generation):
    read = {**_embedder(generation), **_reader(), "block_emb": (7, PROJECTION)}
    head = _masked_lm("reader/module/", next_sentence=True)
    slots = _slots({**read, **head})
    arrays = random_arrays({**read, **head, **slots})
    tensors = write(arrays)
    embedder = Part("embedder", *EMBEDDERS[generation])
    reader = Part("reader", "reader/module/", "reader/", "layer_normalization")
    parts = tf1_names.classify(tensors.names())
    assert parts == (Part("block_emb", ""), embedder, reader)
    model = tf1.make(tensors, "embedder", num_heads=HEADS)
    _check_embedder(model, arrays, generation)
    _check_reader(tf1.make(tensors, "reader", num_heads=HEADS), arrays)
    # Of the whole, only these are not read.
    reasons = tf1_names.ignored_names(tensors.names(), *parts)
    expected = dict.fromkeys(slots, "a state of the optimizer")
    expected["global_step"] = "the number of training steps"
    for name in head:
        is_next = "/seq_relationship/" in name
        expected[name] = (
            "the next-sentence head is not part of REALM"
            if is_next
            else "that head is not read here"
        )
    assert reasons == expected
    # Of one part, the others are named too.
    reasons = tf1_names.ignored_names(tensors.names(), reader)
    blocks = "it belongs to embeddings of blocks (block_emb)"
    assert reasons["block_emb"] == blocks
    for name in _embedder(generation):
        assert reasons[name] == f"it belongs to {embedder}"
    assert not set(reasons) & set(_reader())


def test_all_parts_in_one_checkpoint(write):
    # Names without any scope are the masked-LM encoder's and the projection's.
    generation = "ict without a scope"
    arrays = random_arrays(
        {
            **_embedder(generation),
            **_reader(),
            **_bert(),
            **_masked_lm(),
            "encoded/block_emb": (7, PROJECTION),
        }
    )
    tensors = write(arrays)
    parts = tf1_names.classify(tensors.names())
    assert [(part.kind, part.scope) for part in parts] == [
        ("block_emb", "encoded/"),
        ("embedder", "module/"),
        ("encoder", ""),
        ("reader", "reader/module/"),
    ]
    assert tf1_names.ignored_names(tensors.names(), *parts) == {}
    source = tf1.open_source(tensors.source, HEADS)
    assert set(source.makers) == {"embedder", "encoder", "bert", "reader"}
    _check_embedder(source.makers["embedder"](), arrays, generation)
    _check_reader(source.makers["reader"](), arrays)
    _check_encoder(source.makers["encoder"](), arrays)
    assert source.block_embeddings.num_rows == 7


def test_a_head_without_its_bert_is_unknown():
    names = ["block_emb", "cls/predictions/output_bias"]
    parts = tf1_names.classify(names)
    assert parts == (Part("block_emb", ""),)
    assert tf1_names.ignored_names(names, *parts) == {}


def test_of_two_towers_one_is_chosen(write):
    scopes = ("module/", "module_1/")
    shapes = {}
    for scope in scopes:
        shapes |= {
            **_bert(scope, layers=1),
            **_dense(f"{scope}dense", HIDDEN, PROJECTION),
            **_layer_norm(f"{scope}layer_normalization", PROJECTION),
        }
    arrays = random_arrays(shapes)
    tensors = write(arrays)
    with pytest.raises(
        InputError,
        match=r"holds an embedder more than once. .*'module/', 'module_1/'",
    ):
        tf1.make(tensors, "embedder", num_heads=HEADS)
    for scope in scopes:
        model = tf1.make(tensors, "embedder", scope=scope, num_heads=HEADS)
        expected = _expected_bert(arrays, scope, layers=1)
        assert_filled(model.encoder, expected)
    with pytest.raises(InputError, match="holds a second embedder"):
        tf1.open_source(tensors.source)


@pytest.mark.parametrize("kind", PARTS)
def test_what_is_not_there_is_said(write, kind):
    what, _ = tf1_names.DESCRIPTIONS[kind]
    tensors = write(
        random_arrays({"block_emb": (7, 4), "xbert/embeddings": ()})
    )
    with pytest.raises(
        InputError,
        match=rf"9 does not hold {what}. Expected .*blocks \(block_emb\)\.$",
    ):
        tf1.make(tensors, kind)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("bert", "bert/embeddings/word_embeddings"),
        ("bert", "bert/encoder/layer_0/intermediate/dense/kernel"),
        ("bert", "bert/encoder/layer_1/attention/self/key/bias"),
        ("encoder", "cls/predictions/output_bias"),
        ("embedder", "module/module/dense/kernel"),
        ("embedder", "module/module/LayerNorm/gamma"),
        ("reader", "reader/dense_1/kernel"),
        ("reader", "reader/layer_normalization/gamma"),
    ],
)
def test_a_missing_variable_is_named(write, kind, name):
    arrays = random_arrays(PARTS[kind])
    del arrays[name]
    with pytest.raises(InputError, match=f"-9 lacks the tensor {name}"):
        tf1.make(write(arrays), kind, num_heads=HEADS)


@pytest.mark.parametrize(("layer", "missing"), [("layer_1/", 1), ("layer_", 0)])
def test_a_missing_layer_is_named(write, layer, missing):
    arrays = random_arrays(_bert(layers=3))
    arrays = {n: v for n, v in arrays.items() if layer not in n}
    with pytest.raises(
        InputError, match=rf"lacks the variables bert/encoder/layer_{missing}/"
    ):
        tf1.make(write(arrays), "bert", num_heads=HEADS)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("bert", "bert/encoder/layer_0/adapter/kernel"),
        ("bert", "classifier/bias"),
        ("encoder", "cls/predictions/decoder/kernel"),
        ("embedder", "module/module/dense_2/kernel"),
        ("reader", "global_step_2"),
    ],
)
def test_an_unknown_variable_is_named(write, kind, name):
    tensors = write(random_arrays({**PARTS[kind], name: (2,)}))
    what, _ = tf1_names.DESCRIPTIONS[kind]
    with pytest.raises(InputError, match=f"no part of {what} takes: {name}"):
        tf1.make(tensors, kind, num_heads=HEADS)


@pytest.mark.parametrize(
    ("kind", "name", "shape"),
    [
        ("bert", "bert/embeddings/token_type_embeddings", (16, HIDDEN)),
        ("bert", "bert/encoder/layer_0/output/dense/kernel", (HIDDEN, INNER)),
        ("encoder", "cls/predictions/output_bias", (VOCABULARY + 1,)),
        ("embedder", "module/module/LayerNorm/beta", (HIDDEN,)),
        ("reader", "reader/dense_1/kernel", (SPAN, 2)),
    ],
)
def test_a_misshapen_variable_is_named(write, kind, name, shape):
    tensors = write(random_arrays({**PARTS[kind], name: shape}))
    with pytest.raises(InputError) as caught:
        tf1.make(tensors, kind, num_heads=HEADS)
    assert f"{name} has the shape {shape}, expected (" in str(caught.value)


def test_numbers_that_are_none_are_refused(write):
    name = "cls/predictions/output_bias"
    shapes = {**PARTS["encoder"], "block_emb": (2, 2), f"{name}/Adam": (2,)}
    arrays = random_arrays(shapes)
    for elsewhere in ("block_emb", f"{name}/Adam"):
        arrays[elsewhere][0] = np.nan
    tf1.make(write(arrays), "encoder", num_heads=HEADS)
    arrays[name][-1] = np.inf
    with pytest.raises(InputError, match=f"{name} holds NaN or infinity"):
        tf1.make(write(arrays), "encoder", num_heads=HEADS)


def test_the_config_is_told_by_the_shapes(write):
    shapes = _bert("a/module/", 1, (128, 9, 21, 33))
    tensors = write(random_arrays(shapes))
    config = {
        "vocabulary_size": 21,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 128,
        "intermediate_dim": 9,
        "max_sequence_length": 33,
        "activation": "gelu_approximate",
        "layer_norm_epsilon": 1e-12,
        "dropout": 0.1,
    }
    assert tf1.bert_config(tensors, "a/module/") == config
    config["num_heads"] = 8
    assert tf1.bert_config(tensors, "a/module/", 8) == config
    for heads in (0, -2, 3, 256):
        with pytest.raises(InputError, match=f"num_heads={heads}"):
            tf1.bert_config(tensors, "a/module/", heads)


def test_heads_that_nothing_tells_must_be_given(write):
    with pytest.raises(InputError, match="Give num_heads"):
        tf1.make(write(random_arrays(_bert())), "bert")


@pytest.mark.parametrize("shape", [(HIDDEN,), (2, 3, HIDDEN), (0, HIDDEN)])
def test_what_is_no_matrix_tells_no_size(write, shape):
    shapes = {**_bert(), "bert/embeddings/word_embeddings": shape}
    with pytest.raises(InputError, match="word_embeddings .* a matrix"):
        tf1.make(write(random_arrays(shapes)), "bert", num_heads=HEADS)


def test_a_saver_of_tf1_writes_the_same(tmp_path):
    arrays = random_arrays(_embedder())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in arrays.items():
            tf.compat.v1.get_variable(name, initializer=tf.constant(value))
        tf.compat.v1.train.get_or_create_global_step()
        session.run(tf.compat.v1.global_variables_initializer())
        prefix = tf.compat.v1.train.Saver().save(
            session, str(tmp_path / "model.ckpt"), global_step=3
        )
    model = tf1.make(open_checkpoint(prefix), "embedder", num_heads=HEADS)
    _check_embedder(model, arrays, "pre-trained")
