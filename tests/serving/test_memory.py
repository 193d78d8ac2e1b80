"""What is freed goes back to the system."""

import os

import pytest

from realm_tf.serving import memory


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


def test_free_memory_goes_back_to_the_system():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    strings = [bytes(1000) for _ in range(200_000)]
    # The rest has gaps everywhere.
    strings = strings[::100]
    before = resident()
    memory.hand_back()
    assert before - resident() > 100e6
    assert len(strings) == 2000
