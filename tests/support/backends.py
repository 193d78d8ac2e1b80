"""Tests that run on one backend of Keras alone."""

import keras
import pytest

exports = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="a SavedModel is made with the TensorFlow backend",
)
