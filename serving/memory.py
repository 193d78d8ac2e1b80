"""Freed memory, handed back to the system.

glibc keeps what threads have freed for their next allocations, hundreds of
megabytes after a model was let go.
"""

import ctypes


def hand_back() -> None:
    """Returns freed memory to the system, where the C library can."""
    # Of this process: glibc's, or another library's without the function.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
