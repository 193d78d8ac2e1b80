"""Synthetic checkpoints in which every variable is different.

Names are written out here as REALM, ORQA and BERT write them.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from realm_tf.checkpoints import tf1
from realm_tf.checkpoints.tensor_bundle import TensorBundle
from realm_tf.checkpoints.tf1 import Part
from realm_tf.errors import InputError

HIDDEN, HEADS, INNER, VOCABULARY, POSITIONS = 6, 3, 10, 11, 13
PROJECTION, SPAN = 4, 5
SIZES = (HIDDEN, INNER, VOCABULARY, POSITIONS)


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
        layer = f"bert/encoder/layer_{i}"
        shapes |= {
            **_dense(f"{layer}/attention/self/query", hidden, hidden),
            **_dense(f"{layer}/attention/self/key", hidden, hidden),
            **_dense(f"{layer}/attention/self/value", hidden, hidden),
            **_dense(f"{layer}/attention/output/dense", hidden, hidden),
            **_layer_norm(f"{layer}/attention/output/LayerNorm", hidden),
            **_dense(f"{layer}/intermediate/dense", hidden, inner),
            **_dense(f"{layer}/output/dense", inner, hidden),
            **_layer_norm(f"{layer}/output/LayerNorm", hidden),
        }
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


def _projection(scope, layer_norm, hidden=HIDDEN, projection=PROJECTION):
    return {
        **_dense(f"{scope}dense", hidden, projection),
        **_layer_norm(f"{scope}{layer_norm}", projection),
    }


def _reader(layers=1):
    return {
        **_bert("reader/module/", layers=layers),
        **_dense("reader/dense", HIDDEN, 2 * SPAN),
        **_layer_norm("reader/layer_normalization", SPAN),
        **_dense("reader/dense_1", SPAN, 1),
    }


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


def _embedder(generation="pre-trained"):
    scope, head_scope, layer_norm = EMBEDDERS[generation]
    return {**_bert(scope), **_projection(head_scope, layer_norm)}


def _slots(names):
    """States of REALM's optimizer and of TF1's Adam."""
    return {
        "global_step": (),
        "beta1_power": (),
        "beta2_power": (),
        **{
            f"{name}/{slot}": (3,)
            for name in names
            for slot in ("adam_m", "adam_v", "Adam", "Adam_1")
        },
    }


def _arrays(shapes):
    random = np.random.default_rng(0)
    return {
        name: np.array(77, "int64")
        if name == "global_step"
        else random.normal(size=shape).astype("float32")
        for name, shape in shapes.items()
    }


def _write(path, arrays):
    """As tf.train.Saver writes them."""
    tf.raw_ops.SaveV2(
        prefix=str(path),
        tensor_names=list(arrays),
        shape_and_slices=[""] * len(arrays),
        tensors=list(arrays.values()),
    )
    return TensorBundle(str(path))


@pytest.fixture
def write(tmp_path):
    return lambda arrays: _write(tmp_path / "model.ckpt-9", arrays)


def _values(model):
    return {
        v.path: np.array(v)
        for v in model.variables
        if "seed_generator" not in v.path
    }


def _pop_equal(values, path, expected):
    np.testing.assert_array_equal(values.pop(path), expected, err_msg=path)


def _pop_pairs(values, arrays, pairs):
    """Compares, and removes, layers with the source's."""
    for ours, theirs in pairs.items():
        kinds = ("gamma", "beta") if "norm" in ours else ("kernel", "bias")
        for kind in kinds:
            _pop_equal(values, f"{ours}/{kind}", arrays[f"{theirs}/{kind}"])


