"""How a request is refused. Imports no TensorFlow."""

import grpc

# Of requests that name no signature.
DEFAULT_SIGNATURE = "serving_default"


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


def deadline_exceeded() -> RequestError:
    """The error of a request whose time ran out while it waited."""
    return RequestError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline exceeded.")
