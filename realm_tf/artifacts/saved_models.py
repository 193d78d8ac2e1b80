"""Where a SavedModel is: base directories and their versions.

Imports no TensorFlow, so that mistakes show at once.
"""

import contextlib
import os
from collections.abc import Iterator

from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.errors import InputError

SAVED_MODEL_FILE = "saved_model.pb"
# The base directory in that of a corpus.
OF_CORPUS = "saved_model"
# Of a corpus: its current state, and the copy of it.
MANIFESTS = ("corpus.json", "corpus.copy.json")
# Of a SavedModel outside a numbered directory.
UNNUMBERED_VERSION = 1
# TF Serving's versions are of type int64.
_MAX_VERSION = 2**63 - 1


def find_version(path: str) -> str:
    """The version directory to load.

    Args:
        path: str. A base directory with `<integer>/saved_model.pb` in it,
            of which the highest is taken, a corpus, or a directory with
            `saved_model.pb`. Directories that are not whole, such as an
            export that is still being written, do not count.

    Returns:
        str, the version directory.

    Raises:
        InputError: if no SavedModel is there.
    """
    directories = version_directories(path)
    whole = [v for v, where in directories.items() if is_whole(where)]
    if not whole:
        raise InputError(
            f"{path} holds no SavedModel: expected {SAVED_MODEL_FILE} or "
            f"<integer>/{SAVED_MODEL_FILE} in it, written to the end. "
            "`realm export` and `realm corpus create` make one."
        )
    return directories[max(whole)]


def version_directories(path: str) -> dict[int, str]:
    """The version directories of a base directory, whole or not.

    Args:
        path: str. A base directory, a corpus, or itself a directory with
            `saved_model.pb`, which is then the only version.

    Returns:
        dict of version to directory; empty if there are none.

    Raises:
        InputError: if `path` does not exist or cannot be read.
    """
    path = str(path).rstrip("/") or "/"
    with _reading(path):
        # A corpus is on this machine.
        of_corpus = os.path.join(path, OF_CORPUS)
        if os.path.isdir(of_corpus):
            path = of_corpus
        if Path(os.path.join(path, SAVED_MODEL_FILE)).exists():
            name = path.rpartition("/")[2]
            version = int(name) if _is_version(name) else UNNUMBERED_VERSION
            return {version: path}
        if not Path(path).exists():
            raise InputError(
                f"{path} does not exist: expected a corpus, a SavedModel or the "
                "base directory of its versions."
            )
        return {
            int(name): os.path.join(path, name)
            for name in sorted(each.name for each in Path(path).iterdir())
            if _is_version(name)
        }


def is_whole(directory: str) -> bool:
    """Whether a version directory can be loaded.

    Args:
        directory: str. One that holds no `saved_model.pb` is not whole, nor
            one that `realm export` is still writing in place, as it does on
            object stores, or has left unfinished.

    Raises:
        InputError: if it cannot be read.
    """
    with _reading(directory):
        if not Path(os.path.join(directory, SAVED_MODEL_FILE)).exists():
            return False
        being_written = Path(os.path.join(directory, artifact.JOB)).exists()
        return not being_written or artifact.is_complete(directory)


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error}): expected a base directory of "
            "SavedModels, or one of its versions, that this user may read."
        ) from error


def _is_version(name: str) -> bool:
    digits = name.isascii() and name.isdigit()
    return digits and int(name) <= _MAX_VERSION


def is_corpus(path: str) -> bool:
    """Whether there is a state, perhaps one with a damaged manifest."""
    return any(Path(os.path.join(path, name)).exists() for name in MANIFESTS)


def corpus_of(path: str) -> str | None:
    """The corpus itself, of an export or of the directory of exports."""
    if is_remote(path):
        return None
    base = os.path.abspath(path)
    for each in (os.path.join(base, OF_CORPUS), base, os.path.dirname(base)):
        found, name = os.path.split(each)
        if name == OF_CORPUS and is_corpus(found):
            return found
    return None