def _pop_bert(values, arrays, scope, layers=2):
    """Compares, and removes, a BERT."""
    for ours, theirs in (
        ("token_embedding", "word_embeddings"),
        ("position_embedding", "position_embeddings"),
        ("segment_embedding", "token_type_embeddings"),
    ):
        expected = arrays[f"{scope}bert/embeddings/{theirs}"]
        _pop_equal(values, f"{ours}/embeddings", expected)
    pairs = {
        "embeddings_layer_norm": f"{scope}bert/embeddings/LayerNorm",
        "pooled_dense": f"{scope}bert/pooler/dense",
    }
    for i in range(layers):
        ours, theirs = (
            f"transformer_layer_{i}",
            f"{scope}bert/encoder/layer_{i}",
        )
        path = f"{ours}/self_attention_layer"
        for name in ("query", "key", "value"):
            source = f"{theirs}/attention/self/{name}"
            kernel, bias = arrays[f"{source}/kernel"], arrays[f"{source}/bias"]
            # The output is viewed as (heads, head_dim).
            kernel = kernel.reshape(HIDDEN, HEADS, HIDDEN // HEADS)
            _pop_equal(values, f"{path}/{name}/kernel", kernel)
            _pop_equal(values, f"{path}/{name}/bias", bias.reshape(HEADS, -1))
        source = f"{theirs}/attention/output/dense"
        kernel = arrays[f"{source}/kernel"].reshape(HEADS, -1, HIDDEN)
        _pop_equal(values, f"{path}/attention_output/kernel", kernel)
        bias = arrays[f"{source}/bias"]
        _pop_equal(values, f"{path}/attention_output/bias", bias)
        pairs |= {
            f"{ours}/self_attention_layer_norm": (
                f"{theirs}/attention/output/LayerNorm"
            ),
            f"{ours}/feedforward_intermediate_dense": (
                f"{theirs}/intermediate/dense"
            ),
            f"{ours}/feedforward_output_dense": f"{theirs}/output/dense",
            f"{ours}/feedforward_layer_norm": f"{theirs}/output/LayerNorm",
        }
    _pop_pairs(values, arrays, pairs)


def _pop_masked_lm(values, arrays, scope=""):
    head, theirs = "masked_lm_head/intermediate", f"{scope}cls/predictions"
    _pop_pairs(
        values,
        arrays,
        {
            f"{head}_dense": f"{theirs}/transform/dense",
            f"{head}_layer_norm": f"{theirs}/transform/LayerNorm",
        },
    )
    bias = arrays[f"{theirs}/output_bias"]
    _pop_equal(values, "masked_lm_head/output_bias", bias)


def _check_embedder(model, arrays, generation):
    scope, head_scope, layer_norm = EMBEDDERS[generation]
    values = _values(model)
    _pop_bert(values, arrays, scope)
    _pop_pairs(
        values,
        arrays,
        {
            "projection": f"{head_scope}dense",
            "projection_layer_norm": f"{head_scope}{layer_norm}",
        },
    )
    assert not values
    assert model.layer_norm_epsilon == EPSILONS[layer_norm]
    assert model.projection_dim == PROJECTION


def _check_reader(model, arrays):
    values = _values(model)
    _pop_bert(values, arrays, "reader/module/", layers=1)
    _pop_pairs(
        values,
        arrays,
        {
            "span_scorer/endpoints": "reader/dense",
            "span_scorer/layer_norm": "reader/layer_normalization",
            "span_scorer/score": "reader/dense_1",
        },
    )
    assert not values
    assert model.layer_norm_epsilon == 1e-3
    assert (model.span_hidden_dim, model.max_span_width) == (SPAN, 10)


@pytest.mark.parametrize("generation", EMBEDDERS)
@pytest.mark.parametrize("with_more", [False, True])
def test_an_embedder_of_every_generation(write, generation, with_more):
    shapes = _embedder(generation)
    scope, head_scope, layer_norm = EMBEDDERS[generation]
    if with_more:
        shapes |= _masked_lm(scope, next_sentence=True)
        shapes |= _slots(shapes)
    arrays = _arrays(shapes)
    bundle = write(arrays)
    part = Part("embedder", scope, head_scope, layer_norm)
    assert tf1.classify(bundle.names()) == (part,)
    model = tf1.make_embedder(bundle, num_heads=HEADS)
    _check_embedder(model, arrays, generation)
    encoder = model.encoder
    assert encoder.layer_norm_epsilon == 1e-12
    assert encoder.activation == "gelu_approximate"


@pytest.mark.parametrize("scope", ["", "module/"])
@pytest.mark.parametrize("with_more", [False, True])
def test_a_masked_lm_encoder(write, scope, with_more):
    # With more: as Google's bert_model.ckpt, but for the optimizer's.
    shapes = {**_bert(scope), **_masked_lm(scope, next_sentence=with_more)}
    if with_more:
        shapes |= _slots(shapes)
    arrays = _arrays(shapes)
    bundle = write(arrays)
    assert tf1.classify(bundle.names()) == (Part("encoder", scope, scope),)
    model = tf1.make_knowledge_augmented_encoder(bundle, num_heads=HEADS)
    values = _values(model)
    _pop_bert(values, arrays, scope)
    _pop_masked_lm(values, arrays, scope)
    assert not values
    # The same less the head.
    values = _values(tf1.make_bert(bundle, num_heads=HEADS))
    _pop_bert(values, arrays, scope)
    assert not values


def test_a_bert_without_a_head(write):
    shapes = _bert()
    arrays = _arrays({**shapes, **_slots(shapes)})
    bundle = write(arrays)
    assert tf1.classify(bundle.names()) == (Part("bert", ""),)
    values = _values(tf1.make_bert(bundle, num_heads=HEADS))
    _pop_bert(values, arrays, "")
    assert not values
    with pytest.raises(
        InputError,
        match=r"does not hold a knowledge-augmented encoder. .*cls/predictions"
        r".*Found: BERT \(bert/\*\)",
    ):
        tf1.make_knowledge_augmented_encoder(bundle, num_heads=HEADS)


@pytest.mark.parametrize("generation", ["fine-tuned", "ict, fine-tuned"])
def test_a_fine_tuned_checkpoint_of_orqa(write, generation):
    shapes = {
        **_embedder(generation),
        **_reader(),
        **_masked_lm("reader/module/", next_sentence=True),
        "block_emb": (7, PROJECTION),
    }
    shapes |= _slots(shapes)
    arrays = _arrays(shapes)
    bundle = write(arrays)
    embedder = Part("embedder", *EMBEDDERS[generation])
    reader = Part("reader", "reader/module/", "reader/", "layer_normalization")
    blocks = Part("block_emb", "")
    parts = tf1.classify(bundle.names())
    assert parts == (blocks, embedder, reader)
    _check_embedder(
        tf1.make_embedder(bundle, num_heads=HEADS), arrays, generation
    )
    _check_reader(tf1.make_reader(bundle, num_heads=HEADS), arrays)
    # Of the whole, only these are not read.
    reasons = tf1.ignored_names(bundle.names(), *parts)
    slots = ("adam_m", "adam_v", "Adam", "Adam_1", "beta1_power", "beta2_power")
    for name, reason in reasons.items():
        if name.split("/")[-1] in slots:
            assert reason == "a state of the optimizer"
        elif name == "global_step":
            assert reason == "the number of training steps"
        elif name.startswith("reader/module/cls/seq_relationship/"):
            assert reason == "the next-sentence head is not part of REALM"
        else:
            assert name.startswith("reader/module/cls/predictions/")
            assert reason == "that head is not read here"
    read = {*_embedder(generation), *_reader(), "block_emb"}
    assert set(bundle.names()) == read | set(reasons)
    assert not read & set(reasons)
    # Of one part, the others are named too.
    reasons = tf1.ignored_names(bundle.names(), reader)
    assert reasons["block_emb"] == (
        "it belongs to embeddings of blocks (block_emb)"
    )
    scope = EMBEDDERS[generation][0]
    for name in _embedder(generation):
        assert reasons[name] == f"it belongs to an embedder ({scope}bert/*)"
    assert not set(reasons) & set(_reader())


def test_all_parts_in_one_checkpoint(write):
    # Names without any scope are the masked-LM encoder's and the projection's.
    shapes = {
        **_embedder("ict without a scope"),
        **_reader(),
        **_bert(),
        **_masked_lm(),
        "encoded/block_emb": (7, PROJECTION),
    }
    arrays = _arrays(shapes)
    bundle = write(arrays)
    parts = tf1.classify(bundle.names())
    assert [(part.kind, part.scope) for part in parts] == [
        ("block_emb", "encoded/"),
        ("embedder", "module/"),
        ("encoder", ""),
        ("reader", "reader/module/"),
    ]
    assert tf1.ignored_names(bundle.names(), *parts) == {}
    _check_embedder(
        tf1.make_embedder(bundle, num_heads=HEADS),
        arrays,
        "ict without a scope",
    )
    _check_reader(tf1.make_reader(bundle, num_heads=HEADS), arrays)
    model = tf1.make_knowledge_augmented_encoder(bundle, num_heads=HEADS)
    values = _values(model)
    _pop_bert(values, arrays, "")
    _pop_masked_lm(values, arrays)
    assert not values


def test_a_head_without_its_bert_is_unknown():
    names = ["block_emb", "cls/predictions/output_bias"]
    parts = tf1.classify(names)
    assert parts == (Part("block_emb", ""),)
    assert tf1.ignored_names(names) == {
        "block_emb": "it belongs to embeddings of blocks (block_emb)"
    }
    assert tf1.ignored_names(names, *parts) == {}


def test_of_two_towers_one_is_chosen(write):
    arrays = _arrays(
        {
            **_bert("module/", layers=1),
            **_projection("module/", "layer_normalization"),
            **_bert("module_1/", layers=1),
            **_projection("module_1/", "layer_normalization"),
        }
    )
    bundle = write(arrays)
    with pytest.raises(
        InputError,
        match=r"holds an embedder more than once. .*'module/', 'module_1/'",
    ):
        tf1.make_embedder(bundle, num_heads=HEADS)
    for scope in ("module/", "module_1/"):
        model = tf1.make_embedder(bundle, scope=scope, num_heads=HEADS)
        values = _values(model)
        _pop_bert(values, arrays, scope, layers=1)
        _pop_equal(values, "projection/bias", arrays[f"{scope}dense/bias"])
    with pytest.raises(InputError, match="an embedder in the scope 'module'"):
        tf1.make_embedder(bundle, scope="module", num_heads=HEADS)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (tf1.make_embedder, "an embedder"),
        (tf1.make_reader, "a reader"),
        (tf1.make_knowledge_augmented_encoder, "a knowledge-augmented encoder"),
        (tf1.make_bert, "BERT"),
    ],
)
def test_what_is_not_there_is_said(write, make, what):
    bundle = write(_arrays({"block_emb": (7, 4), "xbert/embeddings/a": (2,)}))
    with pytest.raises(InputError) as caught:
        make(bundle)
    message = str(caught.value)
    assert f"model.ckpt-9 does not hold {what}. Expected" in message
    assert message.endswith("Found: embeddings of blocks (block_emb).")


