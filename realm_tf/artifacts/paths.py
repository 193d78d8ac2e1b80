"""Paths, local or on an object store: the only module that knows which.

`Path` is etils' path: pathlib's methods for local paths and for `gs://` ones,
which go through TensorFlow's file system.
"""

import contextlib
import os
import tempfile
import threading

from etils.epath import Path

from realm_tf.errors import InputError

TEMPORARY = ".tmp"


def is_remote(path: str) -> bool:
    """Whether `path` is on an object store rather than a local disk."""
    return "://" in str(path)


@contextlib.contextmanager
def writing(path: str, *, directory: str | None = None):
    """Yields where to write what appears at `path` when the block ends well.

    If it does not (a full disk, say), nothing is left. Object stores show
    whole files only. On a disk, names differ by process and thread: a worker
    that outlives a killed run for some seconds must not write into a file of
    ours.

    Args:
        path: str.
        directory: str. Another directory on the same disk to write in.
            Defaults to `None`: that of `path`.
    """
    temporary = path
    if not is_remote(path):
        folder, name = os.path.split(path)
        name += f".{os.getpid()}-{threading.get_ident()}{TEMPORARY}"
        temporary = os.path.join(directory or folder, name)
    try:
        yield temporary
    except BaseException:
        remove(temporary)
        raise
    if temporary != path:
        os.replace(temporary, path)


def write_text(path: str, text: str) -> None:
    """Writes a UTF-8 file; a local one appears whole or not at all."""
    if is_remote(path):
        Path(path).write_text(text)
        return
    # What a killed run leaves of it, the next one writes over.
    temporary = Path(f"{path}{TEMPORARY}")
    temporary.write_text(text)
    os.replace(temporary, path)


def check_new_file(path: str, *, flag: str) -> None:
    """Refuses a file, given by a flag, that is there or could not be written.

    Raises:
        InputError: if so.
    """
    if Path(path).exists():
        raise InputError(
            f"{path} exists already. Remove it or choose another {flag}."
        )
    folder = os.path.dirname(path)
    if folder and not (is_remote(folder) or os.path.isdir(folder)):
        raise InputError(f"{flag}: the directory {folder} does not exist.")


def cache_dir() -> str:
    """A directory of this machine for what can be made again.

    `$XDG_CACHE_HOME/realm`, or in ~/.cache, or, where neither can be written,
    one of this user among the temporary files.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    path = os.path.join(os.path.expanduser(cache), "realm")
    with contextlib.suppress(OSError):
        os.makedirs(path, exist_ok=True)
    if os.access(path, os.W_OK):
        return path
    return os.path.join(tempfile.gettempdir(), f"realm-{os.getuid()}")


def list_files(directory: str) -> list[str]:
    """Paths of all files below a directory, relative to it, sorted."""
    root = Path(directory)
    return sorted(
        os.path.relpath(os.path.join(str(folder), name), str(root))
        for folder, _, names in root.walk()
        for name in names
    )


def remove(path: str) -> None:
    """Removes a file or a whole directory, if it is there."""
    path = Path(path)
    if path.is_dir():
        path.rmtree()
    elif path.exists():
        path.unlink()
