import eight_devices
import keras
import numpy as np
import pytest

from realm_tf.configs import ict
from realm_tf.training import devices


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
    recipe = ict.RECIPES["tiny"].parse(["mixed_precision=true", "seed=3"])
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