MAKERS = {
    "embedder": (tf1.make_embedder, _embedder()),
    "encoder": (
        tf1.make_knowledge_augmented_encoder,
        {**_bert(), **_masked_lm()},
    ),
    "reader": (tf1.make_reader, _reader()),
    "bert": (tf1.make_bert, _bert()),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("bert", "bert/embeddings/word_embeddings"),
        ("bert", "bert/embeddings/position_embeddings"),
        ("bert", "bert/embeddings/LayerNorm/beta"),
        ("bert", "bert/pooler/dense/kernel"),
        ("bert", "bert/encoder/layer_0/intermediate/dense/kernel"),
        ("bert", "bert/encoder/layer_1/attention/self/key/bias"),
        ("encoder", "cls/predictions/output_bias"),
        ("encoder", "cls/predictions/transform/LayerNorm/gamma"),
        ("embedder", "module/module/dense/kernel"),
        ("embedder", "module/module/dense/bias"),
        ("embedder", "module/module/LayerNorm/gamma"),
        ("embedder", "module/module/LayerNorm/beta"),
        ("embedder", "module/module/module/bert/embeddings/word_embeddings"),
        ("reader", "reader/dense/kernel"),
        ("reader", "reader/dense_1/kernel"),
        ("reader", "reader/dense_1/bias"),
        ("reader", "reader/layer_normalization/gamma"),
        ("reader", "reader/module/bert/encoder/layer_0/output/dense/bias"),
    ],
)
def test_a_missing_variable_is_named(write, kind, name):
    make, shapes = MAKERS[kind]
    arrays = _arrays(shapes)
    del arrays[name]
    with pytest.raises(
        InputError, match=f"model.ckpt-9 lacks the tensor {name}"
    ):
        make(write(arrays), num_heads=HEADS)


