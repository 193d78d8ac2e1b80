"""Checkpoints that the Model Garden wrote, and trees of variables as its own.

Names are written out here as tf-models-official 2.20 (and 2.3, where it is
said) writes them.
"""

import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from realm_tf.checkpoints import model_garden
from realm_tf.checkpoints.tensor_bundle import TensorBundle
from realm_tf.errors import InputError

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "model_garden"

HIDDEN, HEADS, INNER, VOCABULARY, POSITIONS = 6, 3, 10, 11, 13
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
NEXT_SENTENCE = "classification_heads/0/dense"
# A functional encoder's layers, in their order.
NUMBERED = {
    "_embedding_layer": "layer_with_weights-0",
    "_position_embedding_layer": "layer_with_weights-1",
    "_type_embedding_layer": "layer_with_weights-2",
    "_embedding_norm_layer": "layer_with_weights-3",
    "_transformer_layers/0": "layer_with_weights-4",
    "_transformer_layers/1": "layer_with_weights-5",
    "_pooler_layer": "layer_with_weights-6",
}


def _dense(name, inputs, outputs):
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def _layer_norm(name):
    return {f"{name}/gamma": (HIDDEN,), f"{name}/beta": (HIDDEN,)}


def _encoder(segments=2, heads=HEADS):
    """Paths and shapes of a `BertEncoderV2`."""
    head_dim = HIDDEN // HEADS
    shapes = {
        "_embedding_layer/embeddings": (VOCABULARY, HIDDEN),
        "_position_embedding_layer/embeddings": (POSITIONS, HIDDEN),
        "_type_embedding_layer/embeddings": (segments, HIDDEN),
        **_layer_norm("_embedding_norm_layer"),
        **_dense("_pooler_layer", HIDDEN, HIDDEN),
    }
    for i in range(2):
        layer = f"_transformer_layers/{i}"
        attention = f"{layer}/_attention_layer"
        for name in ("query", "key", "value"):
            shapes[f"{attention}/_{name}_dense/kernel"] = (
                HIDDEN,
                heads,
                head_dim,
            )
            shapes[f"{attention}/_{name}_dense/bias"] = (heads, head_dim)
        shapes |= {
            f"{attention}/_output_dense/kernel": (heads, head_dim, HIDDEN),
            f"{attention}/_output_dense/bias": (HIDDEN,),
            **_layer_norm(f"{layer}/_attention_layer_norm"),
            **_dense(f"{layer}/_intermediate_dense", HIDDEN, INNER),
            **_dense(f"{layer}/_output_dense", INNER, HIDDEN),
            **_layer_norm(f"{layer}/_output_layer_norm"),
        }
    return shapes


def _head():
    """Of a `MaskedLM`, less the word embeddings."""
    return {
        **_dense("dense", HIDDEN, HIDDEN),
        **_layer_norm("layer_norm"),
        "bias": (VOCABULARY,),
    }


def _arrays(shapes):
    random = np.random.default_rng(0)
    return {
        name: random.normal(size=shape).astype("float32")
        for name, shape in shapes.items()
    }


def _put(root, path, value):
    """Sets an attribute at the end of a path of objects."""
    *parents, name = path.split("/")
    for parent in parents:
        if not hasattr(root, parent):
            setattr(root, parent, tf.Module())
        root = getattr(root, parent)
    setattr(root, name, value)


def _get(root, path):
    for name in path.split("/"):
        root = getattr(root, name)
    return root


def _delete(root, path):
    parent, _, name = path.rpartition("/")
    delattr(_get(root, parent) if parent else root, name)


def _tree(arrays):
    root = tf.Module()
    for path, array in arrays.items():
        _put(root, path, tf.Variable(array))
    return root


def _functional(arrays, with_attributes=True):
    """A `BertEncoder`; that of 2.3 has no attributes."""
    attributes, root = _tree(arrays), tf.Module()
    for path, name in NUMBERED.items():
        _put(root, name, _get(attributes, path))
        if with_attributes:
            _put(root, path, _get(attributes, path))
        elif path.startswith("_transformer_layers"):
            layer = _get(root, name)
            alias = _get(layer, "_attention_layer/_output_dense")
            _put(layer, "_attention_output_dense", alias)
    return root


