"""What is freed goes back to the system."""

import pathlib
import sys

import pytest

from realm_tf.serving import memory


def _anonymous_bytes():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise AssertionError("no RssAnon")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_freed_memory_is_handed_back():
    memory.hand_back()
    before = _anonymous_bytes()
    # Too small to be mapped each by itself; the last one keeps the heap from
    # shrinking by itself.
    strings = [bytes(60_000) + bytes([n % 256]) for n in range(2_000)]
    last = strings.pop()
    assert _anonymous_bytes() - before > 100e6
    del strings
    memory.hand_back()
    assert _anonymous_bytes() - before < 20e6
    assert last


@pytest.mark.skipif(
    memory.allocated_bytes() is None, reason="glibc before 2.33, or none"
)
# In the heap; mapped by itself.
@pytest.mark.parametrize("size", [10_000, 50_000_000])
def test_allocated_bytes_are_those_not_freed(size):
    before = memory.allocated_bytes()
    strings = [bytes(size) for _ in range(100_000_000 // size)]
    after = memory.allocated_bytes()
    assert 0.99 < (after - before) / 100e6 < 1.1
    del strings
    assert memory.allocated_bytes() - before < 1e6
