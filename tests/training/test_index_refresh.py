"""The callbacks that exchange the index of a model in training."""

import os
import threading
import time

import keras
import numpy as np
import pytest
from step_counter import StepCounter
from waiting import wait_for

from realm_tf.errors import InputError
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.training import index_refresh
from realm_tf.training.index_refresh import IndexVersions


class Trainer(StepCounter):
    """A step reads the whole index; the tower's weight counts the steps."""

    def __init__(self):
        super().__init__()
        self.index = BruteForce(np.zeros((4, 2), "float32"))

    def call(self, inputs):
        index = keras.ops.sum(self.index.embeddings)
        return super().call(inputs) + 0.0 * index


class _Seen(keras.callbacks.Callback):
    """What the index held at each step, and what the logs say.

    Args:
        at_end: function of the number of steps done, called after each.
    """

    def __init__(self, at_end=lambda step: None):
        super().__init__()
        self.indices, self.logs = [], []
        self._at_end = at_end

    def on_train_batch_end(self, batch, logs=None):
        self._at_end(len(self.logs) + 1)
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()
        self.indices.append(np.array(self.model.index.embeddings))
        self.logs.append(dict(logs))


class _Builder:
    """Gives indices filled with the tower's weight: the step."""

    def __init__(self, *, may_end=None, failures=()):
        self._may_end = may_end
        self._failures = set(failures)

    def __call__(self, weights, stopped):
        step = weights[0].item()
        if step in self._failures:
            self._failures.remove(step)
            raise MemoryError("too little of it")
        while self._may_end and not self._may_end.is_set():
            if stopped.wait(0.01):
                break
        return np.full((4, 2), step, "float32")


def _building():
    return [t for t in threading.enumerate() if "_build" in t.name]


def _fit(
    directory,
    *,
    num_steps,
    every_steps,
    first_step=0,
    state=None,
    wait=False,
    accumulated=None,
    at_end=None,
    **builder,
):
    model = Trainer()
    model.compile(
        optimizer=keras.optimizers.SGD(
            1.0, gradient_accumulation_steps=accumulated
        )
    )
    model.optimizer.build(model.trainable_variables)
    iterations, *_ = model.optimizer.variables
    iterations.assign(first_step)
    refresh = index_refresh.IndexRefresh(
        model.index,
        model.tower,
        _Builder(**builder),
        versions=IndexVersions(str(directory)),
        every_steps=every_steps,
        wait=wait,
    )
    if state is not None:
        refresh.set_state(state)
    seen = _Seen(at_end or (lambda step: wait_for(lambda: not _building())))
    model.fit(
        {"x": np.ones((num_steps, 1), "float32")},
        batch_size=1,
        verbose=0,
        shuffle=False,
        callbacks=[refresh, seen],
    )
    refresh.close()
    assert not _building()
    return refresh, seen


def test_indices_are_whole_and_as_old_as_the_logs_say(tmp_path):
    refresh, seen = _fit(tmp_path, num_steps=40, every_steps=5)
    values = [np.unique(index) for index in seen.indices]
    assert all(len(value) == 1 for value in values), "a mixed index"
    made_from = [int(value[0]) for value in values]
    ages = [logs["index_age"] for logs in seen.logs]
    assert ages == [step - made for step, made in enumerate(made_from)]
    # The builder keeps up: an index is due every five steps, and used next.
    assert refresh.swaps == [(n + 1, n) for n in range(5, 40, 5)]
    for step, made in refresh.swaps:
        assert made_from[step] == made and made_from[step - 1] < made


