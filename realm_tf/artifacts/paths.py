"""Paths, local or on an object store: the only module that knows which.

`Path` is etils' path: pathlib's methods for local paths and for `gs://` ones,
which go through TensorFlow's file system.
"""

import contextlib
import hashlib
import os
import threading

from etils.epath import Path

from realm_tf.errors import InputError

TEMPORARY = ".tmp"


def is_remote(path: str) -> bool:
    """Whether `path` is on an object store rather than a local disk."""
    return "://" in str(path)


def absolute(path: str) -> str:
    """A path that means the same in other processes and on other machines."""
    return str(path) if is_remote(path) else os.path.abspath(path)


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
    with writing(path) as temporary:
        Path(temporary).write_text(text)


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


def cache_folder() -> str:
    """`$XDG_CACHE_HOME/realm`, by default `~/.cache/realm`: it may be removed."""
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    return os.path.join(cache, "realm")


def local_copy(path: str) -> str:
    """A file that can be mapped into memory: `path`, or a copy of a remote one.

    The copy stays in `cache_folder`, and serves as long as the remote file has
    the same size and time.
    """
    if not is_remote(path):
        return path
    found = Path(path).stat()
    content = hashlib.sha256(f"{path} {found.length} {found.mtime}".encode())
    folder = os.path.join(cache_folder(), content.hexdigest()[:16])
    copy = os.path.join(folder, os.path.basename(path))
    if not os.path.exists(copy):
        os.makedirs(folder, exist_ok=True)
        with writing(copy) as temporary:
            Path(path).copy(temporary)
    return copy


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
