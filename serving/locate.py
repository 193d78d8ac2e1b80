"""Where the SavedModel is and whether its port is free.

Apart from `servable` and `service`, so that mistakes show before TensorFlow
is imported.
"""

import os
import socket

from realm_tf import stages
from realm_tf.errors import InputError

SAVED_MODEL_FILE = "saved_model.pb"
# Of a SavedModel outside a numbered directory.
UNNUMBERED_VERSION = 1


def find_version(path: str) -> tuple[str, int]:
    """The version directory to load.

    Args:
        path: str. A base directory with `<integer>/saved_model.pb` in it,
            of which the highest is taken, or a directory with
            `saved_model.pb`. Directories without that file, such as an
            export that is still being written, do not count.

    Returns:
        The version directory and its version: its name if that is a number,
        else 1.

    Raises:
        InputError: if no SavedModel is there.
    """
    path = str(path).rstrip("/") or "/"
    if stages.exists(stages.join(path, SAVED_MODEL_FILE)):
        name = path.rpartition("/")[2]
        return path, int(name) if _is_version(name) else UNNUMBERED_VERSION
    if not stages.exists(path):
        raise InputError(
            f"{path} does not exist: expected a SavedModel, its base "
            "directory or a version directory. `realm export` makes one."
        )
    versions = []
    if stages.is_remote(path) or os.path.isdir(path):
        versions = [
            (int(name), stages.join(path, name))
            for name in stages.list_names(path)
            if _is_version(name)
            and stages.exists(
                stages.join(stages.join(path, name), SAVED_MODEL_FILE)
            )
        ]
    if not versions:
        raise InputError(
            f"{path} holds no SavedModel: expected {SAVED_MODEL_FILE} or "
            f"<integer>/{SAVED_MODEL_FILE} in it. `realm export` makes one."
        )
    version, directory = max(versions)
    return directory, version


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit()


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
