import io

from realm_tf.training.callbacks import ProgressLines


def test_progress_lines_estimate_without_the_first_step():
    times = iter([100.0, 102.0, 104.0, 106.0, 108.0])
    stream = io.StringIO()
    callback = ProgressLines(
        5, every_seconds=3.0, clock=lambda: next(times), stream=stream
    )
    for step in range(5):
        callback.on_train_batch_end(step, {"loss": 1.0 / (step + 1)})
    lines = stream.getvalue().splitlines()
    # Two seconds a step: lines at 4 s and, at its end, at 8 s.
    assert [line.split("  ")[-1] for line in lines] == [
        "loss 0.333",
        "loss 0.200",
    ]
    assert "step 3/5, 4 s left" in lines[0]
    assert "step 5/5, 0 s left" in lines[1]


def test_progress_lines_of_a_run_that_goes_on():
    times = iter([100.0, 102.0, 104.0])
    stream = io.StringIO()
    callback = ProgressLines(
        10,
        first_step=6,
        every_seconds=3.0,
        clock=lambda: next(times),
        stream=stream,
    )
    for step in range(3):
        callback.on_train_batch_end(step, {"loss": 1.0})
    assert stream.getvalue() == "      step 9/10, 2 s left  loss 1.000\n"