def _masked_lm(arrays, encoder):
    head = tf.Module()
    numbered = hasattr(encoder, "layer_with_weights-0")
    layer = "layer_with_weights-0" if numbered else "_embedding_layer"
    _put(head, "embedding_table", _get(encoder, f"{layer}/embeddings"))
    for path, array in arrays.items():
        _put(head, path, tf.Variable(array))
    # How it is named, and the attribute.
    setattr(head, "output_bias/bias", head.bias)
    return head


def _pretrainer(encoder, masked_lm):
    model = tf.Module()
    model.encoder_network, model.masked_lm = encoder, masked_lm
    _put(model, "classification_heads/0/dense/bias", tf.Variable([1.0]))
    _put(model, "classification_heads/0/out_proj/bias", tf.Variable([2.0]))
    return model


def _trainer(encoder, masked_lm):
    model = _pretrainer(encoder, masked_lm)
    items = {"next_sentence.pooler_dense": _get(model, NEXT_SENTENCE)}
    return tf.train.Checkpoint(
        global_step=tf.Variable(7, dtype=tf.int64),
        model=model,
        optimizer=_tree({"iter": 7, "_variables/1": np.ones(3)}),
        encoder=encoder,
        masked_lm=masked_lm,
        **items,
    )


def _saved_model(encoder, masked_lm):
    variables = tf.Module()
    for number, variable in enumerate(encoder.variables):
        setattr(variables, str(number), variable)
    return tf.train.Checkpoint(
        layer=_pretrainer(encoder, masked_lm),
        variables=variables,
        keras_api=_tree({"metrics/0/total": np.ones(2)}),
    )


def _write(path, checkpoint):
    return TensorBundle(checkpoint.write(str(path)))


@pytest.fixture
def write(tmp_path):
    return lambda checkpoint: _write(tmp_path / "model-1", checkpoint)


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


def _pop_encoder(values, arrays):
    for ours, theirs in (
        ("token_embedding", "_embedding_layer"),
        ("position_embedding", "_position_embedding_layer"),
        ("segment_embedding", "_type_embedding_layer"),
    ):
        expected = arrays[f"{theirs}/embeddings"]
        _pop_equal(values, f"{ours}/embeddings", expected)
    pairs = {
        "embeddings_layer_norm": "_embedding_norm_layer",
        "pooled_dense": "_pooler_layer",
    }
    for i in range(2):
        ours, theirs = f"transformer_layer_{i}", f"_transformer_layers/{i}"
        attention = f"{ours}/self_attention_layer"
        pairs |= {
            f"{attention}/query": f"{theirs}/_attention_layer/_query_dense",
            f"{attention}/key": f"{theirs}/_attention_layer/_key_dense",
            f"{attention}/value": f"{theirs}/_attention_layer/_value_dense",
            f"{attention}/attention_output": (
                f"{theirs}/_attention_layer/_output_dense"
            ),
            f"{attention}_norm": f"{theirs}/_attention_layer_norm",
            f"{ours}/feedforward_intermediate_dense": (
                f"{theirs}/_intermediate_dense"
            ),
            f"{ours}/feedforward_output_dense": f"{theirs}/_output_dense",
            f"{ours}/feedforward_layer_norm": f"{theirs}/_output_layer_norm",
        }
    _pop_pairs(values, arrays, pairs)


def _pop_head(values, arrays):
    head = "masked_lm_head/intermediate"
    pairs = {f"{head}_dense": "dense", f"{head}_layer_norm": "layer_norm"}
    _pop_pairs(values, arrays, pairs)
    _pop_equal(values, "masked_lm_head/output_bias", arrays["bias"])


# --- What the Model Garden wrote ---


@pytest.fixture(scope="module")
def outputs():
    with np.load(GOLDEN / "outputs.npz") as arrays:
        return dict(arrays)


