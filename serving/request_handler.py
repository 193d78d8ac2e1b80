"""Answers requests, however they came: what gRPC and REST have in common.

Limits, back-pressure, deadlines, metrics and the log are here, once.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass

import grpc
import numpy as np

from realm_tf.serving.metrics import UNKNOWN_MODEL
from realm_tf.serving.metrics import ServingMetrics
from realm_tf.serving.options import ServerOptions
from realm_tf.serving.request_error import DEFAULT_SIGNATURE
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import invalid
from realm_tf.serving.request_error import unavailable
from realm_tf.serving.request_log import RequestLog
from realm_tf.serving.request_log import RequestRecord
from realm_tf.serving.request_log import choose_request_id
from realm_tf.serving.request_log import locations


@dataclass(frozen=True)
class PredictRequest:
    """What to run.

    Args:
        inputs: mapping of name to array, strings as bytes in arrays of dtype
            object.
        signature: str. Defaults to `serving_default`.
        output_filter: tuple of str. The outputs wanted. Defaults to all.
    """

    inputs: Mapping[str, np.ndarray]
    signature: str = ""
    output_filter: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prediction:
    """An answer.

    Args:
        version: int. The version that gave it.
        signature: str. Its name, never empty.
        outputs: dict of output name to array.
        seconds: float. From the request's arrival in the handler.
    """

    version: int
    signature: str
    outputs: dict[str, np.ndarray]
    seconds: float


class RequestHandler:
    """Answers requests over the version that is served.

    Args:
        versions: `Versions`, or what has its methods.
        options: `ServerOptions`.
        metrics: `ServingMetrics`.
        log: `RequestLog`.

    Attributes:
        options: `ServerOptions`.
        metrics: `ServingMetrics`.
        num_pending: int. Requests accepted and not yet answered.
        is_draining: bool. Whether no request is accepted any more.
    """

    def __init__(
        self,
        versions,
        *,
        options: ServerOptions,
        metrics: ServingMetrics,
        log: RequestLog,
    ):
        self.options = options
        self.metrics = metrics
        self.num_pending = 0
        self.is_draining = False
        self._versions = versions
        self._log = log
        self._lock = threading.Lock()

    def predict(
        self,
        name: str,
        read: Callable[[Mapping], PredictRequest],
        *,
        version: int | None = None,
        timeout_seconds: float | None = None,
        entrypoint: str,
        request_id: str = "",
    ) -> Prediction:
        """Runs a signature.

        Args:
            name: str. The model.
            read: function of the signatures (name to `SignatureDef`) that
                gives the request; called only once it is accepted.
            version: int. Defaults to the one that is served.
            timeout_seconds: float. What is left of the client's deadline;
                time spent waiting counts. Defaults to the option.
            entrypoint: str. `"GRPC"` or `"REST"`.
            request_id: str. Defaults to a new one.

        Returns:
            `Prediction`.

        Raises:
            RequestError: if it cannot be answered.
        """
        started = time.monotonic()
        if timeout_seconds is None:
            timeout_seconds = self.options.default_timeout_seconds
        with (
            self.recorded(
                "Predict",
                model=name,
                entrypoint=entrypoint,
                request_id=request_id,
            ) as record,
            self._admitted(),
            self._versions.use(name, version=version) as used,
        ):
            record.version, servable = used
            request = read(servable.signature_defs)
            record.signature = request.signature
            record.batch_size = self._check_rows(request.inputs)
            inputs = {
                key: self._cut(array) for key, array in request.inputs.items()
            }
            if self._log.log_questions:
                record.questions = _texts(inputs)
            outputs = self._run(
                servable,
                PredictRequest(
                    inputs, request.signature, request.output_filter
                ),
                timeout_seconds - (time.monotonic() - started),
            )
        return Prediction(
            version=record.version,
            signature=request.signature or DEFAULT_SIGNATURE,
            outputs=outputs,
            seconds=time.monotonic() - started,
        )

    def metadata(
        self, name: str, *, version: int | None = None
    ) -> tuple[int, dict]:
        """The version that would answer and its signatures.

        Returns:
            version, dict of name to `SignatureDef`.

        Raises:
            RequestError: if there is none.
        """
        with self._versions.use(name, version=version) as used:
            return used[0], dict(used[1].signature_defs)

    def status(self, name: str, *, version: int | None = None) -> list:
        """`Version`s of the model, highest first.

        Raises:
            RequestError: if there are none.
        """
        return self._versions.status(name, version=version)

    def card(self) -> tuple[int, dict]:
        """The version that would answer and what `realm export` says of it."""
        with self._versions.use(self.options.model_name) as used:
            return used[0], used[1].card

    def is_ready(self) -> bool:
        """Whether a request would be answered."""
        return self._versions.current is not None and not self.is_draining

    def refuse_key(self, method: str, *, entrypoint: str, peer: str) -> None:
        """Counts and logs a request without a key that is accepted."""
        self.metrics.count_refused_key(entrypoint)
        self._log.request(
            RequestRecord(
                method=method,
                entrypoint=entrypoint,
                model="",
                request_id=choose_request_id(None),
                peer=peer,
                status=grpc.StatusCode.UNAUTHENTICATED.name,
            )
        )

    @contextlib.contextmanager
    def recorded(
        self, method: str, *, model: str, entrypoint: str, request_id: str = ""
    ) -> Iterator[RequestRecord]:
        """Counts and logs what is done in it, whatever becomes of it.

        Args:
            method: str. `"Predict"`, `"GetModelStatus"` and so on.

        Yields:
            `RequestRecord`, to be filled in.

        Raises:
            RequestError: as raised in it; INTERNAL for every other
                exception.
        """
        record = RequestRecord(
            method=method,
            entrypoint=entrypoint,
            model=model,
            request_id=request_id or choose_request_id(None),
        )
        started = time.monotonic()
        try:
            yield record
        except RequestError as error:
            record.status, record.error = error.code.name, error.message
            raise
        except Exception as error:
            record.status, record.error = "INTERNAL", str(error)
            record.traceback = locations(error)
            raise RequestError(
                grpc.StatusCode.INTERNAL,
                "Internal error; the server's log has more under request id "
                f"{record.request_id}.",
            ) from error
        finally:
            seconds = time.monotonic() - started
            record.milliseconds = 1000 * seconds
            known = model == self.options.model_name
            if method == "Predict":
                self.metrics.count_request(
                    model=model if known else UNKNOWN_MODEL,
                    entrypoint=entrypoint,
                    status=record.status,
                    seconds=seconds,
                )
            self._log.request(record)

    @contextlib.contextmanager
    def _admitted(self) -> Iterator[None]:
        if self.is_draining:
            raise _stopping()
        with self._lock:
            if self.num_pending >= self.options.max_pending:
                raise RequestError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"The server has {self.num_pending} requests to answer, as "
                    "many as it takes; try again later.",
                )
            self.num_pending += 1
        try:
            yield
        finally:
            with self._lock:
                self.num_pending -= 1

    def _run(self, servable, request: PredictRequest, seconds: float):
        try:
            return servable.run(
                request.inputs,
                signature=request.signature,
                output_filter=request.output_filter,
                timeout_seconds=seconds,
            )
        except RequestError as error:
            if self.is_draining and error.code is grpc.StatusCode.CANCELLED:
                raise _stopping() from error
            raise

    def _check_rows(self, inputs: Mapping[str, np.ndarray]) -> int | None:
        """The rows of a request; `None` if it has none."""
        most = self.options.max_batch_size
        for name, array in inputs.items():
            if array.ndim and len(array) > most:
                raise invalid(
                    f"input {name} has {len(array)} rows, more than the "
                    f"{most} that this server takes at once; send them in "
                    "several requests."
                )
        return next((len(a) for a in inputs.values() if a.ndim), None)

    def _cut(self, array: np.ndarray) -> np.ndarray:
        """Strings no longer than the limit, cut between characters.

        The model reads 64 wordpieces of a question, but has to tokenise all
        of it, which takes a hundred times its bytes of memory.
        """
        most = self.options.max_string_bytes
        if array.dtype != object or all(len(v) <= most for v in array.flat):
            return array
        cut = np.empty_like(array)
        cut.flat = [_cut_string(value, most) for value in array.flat]
        return cut


def _stopping() -> RequestError:
    return unavailable("The server is stopping; ask another one.")


def _cut_string(value: bytes, limit: int) -> bytes:
    if len(value) <= limit:
        return value
    # UTF-8 marks the bytes inside a character, of which there are at most 3.
    for end in range(limit, max(0, limit - 4), -1):
        if value[end] & 0xC0 != 0x80:
            return value[:end]
    return value[:limit]


def _texts(inputs: Mapping[str, np.ndarray]) -> list[str]:
    return [
        value.decode("utf-8", "replace")
        for array in inputs.values()
        if array.dtype == object
        for value in array.flat
    ]