def test_a_missing_layer_is_named(write):
    arrays = _arrays(_bert(layers=3))
    middle = {n: v for n, v in arrays.items() if "layer_1/" not in n}
    with pytest.raises(
        InputError, match=r"lacks the variables bert/encoder/layer_1/\*"
    ):
        tf1.make_bert(write(middle), num_heads=HEADS)
    none = {n: v for n, v in arrays.items() if "layer_" not in n}
    with pytest.raises(
        InputError, match=r"lacks the variables bert/encoder/layer_0/\*"
    ):
        tf1.make_bert(write(none), num_heads=HEADS)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("bert", "bert/embeddings/extra"),
        ("bert", "bert/encoder/layer_0/adapter/kernel"),
        ("bert", "classifier/bias"),
        ("encoder", "cls/predictions/decoder/kernel"),
        ("encoder", "cls/other"),
        ("embedder", "module/module/dense_2/kernel"),
        ("embedder", "module/module/module/bert/pooler/extra"),
        ("reader", "reader/dense_2/kernel"),
        ("reader", "global_step_2"),
    ],
)
def test_an_unknown_variable_is_named(write, kind, name):
    make, shapes = MAKERS[kind]
    arrays = _arrays({**shapes, name: (2,)})
    what = {
        "bert": "BERT",
        "encoder": "a knowledge-augmented encoder",
        "embedder": "an embedder",
        "reader": "a reader",
    }[kind]
    with pytest.raises(
        InputError, match=f"model.ckpt-9 .* no part of {what} takes: {name}"
    ):
        make(write(arrays), num_heads=HEADS)