def _inputs(outputs, *more):
    names = ("token_ids", "segment_ids", "padding_mask", *more)
    return {name: outputs[f"in/{name}"] for name in names}


@pytest.mark.parametrize("name", ["functional-1", "trainer-1"])
def test_outputs_are_those_of_the_model_garden(outputs, name):
    model = model_garden.make_bert(TensorBundle(str(GOLDEN / name)))
    found = model(_inputs(outputs))
    for key in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(found[key]),
            outputs[f"out/{key}"],
            atol=1e-5,
        )
    assert (model.num_heads, model.max_sequence_length) == (2, 12)
    assert (model.activation, model.dropout) == ("gelu_approximate", 0.1)
    assert model.layer_norm_epsilon == 1e-12


def test_logits_are_those_of_the_model_garden(outputs):
    bundle = TensorBundle(str(GOLDEN / "trainer-1"))
    model = model_garden.make_knowledge_augmented_encoder(bundle)
    logits = model(_inputs(outputs, "mask_positions"))
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(logits), outputs["out/mlm_logits"], atol=1e-5
    )
    # The exact GELU is another function.
    exact = model_garden.make_bert(bundle, activation="gelu")
    assert exact.activation == "gelu"
    found = keras.ops.convert_to_numpy(exact(_inputs(outputs))["pooled_output"])
    assert np.abs(found - outputs["out/pooled_output"]).max() > 1e-5


def test_what_is_not_read_of_a_trainers_checkpoint():
    bundle = TensorBundle(str(GOLDEN / "trainer-1"))
    reasons = model_garden.ignored_names(bundle, masked_lm_head=True)
    slots = {n for n in bundle.names() if ".OPTIMIZER_SLOT" in n}
    assert len(slots) == 48
    assert {reasons[name] for name in slots} == {"a state of the optimizer"}
    assert {n: r for n, r in reasons.items() if n not in slots} == {
        GRAPH: "the graph of objects, by which the others are found",
        f"global_step{SUFFIX}": "the number of training steps",
        f"save_counter{SUFFIX}": "the number of checkpoints saved",
        **{
            f"optimizer/{name}{SUFFIX}": "a state of the optimizer"
            for name in ("decay", "iter", "learning_rate", "momentum")
        },
        **{
            f"{name}{SUFFIX}": "it is of another part than the encoder"
            for name in (
                "model/classification_heads/0/out_proj/bias",
                "model/classification_heads/0/out_proj/kernel",
                "next_sentence..pooler_dense/bias",
                "next_sentence..pooler_dense/kernel",
            )
        },
    }
    without_head = model_garden.ignored_names(bundle)
    assert without_head.keys() - reasons.keys() == {
        f"masked_lm/{name}{SUFFIX}"
        for name in (
            "dense/bias",
            "dense/kernel",
            "layer_norm/beta",
            "layer_norm/gamma",
            "output_bias.Sbias",
        )
    }
    assert "that head is not read here" in without_head.values()


# --- Ways of saving ---

# The checkpoint of an encoder and a head; where the encoder is; a name.
WAYS = {
    "alone": (
        lambda encoder, _: tf.train.Checkpoint(encoder=encoder),
        "encoder",
        "encoder/_embedding_layer/embeddings",
    ),
    "model": (
        lambda encoder, _: tf.train.Checkpoint(model=encoder),
        "model",
        "model/_transformer_layers/1/_attention_layer/_key_dense/kernel",
    ),
    "root": (
        lambda encoder, _: tf.train.Checkpoint(encoder),
        "",
        "_transformer_layers/0/_output_layer_norm/beta",
    ),
    "save_weights": (
        lambda encoder, _: tf.train.Checkpoint(
            tf.train.Checkpoint(**{"layer_with_weights-0": encoder})
        ),
        "layer_with_weights-0",
        "layer_with_weights-0/_embedding_norm_layer/gamma",
    ),
    "pretrainer": (
        lambda *parts: tf.train.Checkpoint(model=_pretrainer(*parts)),
        "model/encoder_network",
        "model/masked_lm/embedding_table",
    ),
    "trainer": (_trainer, "encoder", "masked_lm/embedding_table"),
    "SavedModel": (
        _saved_model,
        "layer/encoder_network",
        "variables/5",
    ),
}
WITH_HEAD = ("pretrainer", "trainer", "SavedModel")


