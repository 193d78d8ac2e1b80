"""The encoder beside BERT's equations.

These are held against transformers: in test_knowledge_augmented_encoder.py
with one GELU, in tests/checkpoints/test_initial.py with the other.
"""

import keras
import keras_hub
import numpy as np
import pytest
import python_code

from realm_tf.models import transformer_encoder
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.transformer_encoder import TransformerEncoder


def _model(**settings):
    """A BERT with dropout and a target; the same whenever it is called."""
    keras.utils.set_random_seed(0)
    encoder = BertEncoder(
        vocabulary_size=60,
        num_layers=3,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=32,
        dropout=0.3,
    )
    encoder.freeze(num_layers=settings.get("num_frozen_layers", 0))
    encoder.set_recompute(settings.get("recompute", False))
    outputs = encoder(encoder.input)["pooled_output"]
    model = keras.Model(
        encoder.input, keras.layers.Dense(1, name="target")(outputs)
    )
    # Weights follow the gradient closely.
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    return model


def _batches():
    random = np.random.default_rng(0)
    inputs = {
        "token_ids": random.integers(5, 60, (24, 10)),
        "segment_ids": np.zeros((24, 10), "int32"),
        "padding_mask": np.ones((24, 10), "int32"),
    }
    return inputs, random.normal(size=(24, 1))


def _train(model):
    history = model.fit(
        *_batches(), batch_size=8, epochs=2, shuffle=False, verbose=0
    )
    return history.history["loss"]


@pytest.mark.parametrize("activation", ["relu", keras.activations.gelu])
def test_it_computes_what_keras_hub_does(activation, tmp_path):
    settings = dict(
        intermediate_dim=24,
        num_heads=2,
        activation=activation,
        layer_norm_epsilon=1e-6,
    )
    keras.utils.set_random_seed(0)
    inputs = keras.random.normal((3, 7, 8))
    padding_mask = keras.ops.convert_to_tensor(
        [[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6]
    )
    ours = TransformerEncoder(**settings)
    theirs = keras_hub.layers.TransformerEncoder(**settings)
    for layer in (ours, theirs):
        layer(inputs, padding_mask=padding_mask)
    # Weights of this size make every part of it count.
    weights = [np.random.normal(0, 0.5, w.shape) for w in theirs.get_weights()]
    theirs.set_weights(weights)
    # Files of weights of either are the other's.
    rows = keras.Input((None, 8))
    path = tmp_path / "model.weights.h5"
    keras.Model(rows, theirs(rows)).save_weights(path)
    keras.Model(rows, ours(rows)).load_weights(path)
    for mask in (padding_mask, None):
        one, two = (
            keras.ops.convert_to_numpy(layer(inputs, padding_mask=mask))
            for layer in (ours, theirs)
        )
        np.testing.assert_allclose(one, two, atol=2e-6)
        assert np.abs(one).max() > 1


@pytest.mark.slow
@pytest.mark.parametrize("num_frozen_layers", [0, 1])
def test_checkpointing_changes_nothing_but_memory(num_frozen_layers):
    plain = _model(num_frozen_layers=num_frozen_layers)
    checkpointed = _model(num_frozen_layers=num_frozen_layers, recompute=True)
    np.testing.assert_allclose(_train(plain), _train(checkpointed), rtol=1e-5)
    for one, two in zip(plain.variables, checkpointed.variables, strict=True):
        # Seeds of dropout among them.
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(one),
            keras.ops.convert_to_numpy(two),
            atol=1e-5,
            err_msg=one.path,
        )


def test_dropout_leaves_its_share_and_the_mean(monkeypatch):
    # Without the norms.
    monkeypatch.setattr(
        transformer_encoder, "_normalize", lambda x, *_, **more: x
    )
    layer = TransformerEncoder(
        intermediate_dim=8,
        num_heads=2,
        dropout=0.25,
        # Nothing but the residual, so that what is dropped is seen.
        kernel_initializer="zeros",
        activation="relu",
    )
    keras.utils.set_random_seed(0)
    # An odd number of numbers.
    x = keras.ops.zeros((11, 37, 9 * 2))
    layer(x)
    for variable in layer.weights:
        if "bias" in variable.path:
            variable.assign(keras.ops.ones_like(variable))
    first, second = (
        keras.ops.convert_to_numpy(layer(x, training=True)) for _ in range(2)
    )
    # Two sums of ones that were dropped or divided by 0.75.
    values, counts = np.unique(np.round(first * 0.75), return_counts=True)
    np.testing.assert_array_equal(values, [0, 1, 2])
    np.testing.assert_allclose(
        counts / first.size, [0.0625, 0.375, 0.5625], atol=0.015
    )
    assert np.mean(first != second) > 0.5
    kept = keras.ops.convert_to_numpy(layer(x, training=False))
    np.testing.assert_array_equal(kept, np.full(kept.shape, 2, "float32"))


# JAX tells what the backward pass is given.
_KEPT = """
import jax, numpy as np
from realm_tf.models.bert_encoder import BertEncoder

def kept(recompute):
    encoder = BertEncoder(vocabulary_size=60, num_layers=6, num_heads=2,
        hidden_dim=16, intermediate_dim=64)
    encoder.set_recompute(recompute)
    inputs = {name: np.ones((4, 64), "int32") for name in encoder.input}
    other = [v.value for v in encoder.non_trainable_variables]
    def loss(weights):
        outputs, other_after = encoder.stateless_call(
            weights, other, inputs, training=True)
        return outputs["pooled_output"].sum(), other_after
    weights = [v.value for v in encoder.trainable_variables]
    _, backward, _ = jax.vjp(loss, weights, has_aux=True)
    own = {id(w) for w in weights}
    return sum(x.nbytes for x in jax.tree.leaves(backward) if id(x) not in own)

print(kept(True) / kept(False))
"""


@pytest.mark.slow
def test_checkpointing_needs_less_memory():
    printed = python_code.run(_KEPT, KERAS_BACKEND="jax")
    # Six layers' inputs, or all that is inside of them.
    assert float(printed.split()[-1]) < 0.2, printed


@pytest.mark.parametrize("length", [6, 7])
def test_fused_attention_ignores_padding_as_products_do(monkeypatch, length):
    layer = TransformerEncoder(
        intermediate_dim=24,
        num_heads=2,
        activation="relu",
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.5),
        dtype="bfloat16",
    )
    keras.utils.set_random_seed(0)
    inputs = keras.random.normal((2, length, 16), dtype="bfloat16")
    padding_mask = keras.ops.convert_to_tensor(
        [[1] * length, [1] * 4 + [0] * (length - 4)]
    )
    calls = []

    def attend(*args, **arguments):
        calls.append(arguments)
        return dot_product_attention(*args, **arguments)

    dot_product_attention = keras.ops.dot_product_attention
    monkeypatch.setattr(
        transformer_encoder.ops, "dot_product_attention", attend
    )
    by_products = layer(inputs, padding_mask=padding_mask)
    assert not calls
    monkeypatch.setattr(transformer_encoder, "accelerator", lambda: "gpu")
    fused = layer(inputs, padding_mask=padding_mask)
    assert len(calls) == (length == 6)
    np.testing.assert_allclose(
        np.asarray(keras.ops.cast(fused, "float32")),
        np.asarray(keras.ops.cast(by_products, "float32")),
        atol=0.05,
    )


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="activation='relu'"):
        BertEncoder(9, 1, 1, 4, 8, activation="relu")
