import numpy as np

from realm_tf.training import duty_cycle


class Clock:
    """Runs of the three parts take 1, 3 and 4 seconds; one of each stalls."""

    def __init__(self):
        self._now = 0
        self._steps = iter(
            step
            for seconds in (1, 3, 4)
            for run in (seconds, 100, seconds)
            for step in (0, run)
        )

    def __call__(self):
        self._now += next(self._steps)
        return self._now


def test_shares_of_a_step(realm_model, realm_batch, monkeypatch):
    """Search without a gradient, embedding and encoding with theirs."""
    computed = {}
    compile_part = duty_cycle._compile

    def record(model, function, *, gradient=True):
        part = compile_part(model, function, gradient=gradient)

        def run(*arguments):
            computed[function.__name__] = part(*arguments)
            return computed[function.__name__]

        return run

    monkeypatch.setattr(duty_cycle, "_compile", record)
    before = [np.array(v) for v in realm_model.variables]
    found = duty_cycle.measure_duty_cycle(
        realm_model, realm_batch, num_repeats=3, clock=Clock()
    )
    assert tuple(found) == duty_cycle.PARTS
    assert found == {"search": 1 / 8, "embedding": 3 / 8, "encoding": 4 / 8}
    for old, new in zip(before, realm_model.variables, strict=True):
        np.testing.assert_array_equal(old, np.asarray(new))
    assert computed["find_candidates"][0]["block_ids"].shape == (3, 3)
    for name in ("embed", "encode"):
        sums = [float(np.abs(np.sum(g))) for g in computed[name]]
        assert np.isfinite(sums).all() and max(sums) > 0, name