@pytest.mark.parametrize("kind", ["V2", "functional", "functional of 2.3"])
@pytest.mark.parametrize("way", WAYS)
def test_every_variable_lands_where_it_belongs(write, kind, way):
    arrays, head = _arrays(_encoder()), _arrays(_head())
    if kind == "V2":
        encoder = _tree(arrays)
    else:
        encoder = _functional(arrays, with_attributes=kind == "functional")
    save, scope, name = WAYS[way]
    bundle = write(save(encoder, _masked_lm(head, encoder)))
    if kind == "V2":
        assert f"{name}{SUFFIX}" in bundle.names()
    values = _values(model_garden.make_bert(bundle, HEADS, scope=scope))
    _pop_encoder(values, arrays)
    assert not values
    assert model_garden.has_masked_lm_head(bundle) == (way in WITH_HEAD)
    if way in WITH_HEAD:
        model = model_garden.make_knowledge_augmented_encoder(bundle)
        values = _values(model)
        _pop_encoder(values, arrays)
        _pop_head(values, head)
        assert not values


@pytest.mark.parametrize(
    ("with_attributes", "name"),
    [
        (True, "layer_with_weights-4/_attention_layer/_output_dense/kernel"),
        (False, "layer_with_weights-4/_attention_output_dense/kernel"),
    ],
)
def test_functional_encoders_are_named_by_numbers(write, with_attributes, name):
    encoder = _functional(_arrays(_encoder()), with_attributes)
    bundle = write(tf.train.Checkpoint(encoder=encoder))
    assert {n.split("/")[1] for n in bundle.names() if "/" in n} == set(
        NUMBERED.values()
    )
    assert f"encoder/{name}{SUFFIX}" in bundle.names()


def test_the_first_two_of_more_types_are_taken(write):
    arrays = _arrays(_encoder(segments=16))
    bundle = write(tf.train.Checkpoint(encoder=_tree(arrays)))
    values = _values(model_garden.make_bert(bundle))
    table = arrays["_type_embedding_layer/embeddings"]
    _pop_equal(values, "segment_embedding/embeddings", table[:2])


def test_a_graph_may_end_with_a_zero_byte(write):
    # That of an object without variables, as in SavedModels.
    arrays = _arrays(_encoder())
    last = tf.Module()
    _put(last, "a/b/c/d/e/f", tf.Module())
    bundle = write(tf.train.Checkpoint(encoder=_tree(arrays), last=last))
    graph = tf.train.load_checkpoint(bundle.source).get_tensor(GRAPH)
    assert graph.endswith(b"\0")
    values = _values(model_garden.make_bert(bundle))
    _pop_encoder(values, arrays)
    assert not values


def test_of_two_encoders_one_is_chosen(write):
    arrays = _arrays(_encoder())
    bundle = write(
        tf.train.Checkpoint(
            generator=_tree(_arrays(_encoder(segments=3))),
            discriminator=_tree(arrays),
        )
    )
    with pytest.raises(
        InputError,
        match=r"holds an encoder more than once. .*'discriminator', 'gen",
    ):
        model_garden.make_bert(bundle)
    values = _values(model_garden.make_bert(bundle, scope="discriminator"))
    _pop_encoder(values, arrays)
    assert not values
    reasons = model_garden.ignored_names(bundle, scope="discriminator")
    name = f"generator/_pooler_layer/bias{SUFFIX}"
    assert reasons[name] == "it is of another part than the encoder"
    with pytest.raises(InputError, match=r"in the scope 'model'. .*generator"):
        model_garden.make_bert(bundle, scope="model")


# --- Errors ---


