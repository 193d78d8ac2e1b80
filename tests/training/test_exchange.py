import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest

from realm_tf.errors import InputError
from realm_tf.training import exchange
from realm_tf.training.exchange import Exchange


@pytest.fixture
def meeting(tmp_path):
    found = Exchange(str(tmp_path / "exchange"))
    found.begin({"num_blocks": 10, "rows_per_range": 4})
    return found


def _rows(meeting, number):
    rows = np.array(meeting.rows(number), "float32")
    return np.stack([rows, -rows], axis=1)


def _weights(value):
    return [np.full((2, 3), value, "float32"), np.array(value, "float32")]


def test_builders_share_the_ranges(meeting):
    assert meeting.current() is None
    name = meeting.offer(_weights(1))
    assert meeting.current() == name
    for given, taken in zip(meeting.weights(name), _weights(1), strict=True):
        np.testing.assert_array_equal(given, taken)
    with contextlib.ExitStack() as stack:
        claims = [
            stack.enter_context(meeting.claim(name)) for builder in range(4)
        ]
    assert claims == [0, 1, 2, None]
    assert [len(meeting.rows(n)) for n in range(3)] == [4, 4, 2]
    for number in (1, 0):
        meeting.deliver(name, number, _rows(meeting, number))
        assert meeting.collect(name) is None
    assert meeting.missing(name) == [2]
    meeting.deliver(name, 2, _rows(meeting, 2))
    np.testing.assert_array_equal(
        meeting.collect(name), [[n, -n] for n in range(10)]
    )


def test_ranges_of_builders_that_are_gone_are_free(meeting):
    name = meeting.offer(_weights(1))
    code = (
        "import os, signal, sys\n"
        "from realm_tf.training.exchange import Exchange\n"
        "with Exchange(sys.argv[1]).claim(sys.argv[2]) as number:\n"
        "    print(number, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, meeting.directory, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout.readline() == "0\n"
        with meeting.claim(name) as number:
            assert number == 1
        other.kill()
    with meeting.claim(name) as number:
        assert number == 0


def test_new_weights_end_what_is_embedded_with_the_old(meeting):
    old = meeting.offer(_weights(1))
    with meeting.claim(old) as number:
        new = meeting.offer(_weights(2))
        assert meeting.current() == new != old
        meeting.deliver(old, number, _rows(meeting, number))
    assert not os.path.exists(os.path.join(meeting.directory, old))
    # Who has just claimed one finds them gone, and looks again.
    assert meeting.weights(old) is None
    os.remove(os.path.join(meeting.directory, f"weights-{new}.npz"))
    with pytest.raises(InputError, match="is damaged"):
        meeting.weights(new)
    meeting.offer(_weights(2))
    assert meeting.missing(new) == [0, 1, 2]
    assert sorted(os.listdir(meeting.directory)) == sorted(
        [exchange.TASK, "current", new, f"weights-{new}.npz", "00000.lock"]
    )


def test_the_same_weights_again_lose_nothing(meeting):
    name = meeting.offer(_weights(1))
    meeting.deliver(name, 0, _rows(meeting, 0))
    assert meeting.offer(_weights(1)) == name
    assert meeting.missing(name) == [1, 2]


def test_another_run_begins_again(meeting):
    meeting.offer(_weights(1))
    meeting.begin({"num_blocks": 3, "rows_per_range": 4})
    assert os.listdir(meeting.directory) == [exchange.TASK]
    assert meeting.current() is None


@pytest.mark.parametrize(
    "num_blocks, rows", [(1, 1), (9, 2), (65_536, 8192), (13_353_718, 8192)]
)
def test_small_corpora_are_shared_too(num_blocks, rows):
    assert exchange.rows_of_ranges(num_blocks) == rows