@pytest.mark.parametrize(
    ("kind", "name", "shape"),
    [
        ("bert", "bert/embeddings/token_type_embeddings", (16, HIDDEN)),
        ("bert", "bert/embeddings/position_embeddings", (POSITIONS, 5)),
        ("bert", "bert/encoder/layer_0/output/dense/kernel", (HIDDEN, INNER)),
        ("bert", "bert/encoder/layer_1/attention/self/key/bias", (3, 2)),
        ("encoder", "cls/predictions/output_bias", (VOCABULARY + 1,)),
        ("embedder", "module/module/dense/kernel", (PROJECTION, HIDDEN)),
        ("embedder", "module/module/LayerNorm/beta", (HIDDEN,)),
        ("reader", "reader/dense/kernel", (HIDDEN, SPAN)),
        ("reader", "reader/dense_1/kernel", (SPAN, 2)),
    ],
)
def test_a_misshapen_variable_is_named(write, kind, name, shape):
    make, shapes = MAKERS[kind]
    bundle = write(_arrays({**shapes, name: shape}))
    with pytest.raises(InputError) as caught:
        make(bundle, num_heads=HEADS)
    assert f"{name} has the shape {shape}, expected (" in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("kind", MAKERS)
def test_numbers_that_are_none_are_refused(write, kind, value):
    make, shapes = MAKERS[kind]
    arrays = _arrays(shapes)
    name = sorted(arrays)[-1]
    arrays[name].reshape(-1)[-1] = value
    with pytest.raises(InputError, match=f"{name} holds NaN or infinity"):
        make(write(arrays), num_heads=HEADS)
    # Elsewhere they do no harm.
    arrays = _arrays({**shapes, "block_emb": (2, 2), f"{name}/Adam_1": (2,)})
    arrays["block_emb"][0] = value
    arrays[f"{name}/Adam_1"][0] = value
    make(write(arrays), num_heads=HEADS)


def test_the_config_is_told_by_the_shapes(write):
    bundle = write(_arrays(_bert("a/module/", 1, (128, 9, 21, 33))))
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
    assert tf1.bert_config(bundle, "a/module/") == config
    assert tf1.bert_config(bundle, "a/module/", 8) == {
        **config,
        "num_heads": 8,
    }
    for heads in (0, -2, 3, 256):
        with pytest.raises(InputError, match=f"num_heads={heads}"):
            tf1.bert_config(bundle, "a/module/", heads)


