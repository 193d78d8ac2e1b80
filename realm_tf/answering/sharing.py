"""What evaluations of one model and corpus share, where they follow each other."""

import contextlib
import contextvars
from collections.abc import Callable

# The last key and what was made for it; `None` where nothing is shared.
_KEPT = contextvars.ContextVar("kept", default=None)


@contextlib.contextmanager
def sharing():
    """Inside, `kept` holds what it has made last."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def kept(key, make: Callable):
    """What was made for a key if it was the last one, or what is made now."""
    held = _KEPT.get()
    if held is None:
        return make()
    if key not in held:
        held.clear()
        held[key] = make()
    return held[key]
