"""The learning rate and AdamW against loops over numbers."""

import keras
import numpy as np
import pytest

from realm_tf.training.optimizers import BertAdamW
from realm_tf.training.optimizers import LinearWarmupAndDecay
from realm_tf.training.optimizers import warmup_steps

JIT = keras.backend.backend() == "jax"
SHAPES = {"kernel": (3, 4), "bias": (4,), "gamma": (4,), "beta": (4,)}


@pytest.mark.parametrize(
    ("num_steps", "expected"),
    [(1, 0), (150, 75), (900, 100), (5_000, 500), (1_000_000, 10_000)],
)
def test_warmup_steps(num_steps, expected):
    assert warmup_steps(num_steps) == expected


def test_the_rate_rises_and_falls_in_straight_lines():
    schedule = LinearWarmupAndDecay(0.5, 10)
    rates = [float(schedule(step)) for step in range(12)]
    np.testing.assert_allclose(
        rates,
        # 1/5 ... 5/5 of 0.5, then down to 0 at step 10 in fifths.
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0, 0.0],
        atol=1e-7,
    )


def _variables(values):
    return [
        keras.Variable(value.astype("float32"), name=name)
        for name, value in values.items()
    ]


def _apply(optimizer, gradients, variables):
    optimizer.apply(
        [
            keras.ops.convert_to_tensor(g.astype("float32"))
            for g in gradients.values()
        ],
        variables,
    )


def _reference(values, gradients, rates, *, bias_correction):
    """google-research/bert's loop in float64; yields values after each step."""
    first = {name: np.zeros_like(value) for name, value in values.items()}
    second = dict(first)
    for step, (rate, grads) in enumerate(
        zip(rates, gradients, strict=True), start=1
    ):
        norm = np.sqrt(sum(np.sum(g**2) for g in grads.values()))
        for name, gradient in grads.items():
            gradient = gradient / max(1.0, norm)
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.999 * second[name] + 0.001 * gradient**2
            if bias_correction:
                # Kingma and Ba, 2014, end of section 2: epsilon is not
                # corrected.
                corrected = np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            else:
                corrected = 1.0
            update = corrected * first[name] / (np.sqrt(second[name]) + 1e-6)
            if name == "kernel":
                update = update + 0.01 * values[name]
            values = {**values, name: values[name] - rate * update}
        yield values


@pytest.mark.parametrize("bias_correction", [False, True])
# All gradients, some, or none of them are clipped.
@pytest.mark.parametrize("scale", [3.0, 0.2, 0.05])
def test_fifty_steps_against_a_loop_in_float64(bias_correction, scale):
    random = np.random.default_rng(0)
    values = {name: random.normal(size=s) for name, s in SHAPES.items()}
    gradients = [
        {
            name: scale * random.normal(size=shape)
            for name, shape in SHAPES.items()
        }
        for _ in range(50)
    ]
    # The rate rises over 25 steps and falls over 25.
    rates = [
        0.02 * min((step + 1) / 25, (50 - step) / 25) for step in range(50)
    ]
    variables = _variables(values)
    optimizer = BertAdamW(
        LinearWarmupAndDecay(0.02, 50), bias_correction=bias_correction
    )
    expected = _reference(
        values, gradients, rates, bias_correction=bias_correction
    )
    for step, (grads, wanted) in enumerate(
        zip(gradients, expected, strict=True)
    ):
        _apply(optimizer, grads, variables)
        for variable in variables:
            np.testing.assert_allclose(
                np.asarray(variable),
                wanted[variable.name],
                atol=1e-5,
                err_msg=f"{variable.name}, step {step}",
            )


def _model(*, dense=False):
    """Rows that are looked up several times, a LayerNorm and a bias."""
    keras.utils.set_random_seed(0)
    # A layer's name does not decide: only the variable's does.
    lookup = [keras.layers.Embedding(5, 4, name="beta_bias")]
    if dense:
        lookup = [
            keras.layers.CategoryEncoding(5, output_mode="one_hot"),
            keras.layers.Dense(4, use_bias=False),
        ]
    model = keras.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            *lookup,
            keras.layers.LayerNormalization(),
            keras.layers.Dense(2),
        ]
    )
    model.build()
    return model


def _fit(model, optimizer, num_steps=3):
    random = np.random.default_rng(2)
    model.compile(optimizer=optimizer, loss="mse", jit_compile=JIT)
    for _ in range(num_steps):
        model.train_on_batch(
            random.integers(0, 3, size=(4, 3)),
            5 * random.normal(size=(4, 3, 2)).astype("float32"),
        )
    return model


def test_what_decays_is_told_by_the_variables_name():
    """With rate 1 and no gradient, 1 % of the weight goes."""
    model = _model()
    before = {v.path: np.asarray(v).copy() for v in model.variables}
    BertAdamW(1.0).apply(
        [keras.ops.zeros(v.shape) for v in model.trainable_variables],
        model.trainable_variables,
    )
    for variable in model.trainable_variables:
        decays = variable.name in ("embeddings", "kernel")
        np.testing.assert_allclose(
            np.asarray(variable),
            before[variable.path] * (0.99 if decays else 1.0),
            rtol=1e-6,
            err_msg=variable.path,
        )


def test_rows_looked_up_twice_count_in_the_norm():
    """TensorFlow's sparse gradients give what dense ones give."""
    sparse, dense = _model(), _model(dense=True)
    dense.set_weights(sparse.get_weights())
    for model in (sparse, dense):
        _fit(model, BertAdamW(0.05))
    for one, two in zip(sparse.get_weights(), dense.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, atol=2e-5)
