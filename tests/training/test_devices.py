import eight_devices
import keras
import numpy as np
import pytest

from realm_tf.configs import ict
from realm_tf.training import devices


def test_a_batch_is_filled_up():
    batch = {
        "token_ids": np.arange(6, dtype="int32").reshape(3, 2),
        "mask_weights": np.ones((3, 2), "float32"),
        "block_id": np.array([4, 5, 6], "int32"),
    }
    filled = devices.fill(batch, 5, mask_weights=0, block_id=-1)
    assert {k: v.dtype.name for k, v in filled.items()} == {
        "token_ids": "int32",
        "mask_weights": "float32",
        "block_id": "int32",
    }
    assert filled["token_ids"].tolist() == [[0, 1], [2, 3], *[[4, 5]] * 3]
    assert filled["mask_weights"].tolist() == [*[[1, 1]] * 3, *[[0, 0]] * 2]
    assert filled["block_id"].tolist() == [4, 5, 6, -1, -1]
    for name, array in devices.fill(batch, 3, block_id=-1).items():
        np.testing.assert_array_equal(array, batch[name])


@pytest.mark.parametrize("num_rows", [1, 4, 7])
def test_predict_gives_each_row_its_output(num_rows):
    inputs = {name: keras.Input((2,), name=name) for name in "xy"}
    model = keras.Model(
        inputs, {"sum": inputs["x"] + inputs["y"], "x": inputs["x"]}
    )
    x = np.arange(2.0 * num_rows).reshape(num_rows, 2)
    found = devices.predict(model, {"x": x, "y": 3 * x}, batch_size=4)
    np.testing.assert_array_equal(found["sum"], 4 * x)
    np.testing.assert_array_equal(found["x"], x)


def test_a_recipe_says_precision_and_seed():
    recipe = ict.get_recipe("tiny", ["mixed_precision=true", "seed=3"])
    kernels = []
    for _ in range(2):
        with devices.of_recipe(recipe):
            layer = keras.layers.Dense(3)
            layer.build((1, 2))
        assert layer.compute_dtype == "bfloat16"
        kernels.append(keras.ops.convert_to_numpy(layer.kernel))
    np.testing.assert_array_equal(*kernels)
    assert keras.config.dtype_policy().name == "float32"


def test_on_eight_devices():
    pytest.importorskip("jax")
    code = """
        import keras, numpy as np
        from realm_tf.errors import InputError
        from realm_tf.training import devices

        try:
            with devices.use_all(12):
                raise AssertionError("not refused")
        except InputError as error:
            assert "batch_size=12" in str(error), error
        with devices.use_all(16):
            inputs = keras.Input((2,), name="x")
            model = keras.Model({"x": inputs}, 2.0 * inputs)
            for num_rows in (1, 16, 21):
                x = np.arange(2.0 * num_rows).reshape(num_rows, 2)
                found = devices.predict(model, {"x": x}, batch_size=16)
                np.testing.assert_array_equal(found, 2 * x)
        assert keras.distribution.distribution() is None
        print("done")
    """
    assert eight_devices.run(code) == "done\n"
