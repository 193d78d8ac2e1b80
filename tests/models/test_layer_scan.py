"""Layers in a loop, and random bytes, as on a TPU: here on CPU devices."""

import json

import eight_devices
import pytest

_CODE = """
    import json
    import jax, keras, numpy as np
    from realm_tf.models import layer_scan, random_bytes
    from realm_tf.models.bert_encoder import BertEncoder
    from realm_tf.training import devices

    random = np.random.default_rng(0)
    ids = random.integers(5, 60, (24, 10))
    inputs = {
        "token_ids": ids,
        "segment_ids": np.zeros_like(ids),
        "padding_mask": np.ones_like(ids),
    }
    targets = random.normal(size=(24, 1))
    lengths = []
    scan = jax.lax.scan

    def count(body, x, values):
        lengths.append(len(values[0][0]))
        return scan(body, x, values)

    jax.lax.scan = count

    def losses(accelerator, num_frozen, recompute, num_buckets):
        layer_scan.accelerator = lambda: accelerator
        keras.utils.set_random_seed(0)
        encoder = BertEncoder(
            60, 3, 2, 16, 32, dropout=0.3, num_relative_buckets=num_buckets
        )
        encoder.freeze(num_layers=num_frozen)
        encoder.set_recompute(recompute)
        output = encoder(encoder.input)["pooled_output"]
        model = keras.Model(encoder.input, keras.layers.Dense(1)(output))
        model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=True)
        fit = model.fit(
            inputs, targets, batch_size=8,
            epochs=2, shuffle=False, verbose=0,
        )
        return fit.history["loss"]

    found = {}
    for given in ([1, True, 32], [0, False, None]):
        found[json.dumps(given)] = [losses(None, *given), losses("tpu", *given)]
    x = np.zeros((64, 50), "float32")
    seed = np.array([7, 1], "uint32")
    with devices.use_all(64):
        draw = jax.jit(lambda seed: random_bytes.draw(seed, x))
        here, again = np.asarray(draw(seed)), np.asarray(draw(seed))
        other = np.asarray(draw(seed + 1))
    of_devices = {part.tobytes() for part in np.split(here, 8)}
    bits = [len(of_devices), (here == again).all(), (here == other).mean()]
    print(json.dumps([found, lengths, [float(b) for b in bits], here.mean()]))
"""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found():
    pytest.importorskip("jax")
    return json.loads(eight_devices.run(_CODE))


def test_a_loop_gives_what_layers_give(found):
    losses, lengths, _, _ = found
    for one_by_one, in_a_loop in losses.values():
        assert in_a_loop == pytest.approx(one_by_one, rel=1e-5)
        assert one_by_one[0] != pytest.approx(one_by_one[1], rel=1e-3)
    # One frozen layer and two that learn, or three that learn.
    assert set(lengths) == {1, 2, 3}


def test_each_device_draws_bytes_of_its_own(found):
    *_, (num_different, is_repeated, share_equal), mean = found
    assert (num_different, is_repeated) == (8, 1)
    assert share_equal == pytest.approx(1 / 256, abs=0.01)
    assert mean == pytest.approx(127.5, abs=4)


_MEMORY = """
    import jax, keras, numpy as np
    from realm_tf.models import layer_scan
    from realm_tf.models.bert_encoder import BertEncoder

    layer_scan.accelerator = lambda: "tpu"
    encoder = BertEncoder(60, 6, 2, 32, 128, dropout=0.1)
    ids = np.ones((8, 64), "int32")
    inputs = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids}
    weights, others = (
        [variable.value for variable in part]
        for part in (encoder.trainable_variables,
                     encoder.non_trainable_variables)
    )

    def temporaries():
        def loss(weights, inputs):
            outputs, _ = encoder.stateless_call(
                weights, others, inputs, training=True
            )
            return outputs["sequence_output"].sum()

        step = jax.jit(jax.grad(loss)).lower(weights, inputs).compile()
        return step.memory_analysis().temp_size_in_bytes

    products = temporaries()
    jax.checkpoint = lambda function, **_: function
    print(products, temporaries())
"""


def test_a_loop_keeps_products_alone():
    """Less memory than if it kept all that its layers compute."""
    pytest.importorskip("jax")
    products, everything = map(
        int, eight_devices.run(_MEMORY, number=1).split()
    )
    assert products < 0.7 * everything
