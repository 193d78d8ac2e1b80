"""Returns freed memory to the system.

The Python objects of a graph refer to each other, so only a garbage collection
frees it; and glibc keeps freed memory for the next allocations of its threads.
Together they hold hundreds of megabytes after a few versions. Resident memory
therefore cannot tell a leak from gaps; `allocated_bytes` can.
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
    """Bytes that this process has allocated and not freed.

    Memory that is mapped from files, such as a model's variables, does not
    count.

    Returns:
        int, or `None` if the C library does not report it (glibc does since
        2.33).
    """
    count = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if count is None:
        return None
    count.restype = _Allocations
    found = count()
    return found.uordblks + found.hblkhd


def hand_back() -> None:
    """Collects garbage and returns free memory to the system.

    Requests wait for the collection: 0.4 s if TensorFlow and Keras are
    imported, 0.01 s after `keep_imports`.
    """
    gc.collect()
    # Of this process: glibc's, or another library's without the function.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_imports() -> None:
    """Exempts all objects that exist now from garbage collections.

    For a process that only serves, after its imports and before it loads a
    model: there are some hundred thousand objects, and they stay.
    """
    gc.collect()
    gc.freeze()