@pytest.mark.parametrize("every_steps", [0, 3])
def test_training_that_waits_has_an_index_every_few_steps(
    every_steps, tmp_path
):
    refresh, seen = _fit(
        tmp_path, num_steps=8, every_steps=every_steps, wait=True
    )
    due = [3, 6] if every_steps else []
    assert refresh.swaps == [(step, step) for step in due]
    made_from = [int(np.unique(index).item()) for index in seen.indices]
    assert made_from == [3 * (step // 3) if due else 0 for step in range(8)]
    ages = [logs["index_age"] for logs in seen.logs]
    assert ages == [step - made for step, made in enumerate(made_from)]
    assert "index_minutes" not in seen.logs[0]
    # A failure is not for later: the run would not be exact.
    with pytest.raises(MemoryError):
        _fit(tmp_path, num_steps=3, every_steps=1, wait=True, failures=(2,))


def test_a_slow_builder_sets_the_pace_and_nobody_waits(tmp_path):
    may_end = threading.Event()

    def at_end(step):
        if step == 20:
            may_end.set()
            wait_for(lambda: not _building())
            may_end.clear()

    refresh, seen = _fit(
        tmp_path, num_steps=40, every_steps=1, may_end=may_end, at_end=at_end
    )
    # One index came after step 20; the next is still being made at the end.
    assert refresh.swaps == [(20, 1)]
    assert seen.logs[-1]["index_age"] == 38


def test_a_builder_that_failed_is_asked_again(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(index_refresh, "_SECONDS_OF_PAUSE", 0.1)
    refresh, _ = _fit(tmp_path, num_steps=30, every_steps=5, failures=(5,))
    assert refresh.swaps[0][1] == 5, "the same weights, embedded after all"
    assert "MemoryError: too little of it" in capsys.readouterr().err


@pytest.mark.parametrize("accumulated", [None, 4])
def test_a_resumed_run_knows_the_age_of_its_index(tmp_path, accumulated):
    state = {"index_step": 7, "taken_at": time.time() - 120}
    IndexVersions(str(tmp_path)).write(7, np.zeros((4, 2), "float32"))
    refresh, seen = _fit(
        tmp_path,
        num_steps=2,
        every_steps=1000,
        first_step=10,
        state=state,
        accumulated=accumulated,
    )
    assert [logs["index_age"] for logs in seen.logs] == [3, 4]
    assert seen.logs[0]["index_minutes"] >= 2.0
    assert refresh.get_state() == state


def test_an_index_on_request(tmp_path):
    """As an evaluation between two epochs asks for it."""
    model = Trainer()
    model.compile(optimizer=keras.optimizers.SGD(1.0))
    refresh = index_refresh.IndexRefresh(
        model.index,
        model.tower,
        _Builder(),
        versions=IndexVersions(str(tmp_path)),
        every_steps=3,
        wait=True,
    )

    class AtTheEnd(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            refresh.refresh()

    model.fit(
        {"x": np.ones((4, 1), "float32")},
        epochs=2,
        batch_size=1,
        verbose=0,
        shuffle=False,
        callbacks=[refresh, AtTheEnd(), seen := _Seen()],
    )
    # Each is counted from the one before.
    assert refresh.swaps == [(3, 3), (4, 4), (7, 7), (8, 8)]
    ages = [logs["index_age"] for logs in seen.logs]
    assert ages == [0, 1, 2, 0, 0, 1, 2, 0]
    assert refresh.get_state()["index_step"] == 8
    np.testing.assert_array_equal(
        IndexVersions(str(tmp_path)).read(8), np.full((4, 2), 8, "float32")
    )


def _rows(value):
    return np.full((3, 2), value, "float32")


def test_two_states_have_their_versions(tmp_path):
    versions = IndexVersions(str(tmp_path / "index"))
    for step in (0, 500, 1000):
        versions.write(step, _rows(step))
        versions.keep(step)
        # The state is saved again before the next index.
        versions.keep(step)
    # A builder made it; no state names it.
    versions.write(1500, _rows(1500))
    versions.keep(1000)
    found = sorted(os.listdir(tmp_path / "index"))
    assert found == ["00000500.npy", "00001000.npy", "00001500.npy"]
    again = IndexVersions(str(tmp_path / "index"))
    read = again.read(500)
    np.testing.assert_array_equal(read, _rows(500))
    again.write(900, _rows(900))
    again.keep(900)
    # That of the state on the disk stays until one that names 900 is there.
    assert "00000500.npy" in os.listdir(tmp_path / "index")
    again.write(1400, _rows(1400))
    again.keep(1400)
    assert sorted(os.listdir(tmp_path / "index"))[0] == "00000900.npy"
    # NFS calls a removed file that is still mapped so.
    (tmp_path / "index" / ".nfs0000000000000007").touch()
    again.keep(1400)
    # Removed, but whoever searches it still has it.
    np.testing.assert_array_equal(read, _rows(500))


def test_torn_and_missing_versions_are_refused(tmp_path):
    versions = IndexVersions(str(tmp_path))
    versions.write(7, _rows(7))
    path = tmp_path / "00000007.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InputError, match="00000007.npy is damaged"):
        versions.read(7)
    with pytest.raises(InputError, match="00000008.npy is missing"):
        versions.read(8)
