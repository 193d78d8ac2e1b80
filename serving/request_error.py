"""How a request is refused. Imports no TensorFlow."""

import grpc


class RequestError(Exception):
    """A request that cannot be answered.

    Args:
        code: grpc.StatusCode. As TF Serving would answer.
        message: str. What was wrong and what was expected.
        http_status: int. Of REST. Defaults to `None`: that of the code.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        http_status: int | None = None,
    ):
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = http_status


def invalid(message: str) -> RequestError:
    """A request that no retry would help."""
    return RequestError(grpc.StatusCode.INVALID_ARGUMENT, message)


def unavailable(message: str) -> RequestError:
    """A request that may be answered by another server, or later."""
    return RequestError(grpc.StatusCode.UNAVAILABLE, message)