@pytest.mark.parametrize("name", _encoder())
def test_a_missing_tensor_is_named(write, name):
    encoder = _tree(_arrays(_encoder()))
    _delete(encoder, name)
    bundle = write(tf.train.Checkpoint(encoder=encoder))
    with pytest.raises(InputError, match=rf"lacks the tensor encoder/{name}/"):
        model_garden.make_bert(bundle)


@pytest.mark.parametrize("name", _head())
def test_a_missing_tensor_of_the_head_is_named(write, name):
    encoder = _tree(_arrays(_encoder()))
    masked_lm = _masked_lm(_arrays(_head()), encoder)
    _delete(masked_lm, name)
    if name == "bias":
        delattr(masked_lm, "output_bias/bias")
    bundle = write(tf.train.Checkpoint(encoder=encoder, masked_lm=masked_lm))
    with pytest.raises(InputError, match=rf"lacks the tensor masked_lm/{name}"):
        model_garden.make_knowledge_augmented_encoder(bundle)


@pytest.mark.parametrize("layer", [0, 1])
def test_a_missing_layer_is_named(write, layer):
    arrays = _arrays(_encoder())
    path = f"_transformer_layers/{layer}/"
    arrays = {
        # The last one is layer 2 then.
        name.replace("_layers/1/", f"_layers/{1 + layer}/"): array
        for name, array in arrays.items()
        if layer or not name.startswith(path)
    }
    bundle = write(tf.train.Checkpoint(encoder=_tree(arrays)))
    with pytest.raises(InputError, match=rf"lacks the tensors? encoder/{path}"):
        model_garden.make_bert(bundle)


@pytest.mark.parametrize("name", _encoder())
def test_a_misshapen_tensor_is_refused(write, name):
    arrays = _arrays(_encoder())
    shape = arrays[name].shape
    # Such as TF1's flat kernels.
    flat = (arrays[name].size,) if len(shape) > 1 else (*shape, 1)
    arrays[name] = arrays[name].reshape(flat)
    bundle = write(tf.train.Checkpoint(encoder=_tree(arrays)))
    with pytest.raises(
        InputError, match=rf"encoder/{name}/.* has the shape .*, expected"
    ):
        model_garden.make_bert(bundle)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_tensor_that_is_not_finite_is_refused(write, bad):
    arrays = _arrays(_encoder())
    arrays["_pooler_layer/bias"][2] = bad
    bundle = write(tf.train.Checkpoint(encoder=_tree(arrays)))
    with pytest.raises(InputError, match="_pooler_layer/bias/.*holds NaN"):
        model_garden.make_bert(bundle)


def test_an_unknown_tensor_is_named(write):
    arrays = _arrays(_encoder())
    arrays["_transformer_layers/0/_rezero_a"] = np.float32(1.0)
    bundle = write(tf.train.Checkpoint(encoder=_tree(arrays)))
    with pytest.raises(
        InputError, match="no part of a BERT takes: .*/_rezero_a/"
    ):
        model_garden.make_bert(bundle)


def test_a_tensor_that_is_of_no_object_is_named(tmp_path):
    golden = tf.train.load_checkpoint(str(GOLDEN / "functional-1"))
    tensors = {
        name: golden.get_tensor(name)
        for name in golden.get_variable_to_shape_map()
    }
    tensors["left_over"] = np.ones(3, "float32")
    prefix = str(tmp_path / "model-1")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    with pytest.raises(InputError, match=r"a BERT takes: left_over\."):
        model_garden.make_bert(TensorBundle(prefix))


def test_an_unknown_tensor_of_the_head_is_named(write):
    encoder = _tree(_arrays(_encoder()))
    head = _masked_lm(_arrays({**_head(), "adapter": (3,)}), encoder)
    bundle = write(tf.train.Checkpoint(encoder=encoder, masked_lm=head))
    with pytest.raises(InputError, match="takes: masked_lm/adapter/"):
        model_garden.make_knowledge_augmented_encoder(bundle)
    # It does not matter for the encoder.
    model_garden.make_bert(bundle)


