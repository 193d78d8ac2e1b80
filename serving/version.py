"""One version of a model: its state, what happens to it, what went wrong."""

import dataclasses
import enum

import grpc

from realm_tf.errors import InputError
from realm_tf.serving.request_error import RequestError


class State(enum.IntEnum):
    """`tensorflow.serving.ModelVersionStatus.State`."""

    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to the model.

    Args:
        kind: str. Of a version `"loading"`, `"loaded"`, `"load_failed"`,
            `"unloading"`, `"unloaded"`, `"unload_failed"` or `"incomplete"`
            (not whole on disk); of the model `"poll_failed"`.
        version: int. Defaults to `None`: it is about the model.
        message: str.
        seconds: float. How long it took, if it is the end of something.
    """

    kind: str
    version: int | None = None
    message: str = ""
    seconds: float | None = None


@dataclasses.dataclass(eq=False)
class Version:
    """A version from the decision to load it until it is closed.

    Args:
        number: int.
        servable: the loaded model, while there is one.
        state: `State`.
        error_code: int. Number of a `grpc.StatusCode`: why it could not be
            loaded. Defaults to 0, OK.
        error_message: str.
        users: int. Requests that it is answering.
        failures: int. How often it did not load.
        retry_at: float. When to try again, if it did not.
    """

    number: int
    servable: object = None
    state: State = State.LOADING
    error_code: int = 0
    error_message: str = ""
    users: int = 0
    failures: int = 0
    retry_at: float = 0.0


def explain(error: Exception) -> tuple[int, str]:
    """The number of a `grpc.StatusCode` and the text for an exception."""
    if isinstance(error, RequestError):
        return error.code.value[0], error.message
    if isinstance(error, InputError):
        return grpc.StatusCode.INVALID_ARGUMENT.value[0], str(error)
    return grpc.StatusCode.UNKNOWN.value[0], f"{type(error).__name__}: {error}"
