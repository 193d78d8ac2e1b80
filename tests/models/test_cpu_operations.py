import gc
import weakref

import keras
import numpy as np
import pytest

from realm_tf.models import cpu_operations
from realm_tf.models import precision
from realm_tf.models import transformer_encoder
from realm_tf.models.bert_encoder import ACTIVATIONS
from realm_tf.models.bert_encoder import BertEncoder

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="operations of TensorFlow's"
)

# bfloat16 keeps 8 bits of a number.
_PRECISION = pytest.mark.parametrize(
    ("dtype", "rtol"), [("float32", 2e-5), ("bfloat16", 0.02)]
)


def _with_gradients(function, inputs, weights, *, here):
    """What a graph computes, and its gradients; `here`, for this process."""
    import tensorflow as tf

    @tf.function
    def compute(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = function(*inputs)
            total = tf.reduce_sum(tf.cast(outputs, "float32") * weights)
        return outputs, *tape.gradient(total, inputs)

    if here:
        with cpu_operations.only_for_this_process():
            found = compute(*inputs)
    else:
        found = compute(*inputs)
    return [np.asarray(tf.cast(each, "float32")) for each in found], compute


def _are_close(found, expected, rtol):
    for one, two in zip(found, expected, strict=True):
        # The gradient of a key's bias is 0 but for rounding.
        largest = max(np.abs(two).max(), 1e-4)
        np.testing.assert_allclose(one, two, atol=rtol * largest)


@_PRECISION
def test_the_norm_and_its_gradients(dtype, rtol):
    import tensorflow as tf

    random = np.random.default_rng(0)
    inputs = [
        tf.cast(random.normal(mean, size=shape), dtype)
        for mean, shape in ((3, (40, 64)), (1, 64), (0, 64))
    ]
    weights = random.normal(size=(40, 64)).astype("float32")
    exact = [tf.cast(each, "float32") for each in inputs]

    def norm(x, gamma, beta):
        return transformer_encoder._normalize(x, gamma, beta, 1e-6)

    expected, _ = _with_gradients(norm, exact, weights, here=False)
    found, compute = _with_gradients(norm, inputs, weights, here=True)
    _are_close(found, expected, rtol)
    (traced,) = compute._list_all_concrete_functions()
    assert "_MklLayerNorm" in {
        each.type for each in traced.graph.get_operations()
    }


@pytest.mark.parametrize(
    ("has_avx512", "computed_in"), [(True, "bfloat16"), (False, "float32")]
)
def test_a_norm_is_float32_without_avx512(monkeypatch, has_avx512, computed_in):
    import tensorflow as tf

    monkeypatch.setattr(precision, "onednn_has_avx512", lambda: has_avx512)

    @tf.function
    def norm(x):
        ones = tf.ones(8, x.dtype)
        return transformer_encoder._normalize(x, ones, ones, 1e-6)

    with cpu_operations.only_for_this_process():
        traced = norm.get_concrete_function(tf.TensorSpec((4, 8), "bfloat16"))
    (operation,) = (
        each
        for each in traced.graph.get_operations()
        if each.type == "_MklLayerNorm"
    )
    assert operation.outputs[0].dtype == computed_in
    assert traced.outputs[0].dtype == "bfloat16"


@_PRECISION
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_gradients(name, dtype, rtol):
    import tensorflow as tf

    activation = ACTIVATIONS[name]
    x = tf.cast(np.linspace(-6, 6, 1001), dtype)
    weights = np.random.default_rng(0).normal(size=1001).astype("float32")
    expected, _ = _with_gradients(
        activation, [tf.cast(x, "float32")], weights, here=False
    )
    found, _ = _with_gradients(activation.in_training, [x], weights, here=False)
    _are_close(found, expected, rtol)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(
    ("name", "num_relative_buckets"),
    [("gelu", 0), ("gelu_approximate", 0), ("gelu", 32)],
)
def test_a_step_of_training_is_the_same(name, num_relative_buckets, recompute):
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    encoder = BertEncoder(
        vocabulary_size=60,
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=32,
        activation=name,
        dropout=0.0,
        num_relative_buckets=num_relative_buckets,
    )
    encoder.set_recompute(recompute)
    random = np.random.default_rng(0)
    # The last row is padding alone.
    mask = np.arange(9) < np.array([9, 4, 7, 1, 0])[:, None]
    inputs = {
        "token_ids": random.integers(5, 60, mask.shape),
        "segment_ids": random.integers(0, 2, mask.shape),
        "padding_mask": mask.astype("int32"),
    }
    weights = random.normal(size=(*mask.shape, 16)) * mask[..., None]

    def outputs_and_gradients():
        @tf.function
        def compute():
            with tf.GradientTape() as tape:
                found = encoder(inputs, training=True)["sequence_output"]
                total = tf.reduce_sum(found * tf.cast(weights, found.dtype))
            return found, tape.gradient(total, encoder.trainable_weights)

        found, gradients = compute()
        return [
            np.asarray(tf.convert_to_tensor(each)) for each in gradients[:-2]
        ], np.asarray(found)

    expected, before = outputs_and_gradients()
    with cpu_operations.only_for_this_process():
        gradients, after = outputs_and_gradients()
    np.testing.assert_allclose(after[mask], before[mask], atol=2e-6)
    # Nothing was computed for padding.
    assert not after[~mask].any() and before[~mask].any()
    _are_close(gradients, expected, 2e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nothing_outlives_the_graph(name):
    """What `tf.custom_gradient` makes does, and the weights with it."""
    import tensorflow as tf

    def function(x):
        rows = cpu_operations.WithoutPadding([[1, 1, 0, 1]])
        x = ACTIVATIONS[name].in_training(rows.drop(x))
        ones = tf.ones(8)
        return rows.restore(transformer_encoder._normalize(x, ones, ones, 1e-6))

    _, compute = _with_gradients(function, [tf.ones((4, 8))], 1.0, here=True)
    graphs = [
        weakref.ref(each.graph)
        for each in compute._list_all_concrete_functions()
    ]
    del compute
    gc.collect()
    assert len(graphs) == 1
    assert [graph() for graph in graphs] == [None]


def test_what_compile_trainer_compiles_takes_them():
    from realm_tf.configs.recipes import Optimizer
    from realm_tf.training import trainers

    possible = []

    class Trainer(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.dense.build((None, 3))

        def call(self, inputs):
            possible.append(cpu_operations.are_possible())
            return self.dense(inputs)

    trainer = Trainer()
    trainers.compile_trainer(trainer, Optimizer(), 10, loss="mse")
    trainer.train_on_batch(np.ones((2, 3)), np.ones((2, 1)))
    assert possible[-1] is True
    trainer.predict(np.ones((2, 3)), verbose=0)
    assert possible[-1] is False