def test_a_checkpoint_without_a_head(write):
    encoder = _tree(_arrays(_encoder()))
    other = _tree(_arrays(_encoder()))
    # Its words are not the encoder's.
    head = _masked_lm(_arrays(_head()), other)
    bundle = write(tf.train.Checkpoint(encoder=encoder, masked_lm=head))
    assert not model_garden.has_masked_lm_head(bundle)
    with pytest.raises(
        InputError,
        match=r"no masked-LM heads .* of the encoder 'encoder', expected one",
    ):
        model_garden.make_knowledge_augmented_encoder(bundle)


def test_a_checkpoint_without_an_encoder(write):
    bundle = write(tf.train.Checkpoint(net=_tree({"w": np.ones(3)})))
    with pytest.raises(
        InputError, match=r"does not hold an encoder. .*Found: net"
    ):
        model_garden.make_bert(bundle)


def test_a_checkpoint_of_tf1(tmp_path):
    prefix = str(tmp_path / "model.ckpt")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=["bert/pooler/dense/bias"],
        shape_and_slices=[""],
        tensors=[np.ones(3, "float32")],
    )
    with pytest.raises(InputError, match="no graph of objects .*TF1"):
        model_garden.make_bert(TensorBundle(prefix))


def test_a_damaged_graph(tmp_path):
    prefix = str(tmp_path / "model.ckpt")
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=[GRAPH],
        shape_and_slices=[""],
        tensors=[b"\xff\xff"],
    )
    with pytest.raises(InputError, match=f"{GRAPH} is damaged"):
        model_garden.make_bert(TensorBundle(prefix))


def test_other_heads_than_asked_for_are_refused(write):
    bundle = write(tf.train.Checkpoint(encoder=_tree(_arrays(_encoder()))))
    with pytest.raises(
        InputError, match=r"has 3 attention heads. Received: num_heads=2"
    ):
        model_garden.make_bert(bundle, 2)


def test_heads_of_another_width_are_refused(write):
    arrays = _arrays(_encoder(heads=2))
    bundle = write(tf.train.Checkpoint(encoder=_tree(arrays)))
    with pytest.raises(InputError, match="2 attention heads of 2 in layers of"):
        model_garden.make_bert(bundle)


@pytest.mark.parametrize("functional", [False, True])
def test_factorised_embeddings_are_refused(write, functional):
    arrays = _arrays(_encoder())
    encoder = (_functional if functional else _tree)(arrays)
    projection = _tree(_arrays(_dense("x", 2, HIDDEN))).x
    if functional:
        for number in (6, 5, 4):
            layer = _get(encoder, f"layer_with_weights-{number}")
            _put(encoder, f"layer_with_weights-{number + 1}", layer)
        _put(encoder, "layer_with_weights-4", projection)
    else:
        _put(encoder, "_embedding_projection", projection)
    bundle = write(tf.train.Checkpoint(encoder=encoder))
    with pytest.raises(
        InputError, match=r"embeddings narrower .*BertEncoderV2"
    ):
        model_garden.make_bert(bundle)


def test_a_funnel_transformer_is_refused(write):
    encoder = _tree(_arrays(_encoder()))
    encoder._pool_strides = tf.Module()
    bundle = write(tf.train.Checkpoint(encoder=encoder))
    with pytest.raises(InputError, match="pool the sequence"):
        model_garden.make_bert(bundle)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("params.yaml", "bert:\n    norm_first: {}\n    num_layers: 2\n"),
        ("../keras_metadata.pb", '{{"layer": 1, "norm_first": {}, "x": 2}}'),
    ],
)
def test_norm_first_is_refused_where_it_is_told(tmp_path, path, text):
    directory = tmp_path / "variables"
    directory.mkdir()
    for name in ("functional-1.index", "functional-1.data-00000-of-00001"):
        shutil.copy(GOLDEN / name, directory / name)
    bundle = TensorBundle(str(directory / "functional-1"))
    (directory / path).write_text(text.format("false"), encoding="utf-8")
    model_garden.make_bert(bundle)
    (directory / path).write_text(text.format("true"), encoding="utf-8")
    with pytest.raises(InputError, match=r"LayerNorm before .*norm_first in"):
        model_garden.make_bert(bundle)
