"""Paths, local or on an object store: the only module that knows which.

`Path` is etils' path: pathlib's methods for local paths and for `gs://` ones,
which go through TensorFlow's file system.
"""

import os

from etils.epath import Path

__all__ = ["Path", "is_remote", "list_files", "remove", "write_text"]


def is_remote(path: str) -> bool:
    """Whether `path` is on an object store rather than a local disk."""
    return "://" in str(path)


def write_text(path: str, text: str) -> None:
    """Writes a UTF-8 file; a local one appears whole or not at all."""
    if is_remote(path):
        Path(path).write_text(text)
        return
    temporary = Path(f"{path}.tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


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
