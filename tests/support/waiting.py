"""Waiting for what another thread or process does."""

import time


def wait_for(condition, seconds=20.0):
    """Waits until a function gives something true, which it returns."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.002)
    return value
