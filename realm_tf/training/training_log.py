"""What a training run says of itself: log.jsonl, and TensorBoard if asked."""

import json
import math
import numbers
import os
import time

import keras
import numpy as np

from realm_tf.artifacts.paths import Path
from realm_tf.data import feeding
from realm_tf.errors import InputError
from realm_tf.training import hosts

# In the directory that the run writes.
LOG = "log.jsonl"
# Of the masked-LM warm-up before.
MASKED_LM_LOG = "masked_lm_log.jsonl"
# Digits that float32 sums can tell.
_NUM_DIGITS = 7


def log_of(path: str, **arguments) -> dict:
    """`TrainingLog` among the parts of `training.resume.fit`.

    Args:
        path: str.
        **arguments: of `TrainingLog`.

    Returns:
        dict, empty where another process of the run writes the log.
    """
    if not hosts.is_first():
        return {}
    return {"training_log": TrainingLog(path, **arguments)}


class TrainingLog(keras.callbacks.Callback):
    """Appends a line of JSON every so many steps.

    Keras's own logs are means since the epoch began. Here each line holds means
    over the steps since the line before: the totals and counts of the model's
    metrics (`keras.metrics.Mean`), less what they were then. So every example,
    or masked wordpiece, counts as it does in the metric, over the end of an
    epoch too. Numbers that other callbacks put into the logs, such as
    `index_age`, are averaged over the same steps; those callbacks come before
    this one.

    A line: `step` (steps done), `steps` (how many it is the mean of),
    `seconds` (of training, without the time between a kill and the resumed
    run), `examples_per_second` (without the first step of a run, which
    compiles), then all means by name. What is unknown or not finite is null.

    As one of the `parts` of `training.resume`, it goes on within a line after
    a kill: the lines are those of a run that was never stopped, but for their
    times. What was written after the restored step, such as a torn line, is
    removed; without a state, all that is there.

    Between two lines nothing is read from the device.

    Args:
        path: str. The file, on a local disk.
        every_steps: int. Steps between two lines.
        num_steps: int. Of the whole run, whose last step has a line in any
            case.
        writer: `TensorBoardWriter`, to which lines are written, too. Defaults
            to `None`.
        prefix: str. Before the names there. Defaults to none.
    """

    def __init__(
        self,
        path: str,
        *,
        every_steps: int,
        num_steps: int,
        writer=None,
        prefix: str = "",
    ):
        super().__init__()
        self.path = str(path)
        self._every_steps = every_steps
        self._num_steps = num_steps
        self._writer = writer
        self._prefix = prefix
        # Steps done, and those that have a line.
        self._step = 0
        self._logged = None
        # Bytes of the lines.
        self._size = 0
        # Name to [total, count] since the last line, and of the metrics when
        # they were last read.
        self._sums = {}
        self._totals = None
        self._seconds = 0.0
        self._clock_at = None
        # (seconds, step) from which on the rate is measured.
        self._timed_from = None

    def get_state(self):
        """What `training.resume` keeps of this."""
        if self._totals is not None:
            # The state of the metrics is kept beside this: both at one step.
            self._gather()
        self._tick()
        return {
            "step": self._logged,
            "size": self._size,
            "seconds": self._seconds,
            "sums": {name: list(pair) for name, pair in self._sums.items()},
        }

    def set_state(self, state):
        """Takes up what `get_state` gave."""
        self._logged = state["step"]
        self._size = state["size"]
        self._seconds = state["seconds"]
        self._sums = {name: list(pair) for name, pair in state["sums"].items()}

    def on_train_begin(self, logs=None):
        self._step = feeding.steps_done(self.model.optimizer)
        if self._clock_at is None:
            if self._logged is None:
                self._logged = self._step
            with open(self.path, "ab") as file:
                file.truncate(min(self._size, file.tell()))
            self._clock_at = time.monotonic()

    # Here and not at the end of the step before: by now all callbacks have
    # seen that step, and the metrics of an epoch that was broken off are back.
    def on_train_batch_begin(self, batch, logs=None):
        if self._totals is None:
            self._totals = self._read_totals()
        if self._step // self._every_steps > self._logged // self._every_steps:
            self._write_line()

    def on_train_batch_end(self, batch, logs=None):
        self._step += 1
        for name, value in (logs or {}).items():
            if name not in self._totals and isinstance(value, numbers.Real):
                self._add(name, float(value), 1)
        if self._timed_from is None:
            self._tick()
            self._timed_from = (self._seconds, self._step)

    def on_epoch_end(self, epoch, logs=None):
        if self._totals is not None:
            self._gather()
        # Keras sets the metrics back to 0.
        self._totals = None

    def on_train_end(self, logs=None):
        finished = self._step >= self._num_steps
        if self._step > self._logged and (finished or self.model.stop_training):
            self._write_line()

    def _tick(self):
        if self._clock_at is not None:
            now = time.monotonic()
            self._seconds += now - self._clock_at
            self._clock_at = now

    def _add(self, name, total, count):
        pair = self._sums.setdefault(name, [0.0, 0.0])
        pair[0] += total
        pair[1] += count

    def _read_totals(self):
        # A callback that asks Keras for its model finds the values of the last
        # step in its variables, on JAX too.
        return {
            metric.name: (
                float(np.asarray(metric.total)),
                float(np.asarray(metric.count)),
            )
            for metric in self.model.metrics
        }

    def _gather(self):
        totals = self._read_totals()
        for name, (total, count) in totals.items():
            before = self._totals[name]
            self._add(name, total - before[0], count - before[1])
        self._totals = totals

    def _write_line(self):
        if self._totals is not None:
            self._gather()
        self._tick()
        steps = self._step - self._logged
        line = {
            "step": self._step,
            "steps": steps,
            "seconds": round(self._seconds, 3),
            "examples_per_second": _round(self._rate(steps)),
            **{
                name: _round(total / count if count else math.nan)
                for name, (total, count) in self._sums.items()
            },
        }
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{json.dumps(line, allow_nan=False)}\n")
            self._size = file.tell()
        self._logged = self._step
        self._sums = {}
        self._timed_from = (self._seconds, self._step)
        if self._writer:
            self._writer.scalars(line, prefix=self._prefix)

    def _rate(self, steps):
        # Keras weights the loss by the number of examples.
        num_examples = self._sums["loss"][1] if "loss" in self._sums else 0
        if self._timed_from is None or not num_examples:
            return math.nan
        seconds, step = self._timed_from
        seconds, timed = self._seconds - seconds, self._step - step
        return num_examples / steps * timed / seconds if timed else math.nan


def read_log(path: str) -> list[dict]:
    """The lines of a run, finished or still going.

    Args:
        path: str. The file, the directory that holds it, or the directory
            that a run is still to make. Of a directory that has none but the
            masked-LM warm-up's, this one.

    Returns:
        list of dict; see `TrainingLog`. A last line that is torn is left out.

    Raises:
        InputError: if there is no such file, or a line of it is damaged.
    """
    path = _find_log(str(path).rstrip("/"))
    lines = []
    # What has no end is torn.
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
        f"{path} holds no {LOG}: expected a directory that `realm pretrain` "
        "wrote or is writing."
    )


def _round(value):
    if not math.isfinite(value):
        return None
    return float(f"{value:.{_NUM_DIGITS}g}")
