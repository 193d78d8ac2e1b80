import keras
import numpy as np
import pytest
from step_counter import StepCounter
from training_runs import Stop

from realm_tf.training import resume
from realm_tf.training.selection import SelectBest


def _batches(first):
    while True:
        yield {"x": np.ones((1, 1), "float32")}


def _run(directory, values, *callbacks, at, **options):
    """A run in which step n measures `values[n]`."""
    model = StepCounter()
    model.compile(optimizer=keras.optimizers.SGD(1.0))

    selection = SelectBest(
        lambda: {"dev_share": values[model.steps]},
        model,
        str(directory / "selection"),
        at=at,
        metric="dev_share",
        **options,
    )
    rows = resume.fit(
        model,
        _batches,
        log_every=2,
        epoch_ends=[each for each in at if each],
        directory=str(directory),
        log=str(directory / "log.jsonl"),
        every_seconds=0.0,
        parts={"selection": selection},
        callbacks=callbacks,
        verbose=0,
    )
    best = selection.restore_best()
    assert model.steps == best["best_step"]
    return selection.measured, best, [row.get("dev_share") for row in rows]


@pytest.mark.parametrize("killed_after", [None, 1, 4, 6, 7])
def test_the_best_weights_are_kept(tmp_path, killed_after):
    """Of equal ones, the earlier; killed or not."""
    values = {0: 0.2, 3: 0.1, 6: 0.5, 9: 0.5}
    if killed_after:
        with pytest.raises(KeyboardInterrupt):
            _run(tmp_path, values, Stop(killed_after), at=[0, 3, 6, 9])
    measured, best, rows = _run(tmp_path, values, at=[0, 3, 6, 9])
    assert measured == [
        {"step": step, "dev_share": value} for step, value in values.items()
    ]
    assert best == {"best_step": 6, "best": {"dev_share": 0.5}}
    assert rows == [0.1, 0.5, 0.5]


def test_training_stops_in_time(tmp_path):
    values = {1: 0.2, 3: 0.5, 5: 0.4, 7: 0.1, 9: 0.9}
    measured, best, rows = _run(
        tmp_path, values, at=[1, 3, 5, 7, 9], patience=2
    )
    assert rows == [0.2, 0.5, 0.4, 0.1]
    assert best["best_step"] == 3
