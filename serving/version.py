"""One version of a model: its state and what went wrong."""

import dataclasses
import enum


class State(enum.IntEnum):
    """`tensorflow.serving.ModelVersionStatus.State`."""

    UNKNOWN = 0
    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


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
