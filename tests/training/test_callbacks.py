import types

import pytest

from realm_tf import progress
from realm_tf.training.callbacks import ProgressLines


@pytest.mark.parametrize(("num_steps", "first_step"), [(5, 0), (100, 6)])
def test_progress_lines_estimate_without_the_first_step(
    capsys, monkeypatch, num_steps, first_step
):
    """Four seconds a step, and a minute for the first."""
    times = iter([160.0, 164.0, 168.0, 172.0, 176.0])
    # Servers of other tests ask the real one, in threads of this process.
    clock = types.SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr(progress, "time", clock)
    callback = ProgressLines(num_steps, first_step=first_step)
    for step in range(5):
        callback.on_train_batch_end(step, {"loss": 1.0 / (step + 1)})
    left = (num_steps - first_step - 4) * 4 / 60
    # At the first step after ten seconds.
    assert capsys.readouterr().err == (
        f"train: {first_step + 4} of {num_steps} steps, 0.2 a second, "
        f"{left:.1f} minutes left, loss 0.250\n"
    )
