import eight_devices
import pytest


def test_on_eight_devices():
    pytest.importorskip("jax")
    code = """
        import keras, numpy as np
        from realm_tf.errors import InputError
        from realm_tf.retrieval import block_embedder
        from realm_tf.training import devices

        try:
            with devices.use_all(12):
                raise AssertionError("not refused")
        except InputError as error:
            assert "batch_size=12" in str(error), error
        with devices.use_all(16):
            inputs = keras.Input((2,), name="x")
            model = keras.Model({"x": inputs}, 2.0 * inputs)
            for num_rows in (1, 64, 70):
                x = np.arange(2.0 * num_rows).reshape(num_rows, 2)
                found = block_embedder.predict(model, {"x": x})
                np.testing.assert_array_equal(found, 2 * x)
        assert keras.distribution.distribution() is None
        print("done")
    """
    assert eight_devices.run(code) == "done\n"
