"""The learning rate and AdamW against loops over numbers."""

import keras
import numpy as np
import pytest

from realm_tf.training.optimizers import LinearWarmupAndDecay
from realm_tf.training.optimizers import bert_adamw
from realm_tf.training.optimizers import warmup_steps


@pytest.mark.parametrize(
    ("num_steps", "expected"),
    [
        (1, 0),
        (2, 1),
        (150, 75),
        (200, 100),
        (900, 100),
        (5_000, 500),
        (100_000, 10_000),
        (1_000_000, 10_000),
    ],
)
def test_warmup_steps(num_steps, expected):
    assert warmup_steps(num_steps) == expected


def test_the_rate_rises_and_falls_in_straight_lines():
    schedule = LinearWarmupAndDecay(0.5, 10, 4)
    rates = [float(schedule(step)) for step in range(12)]
    np.testing.assert_allclose(
        rates,
        # 1/4 ... 4/4 of 0.5, then down to 0 at step 10 in sixths.
        [0.125, 0.25, 0.375, 0.5, 0.5]
        + [0.5 * left / 6 for left in (5, 4, 3, 2, 1)]
        + [0.0, 0.0],
        atol=1e-7,
    )


@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_the_shortest_runs_learn(num_steps):
    schedule = LinearWarmupAndDecay(1.0, num_steps, warmup_steps(num_steps))
    rates = [float(schedule(step)) for step in range(num_steps)]
    assert max(rates) == 1.0 and min(rates) > 0


def test_the_schedule_is_serialised():
    schedule = LinearWarmupAndDecay(0.5, 10, 4)
    config = keras.saving.serialize_keras_object(schedule)
    copy = keras.saving.deserialize_keras_object(config)
    assert copy.get_config() == schedule.get_config()
    assert float(copy(2)) == float(schedule(2))


def test_adamw_against_a_loop():
    """Decay of kernels only, clipping by the norm of all gradients."""
    random = np.random.default_rng(0)
    names = ("kernel", "bias", "gamma", "beta")
    values = {name: random.normal(size=3) for name in names}
    variables = [
        keras.Variable(values[name].astype("float32"), name=name)
        for name in names
    ]
    num_steps = 4
    optimizer = bert_adamw(0.1, num_steps)
    optimizer.build(variables)
    moments = {name: (np.zeros(3), np.zeros(3)) for name in names}
    # The first gradients are clipped, the last are not.
    for step, size in enumerate((10.0, 5.0, 0.1, 0.05)):
        gradients = {name: size * random.normal(size=3) for name in names}
        optimizer.apply(
            [
                keras.ops.convert_to_tensor(g.astype("float32"))
                for g in gradients.values()
            ],
            variables,
        )
        rate = 0.1 * min((step + 1) / 2, (num_steps - step) / 2)
        norm = np.sqrt(sum(np.sum(g**2) for g in gradients.values()))
        assert (norm > 1) == (size > 1)
        for name, gradient in gradients.items():
            gradient = gradient / max(1.0, norm)
            first, second = moments[name]
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            moments[name] = first, second
            if name == "kernel":
                values[name] = values[name] * (1 - 0.01 * rate)
            # Kingma and Ba, 2014, end of section 2: epsilon is not corrected.
            corrected = np.sqrt(1 - 0.999 ** (step + 1)) / (
                1 - 0.9 ** (step + 1)
            )
            values[name] = values[name] - rate * corrected * first / (
                np.sqrt(second) + 1e-6
            )
    for variable in variables:
        np.testing.assert_allclose(
            np.asarray(variable), values[variable.name], atol=1e-5
        )
