"""What a client may ask of the server."""

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields

import grpc
import numpy as np

from realm_tf.errors import InputError
from realm_tf.serving.request_error import RequestError

# Beyond any use, and waits of so many seconds still fit Python's clocks.
_MOST = 10**9


@dataclass(frozen=True)
class Limits:
    """The largest request, and how many at once. All defaults are ours.

    Args:
        max_batch_size: int. Rows (questions) of a request. Defaults to 128,
            which at 5 blocks a question are 640 texts to read.
        max_string_bytes: int. Bytes of one string. Defaults to 1 MiB; the
            model cuts what is longer than it reads, but has to tokenise it.
        max_pending: int. Requests accepted and not yet answered; one more
            is refused at once. Defaults to 128.
        max_running: int. Requests in TensorFlow at once; further ones wait,
            so that memory stays bounded. `None` where batching sets the
            limit. Defaults to 16.
        default_timeout_seconds: float. For requests without a deadline.
            Defaults to 30, TF Serving's --rest_api_timeout_in_ms.

    Raises:
        InputError: if one is not positive, or beyond 10^9.
    """

    max_batch_size: int = 128
    max_string_bytes: int = 1 << 20
    max_pending: int = 128
    max_running: int | None = 16
    default_timeout_seconds: float = 30.0

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not 0 < value <= _MOST:
                name = field.name.replace("_", "-")
                raise InputError(
                    f"--{name} is {value}: expected more than 0 and at most "
                    f"{_MOST:,}."
                )

    def check_sizes(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Refuses a request that is too large.

        Args:
            arrays: mapping of input name to array.

        Raises:
            RequestError: if it has too many rows or too long a string.
        """
        for name, array in arrays.items():
            rows = array.shape[0] if array.ndim else 1
            if rows > self.max_batch_size:
                raise RequestError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"input {name} has {rows} rows, more than the "
                    f"{self.max_batch_size} that this server takes at "
                    "once; send them in several requests.",
                )
            if array.dtype != object:
                continue
            longest = max((len(v) for v in array.flat), default=0)
            if longest > self.max_string_bytes:
                raise RequestError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"input {name} has a string of {longest} bytes, more "
                    f"than the {self.max_string_bytes} that this "
                    "server takes; shorten it.",
                )
