"""Directories while they are written: other processes, full disks, stops."""

import contextlib
import errno
import os

import filelock

from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError

LOCK = ".lock"
_DISK_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))


class BeingWritten(InputError):
    """Another process has the lock of a directory."""


@contextlib.contextmanager
def locked(output: str):
    """Keeps other processes of this machine from writing one directory.

    The lock goes with the process, however that ends.

    Args:
        output: str. The directory, which need not be there.

    Raises:
        BeingWritten: if another process has it.
        InputError: if the lock cannot be made.
    """
    path = f"{output}{LOCK}"
    lock = filelock.FileLock(path, blocking=False)
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        lock.acquire()
    except filelock.Timeout as error:
        raise BeingWritten(
            f"{output} is being written by another process: wait for it or "
            "choose another --output."
        ) from error
    except OSError as error:
        raise InputError(
            f"{output} cannot be written: {error.strerror or error}. "
            "Choose another --output."
        ) from error
    try:
        yield
    finally:
        # While it is held: `FileLock` refuses a file that is no longer there.
        remove(path)
        lock.release()


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an exception, or one that led to it, says that a disk is full."""
    while error is not None:
        # TensorFlow's errors say it in words only.
        if any(text in str(error) for text in _DISK_FULL):
            return True
        error = error.__cause__ or error.__context__
    return False
