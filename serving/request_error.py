"""How a request is refused. Imports no TensorFlow."""

import grpc


class RequestError(Exception):
    """A request that cannot be answered.

    Args:
        code: grpc.StatusCode. As TF Serving would answer.
        message: str. What was wrong and what was expected.
    """

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> RequestError:
    """A request that no retry would help."""
    return RequestError(grpc.StatusCode.INVALID_ARGUMENT, message)


def deadline_exceeded() -> RequestError:
    """The error of a request whose time ran out while it waited."""
    return RequestError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline exceeded.")


def full(num_pending: int) -> RequestError:
    """The error of a request that is one too many.

    Args:
        num_pending: int. How many are to be answered.
    """
    return RequestError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"The server has {num_pending} requests to answer, as many as it "
        "takes; try again later.",
    )


def unavailable(message: str) -> RequestError:
    """A request that may be answered by another server, or later."""
    return RequestError(grpc.StatusCode.UNAVAILABLE, message)
