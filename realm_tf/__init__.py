"""REALM on Keras 3: retrieval-augmented language models, end to end."""

from realm_tf.errors import InputError
from realm_tf.version import __version__

__all__ = ["InputError", "__version__", "load"]


def load(directory: str):
    """Opens a model directory; see `realm_tf.artifacts.model_directory.load`."""
    # Keras is imported when a model is, not when the package is.
    from realm_tf.artifacts import model_directory

    return model_directory.load(directory)
