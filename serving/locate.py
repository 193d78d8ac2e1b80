"""Where the SavedModel is and whether its port is free.

Apart from `servable` and `service`, so that mistakes show before TensorFlow
is imported.
"""

import contextlib
import os
import socket
from collections.abc import Iterator

from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import list_files
from realm_tf.errors import InputError

SAVED_MODEL_FILE = "saved_model.pb"
# Of a SavedModel outside a numbered directory.
UNNUMBERED_VERSION = 1
# TF Serving's versions are of type int64.
_MAX_VERSION = 2**63 - 1


def find_version(path: str) -> tuple[str, int]:
    """The version directory to load.

    Args:
        path: str. A base directory with `<integer>/saved_model.pb` in it,
            of which the highest is taken, or a directory with
            `saved_model.pb`. Directories that are not whole, such as an
            export that is still being written, do not count.

    Returns:
        The version directory and its version: its name if that is a number,
        else 1.

    Raises:
        InputError: if no SavedModel is there.
    """
    directories = version_directories(path)
    whole = [v for v, where in directories.items() if is_whole(where)]
    if not whole:
        raise InputError(
            f"{path} holds no SavedModel: expected {SAVED_MODEL_FILE} or "
            f"<integer>/{SAVED_MODEL_FILE} in it, written to the end. "
            "`realm export` makes one."
        )
    version = max(whole)
    return directories[version], version


def version_directories(path: str) -> dict[int, str]:
    """The version directories of a base directory, whole or not.

    Args:
        path: str. A base directory, or itself a directory with
            `saved_model.pb`, which is then the only version.

    Returns:
        dict of version to directory; empty if there are none.

    Raises:
        InputError: if `path` does not exist or cannot be read.
    """
    path = str(path).rstrip("/") or "/"
    with _reading(path):
        if Path(os.path.join(path, SAVED_MODEL_FILE)).exists():
            name = path.rpartition("/")[2]
            version = int(name) if _is_version(name) else UNNUMBERED_VERSION
            return {version: path}
        if not Path(path).exists():
            raise InputError(
                f"{path} does not exist: expected a SavedModel, its base "
                "directory or a version directory. `realm export` makes one."
            )
        if Path(path).is_file():
            return {}
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


def files_of(directory: str) -> dict[str, tuple[int, int]]:
    """What a directory holds, to see whether it has changed.

    Args:
        directory: str. Local or remote.

    Returns:
        dict of path to bytes and time of change, in nanoseconds.

    Raises:
        InputError: if it cannot be read.
    """
    with _reading(directory):
        paths = [
            os.path.join(directory, name) for name in list_files(directory)
        ]
        if not is_remote(directory):
            stats = {path: os.stat(path) for path in paths}
            return {k: (s.st_size, s.st_mtime_ns) for k, s in stats.items()}
        import tensorflow as tf

        stats = {path: tf.io.gfile.stat(path) for path in paths}
        return {k: (s.length, s.mtime_nsec) for k, s in stats.items()}


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except storage_errors(path) as error:
        raise InputError(
            f"{path} cannot be read ({error}): expected a base directory of "
            "SavedModels, or one of its versions, that this user may read."
        ) from error


def storage_errors(path: str) -> tuple[type[Exception], ...]:
    """What reading `path` may raise."""
    if not is_remote(path):
        return (OSError,)
    import tensorflow as tf

    return (OSError, tf.errors.OpError)


def _is_version(name: str) -> bool:
    digits = name.isascii() and name.isdigit()
    return digits and int(name) <= _MAX_VERSION


def check_port(host: str, port: int) -> None:
    """Refuses a port that another process listens on.

    gRPC would share it silently where that process allows it.

    Args:
        host: str. A name or address of this machine.
        port: int. 0 is always free.

    Raises:
        InputError: if the port is taken or the host is not ours.
    """
    if not 0 <= port <= 65535:
        raise InputError(f"Port {port} is not between 0 and 65535.")
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # A port whose last connections are still closing is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise InputError(port_message(host, port, error.strerror)) from error


def port_message(host: str, port: int, reason: str) -> str:
    """The sentence for a port that cannot be listened on."""
    return (
        f"Cannot listen on {host} port {port} ({reason}). Stop the program "
        "that uses it, or choose another with --grpc-port (0 takes any "
        "free one)."
    )
