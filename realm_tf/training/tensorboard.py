"""What TensorBoard shows of a training run."""

import contextlib

import keras

from realm_tf.errors import InputError
from realm_tf.training.training_log import LOG


class TensorBoardWriter:
    """Writes what TensorBoard shows.

    For steps that are done again after a kill, their values are there twice.

    Args:
        directory: str. The run's own; made if need be.

    Raises:
        InputError: if TensorFlow is not installed.
    """

    # `keras.callbacks.TensorBoard` would count the steps of every `fit` from
    # 0 and show means since the epoch began.
    def __init__(self, directory: str):
        try:
            import tensorflow as tf
        except ImportError as error:
            raise InputError(
                "TensorBoard's files are written by TensorFlow, which is not "
                f"installed: run `pip install tensorflow`, or do without; {LOG} "
                "holds the same numbers."
            ) from error
        if keras.backend.backend() != "tensorflow":
            # It shall take no memory of a GPU on which JAX trains; what it
            # took when it was in use before, it has.
            with contextlib.suppress(RuntimeError):
                tf.config.set_visible_devices([], "GPU")
        self._summary = tf.summary
        self._writer = tf.summary.create_file_writer(str(directory))

    def scalars(self, line: dict, *, prefix: str = "") -> None:
        """Writes the numbers of a line of `TrainingLog`, by their names.

        Args:
            line: dict.
            prefix: str. Put before each name. Defaults to none.
        """
        with self._writer.as_default(step=line["step"]):
            for name, value in line.items():
                if name not in ("step", "steps") and value is not None:
                    self._summary.scalar(f"{prefix}{name}", value)
        self._writer.flush()

    def text(self, name: str, text: str, *, step: int) -> None:
        """Writes Markdown."""
        with self._writer.as_default(step=step):
            self._summary.text(name, text)
        self._writer.flush()
