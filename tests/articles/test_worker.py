"""What happens to a call that takes too much."""

import os
import time

import pytest

from realm_tf.articles.pages import Unreadable
from realm_tf.articles.worker import Worker

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("function", "argument", "reason"),
    [
        (time.sleep, 60, "takes more than 1 seconds"),
        (bytearray, 1 << 33, "more than 4096 MiB"),
        (os._exit, 3, "ends the process that reads documents .status 3"),
        (int, "x", "ValueError: invalid literal"),
    ],
)
def test_a_call_that_fails_leaves_the_next_one_alone(
    function, argument, reason
):
    worker = Worker(seconds=1)
    try:
        with pytest.raises(Unreadable, match=reason):
            # The process starts first, which may take longer than a second.
            worker._seconds = 60
            assert worker.call(abs, -5) == 5
            worker._seconds = 1
            worker.call(function, argument)
        worker._seconds = 60
        assert worker.call(abs, -5) == 5
    finally:
        worker.close()
