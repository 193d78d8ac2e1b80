"""Waiting for what another thread or process does."""

import time


def wait_for(condition, seconds=300.0):
    """Waits until a function returns something true, and returns that."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.002)
    return value
