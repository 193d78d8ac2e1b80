"""What is freed goes back to the system."""

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
