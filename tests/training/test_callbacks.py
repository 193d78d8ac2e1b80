import pytest

from realm_tf.training.callbacks import ProgressLines


@pytest.mark.parametrize(
    ("num_steps", "first_step", "expected"),
    [
        # Lines at 4 s and, at its end, at 8 s.
        (
            5,
            0,
            "      step 3/5, 4 s left  loss 0.333\n"
            "      step 5/5, 0 s left  loss 0.200\n",
        ),
        # A run that goes on.
        (100, 6, "      step 9/100, 182 s left  loss 0.333\n"),
    ],
)
def test_progress_lines_estimate_without_the_first_step(
    capsys, num_steps, first_step, expected
):
    """Two seconds a step."""
    times = iter([100.0, 102.0, 104.0, 106.0, 108.0])
    callback = ProgressLines(
        num_steps,
        first_step=first_step,
        every_seconds=3.0,
        clock=lambda: next(times),
    )
    for step in range(5):
        callback.on_train_batch_end(step, {"loss": 1.0 / (step + 1)})
    assert capsys.readouterr().out.startswith(expected)