def test_heads_that_nothing_tells_must_be_given(write):
    bundle = write(_arrays(_bert()))
    with pytest.raises(InputError, match="Give num_heads"):
        tf1.make_bert(bundle)


@pytest.mark.parametrize("shape", [(HIDDEN,), (2, 3, HIDDEN), (0, HIDDEN)])
def test_what_is_no_matrix_tells_no_size(write, shape):
    arrays = _arrays({**_bert(), "bert/embeddings/word_embeddings": shape})
    with pytest.raises(InputError, match="word_embeddings .* a matrix"):
        tf1.make_bert(write(arrays), num_heads=HEADS)


def test_a_saver_of_tf1_writes_the_same(tmp_path):
    arrays = _arrays(_embedder())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in arrays.items():
            tf.compat.v1.get_variable(name, initializer=tf.constant(value))
        tf.compat.v1.train.get_or_create_global_step()
        session.run(tf.compat.v1.global_variables_initializer())
        prefix = tf.compat.v1.train.Saver().save(
            session, str(tmp_path / "model.ckpt"), global_step=3
        )
    model = tf1.make_embedder(TensorBundle(prefix), num_heads=HEADS)
    _check_embedder(model, arrays, "pre-trained")


_MEASURE = """
import json
import re
import sys
import time

import numpy as np
import tensorflow

from realm_tf.checkpoints import tf1
from realm_tf.checkpoints.tensor_bundle import TensorBundle


def peak():
    # getrusage would count the process that started this one.
    with open("/proc/self/status") as file:
        return 1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", file.read())[1])


before, start = peak(), time.monotonic()
model = tf1.make_embedder(TensorBundle(sys.argv[1]))
seconds = time.monotonic() - start
print(json.dumps({
    "seconds": seconds,
    "bytes": peak() - before,
    "num_heads": model.encoder.num_heads,
    "variables": {
        v.path: [int(np.prod(v.shape)), *np.ravel(v)[[0, -1]].tolist()]
        for v in model.variables if "seed_generator" not in v.path
    },
}))
"""


@pytest.mark.slow
def test_bert_base_is_read_in_time_and_memory(tmp_path):
    shapes = {
        **_bert("module/module/module/", 12, (768, 3072, 30522, 512)),
        **_projection("module/module/", "LayerNorm", 768, 128),
    }
    arrays = {}
    for number, (name, shape) in enumerate(shapes.items()):
        ramp = np.linspace(number, number + 0.5, int(np.prod(shape)))
        arrays[name] = ramp.astype("float32").reshape(shape)
    prefix = str(tmp_path / "model.ckpt")
    _write(prefix, arrays)
    output = subprocess.run(
        [sys.executable, "-c", _MEASURE, prefix],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    ).stdout
    os.remove(f"{prefix}.data-00000-of-00001")
    found = json.loads(output)
    assert found["seconds"] < 60
    # At least the weights: else the measure is wrong.
    assert 4e8 < found["bytes"] < 3e9
    assert found["num_heads"] == 12
    variables = found["variables"]
    numbers = {name: number for number, name in enumerate(shapes)}
    # A variable's whole part is the number of its source.
    order = {
        "token_embedding/embeddings": "bert/embeddings/word_embeddings",
        "pooled_dense/kernel": "bert/pooler/dense/kernel",
        "transformer_layer_11/feedforward_output_dense/kernel": (
            "bert/encoder/layer_11/output/dense/kernel"
        ),
        "transformer_layer_7/self_attention_layer/value/kernel": (
            "bert/encoder/layer_7/attention/self/value/kernel"
        ),
        "transformer_layer_10/self_attention_layer_norm/gamma": (
            "bert/encoder/layer_10/attention/output/LayerNorm/gamma"
        ),
    }
    for path, name in order.items():
        name = f"module/module/module/{name}"
        size, first, last = variables[path]
        assert size == arrays[name].size
        assert (first, last) == (numbers[name], numbers[name] + 0.5)
    assert sorted(first for _, first, _ in variables.values()) == sorted(
        numbers.values()
    )
