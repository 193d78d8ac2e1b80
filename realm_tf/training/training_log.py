"""The log of a training run, log.jsonl."""

import json
import os
import time

import keras

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.training import hosts

# In the directory that the run writes.
LOG = "log.jsonl"
# The log of the masked-LM warm-up.
MASKED_LM_LOG = "masked_lm_log.jsonl"
# Values of a line that are no metrics.
COUNTERS = ("step", "steps", "seconds")


class TrainingLog(keras.callbacks.Callback):
    """Appends one line of JSON after each interval of `training.resume.fit`.

    `keras.callbacks.CSVLogger` fixes its columns at the first line and appends
    to a resumed run, so that intervals which are repeated after a kill occur
    twice. This callback first removes the lines after the restored step.

    A line holds `step` (steps done), `steps` (of the interval), `seconds` of
    training, without the time between a kill and the resumed run, and the
    metrics of the interval. A metric that counted no value is null.

    Args:
        path: str or `None`. The file, on a local disk; `None`: lines are kept
            in memory only. Of several processes the first one writes.
        done: int. Steps of the restored state. Defaults to `0`.

    Attributes:
        lines: list of dict. All lines of the run.

    Raises:
        InputError: if a line of the file is damaged.
    """

    def __init__(self, path: str | None, *, done: int = 0):
        super().__init__()
        self._path = path if hosts.is_first() else None
        self.lines = []
        if self._path:
            if os.path.exists(path):
                self.lines = [
                    line for line in read_log(path) if line["step"] <= done
                ]
            # A resumed run must not repeat a line.
            write_text(path, "".join(map(_encode, self.lines)))
        before = self.lines[-1]["seconds"] if self.lines else 0.0
        self._began = time.monotonic() - before

    def on_epoch_end(self, epoch, logs=None):
        step = steps_done(self.model)
        line = {
            "step": step,
            "steps": step - (self.lines[-1]["step"] if self.lines else 0),
            "seconds": round(time.monotonic() - self._began, 3),
            **{name: float(value) for name, value in logs.items()},
            # Keras gives 0 for the mean of nothing.
            **{name: None for name in self._empty_metrics()},
        }
        self.lines.append(line)
        if self._path:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(_encode(line))

    def _empty_metrics(self):
        for metric in self.model.metrics:
            if isinstance(metric, keras.metrics.Mean) and not float(
                metric.count
            ):
                yield metric.name


def steps_done(model) -> int:
    """Steps of `fit` so far, each of one batch.

    `iterations` of a Keras optimizer counts the changes of the weights, of
    which accumulated gradients make fewer.

    Args:
        model: compiled `keras.Model`.
    """
    return int(model.optimizer._iterations)


def read_log(path: str) -> list[dict]:
    """The lines of a run, finished or still going.

    Args:
        path: str. The file, the directory that holds it, or the directory
            that a run is still to make. A directory with the log of the
            masked-LM warm-up alone gives that one.

    Returns:
        list of dict; see `TrainingLog`. A torn last line is left out.

    Raises:
        InputError: if there is no such file, or a line is damaged.
    """
    path = _find_log(str(path).rstrip("/"))
    lines = []
    # A line without an end is torn.
    for number, row in enumerate(Path(path).read_text().split("\n")[:-1], 1):
        try:
            line = json.loads(row)
            int(line["step"])
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"{path}:{number}: expected a JSON object with `step`. "
                f"Received: {row[:80]!r}. Remove the line."
            ) from error
        lines.append(line)
    return lines


def _find_log(path):
    if Path(path).is_file():
        return path
    for name in (LOG, MASKED_LM_LOG):
        for directory in (path, f"{path}.partial"):
            if Path(found := os.path.join(directory, name)).is_file():
                return found
    raise InputError(
        f"{path} holds no {LOG}: expected a directory that a training wrote "
        "or is writing."
    )


def _encode(line):
    return f"{json.dumps(line)}\n"
