"""Freed memory, handed back to the system.

The Python objects of a graph refer to each other, so that it is freed by a
garbage collection only; and glibc keeps what threads have freed for their
next allocations. Hundreds of megabytes are kept so after a few versions. What
is resident therefore tells no leak from gaps between what is in use;
`allocated_bytes` does.
"""

import ctypes
import gc


class _Allocations(ctypes.Structure):
    """glibc's `struct mallinfo2` (malloc.h), of all arenas."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def allocated_bytes() -> int | None:
    """What this process has allocated and not freed, wherever it lies.

    Without what is mapped from files, such as a model's variables on disk.

    Returns:
        int, or `None` where the C library does not tell (glibc does since
        2.33).
    """
    count = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if count is None:
        return None
    count.restype = _Allocations
    found = count()
    return found.uordblks + found.hblkhd


def hand_back() -> None:
    """Frees what nothing refers to, back to the system if the C library can.

    Requests wait for the collection: 0.4 s where TensorFlow and Keras are
    imported, 0.01 s after `keep_imports`.
    """
    gc.collect()
    # Of this process: glibc's, or another library's without the function.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_imports() -> None:
    """Exempts all that is there now from garbage collections.

    For a process that only serves, when it has imported what it needs and
    loaded no model: there are some hundred thousand objects, and they stay.
    """
    gc.collect()
    gc.freeze()
