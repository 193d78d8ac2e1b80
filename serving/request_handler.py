"""Answers requests, however they came: what gRPC and REST have in common.

Limits, back-pressure, deadlines, metrics and the log are here, once.
"""

import contextlib
import dataclasses
import threading
import time
import traceback
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping

import grpc
import numpy as np

from realm_tf.export import signatures
from realm_tf.serving.access import key_of
from realm_tf.serving.access import restricted
from realm_tf.serving.client import MODEL_NAME
from realm_tf.serving.documents import Documents
from realm_tf.serving.metrics import UNKNOWN_MODEL
from realm_tf.serving.metrics import RequestRecord
from realm_tf.serving.metrics import ServingMetrics
from realm_tf.serving.metrics import log_request
from realm_tf.serving.options import ServerOptions
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import invalid
from realm_tf.serving.request_error import unavailable
from realm_tf.serving.tensors import PredictRequest

_NO_KEY = (
    "This server needs an API key: send it as `authorization: Bearer KEY` or "
    "`x-api-key: KEY`."
)

# Conditions of a filter (our choice): each takes time.
_MOST_CONDITIONS = 16


class RequestHandler:
    """Answers requests over the version that is served.

    Args:
        versions: `Versions`, or what has its methods.
        options: `ServerOptions`.
        metrics: `ServingMetrics`.
        api_keys: dict of key to filter, as of `access.read_api_keys`. A
            request must carry one of them, and finds what its filter lets it.
            Defaults to none: everybody may ask.

    Attributes:
        max_batch_size: int. The most questions in a request (our choice).
        max_string_bytes: int. The most bytes of a string: a longer question
            is cut, a longer filter refused (our choice).
        max_message_bytes: int. The largest gRPC message and HTTP body (our
            choice).
        default_timeout_seconds: float. For requests without a deadline (our
            choice).
        options: `ServerOptions`.
        versions: `Versions`.
        metrics: `ServingMetrics`.
        documents: `Documents` of the corpus, if the model is of one.
        num_pending: int. Requests accepted and not yet answered.
        is_draining: bool. Whether no request is accepted any more.
    """

    max_batch_size = 128
    max_string_bytes = 4096
    # Parsing one holds up all others.
    max_message_bytes = 4 << 20
    default_timeout_seconds = 30.0

    def __init__(
        self,
        versions,
        *,
        options: ServerOptions,
        metrics: ServingMetrics,
        api_keys: Mapping[str, str] | None = None,
    ):
        self.options = options
        self.metrics = metrics
        self.num_pending = 0
        self.is_draining = False
        self.versions = versions
        self.documents = Documents(options.saved_model)
        self._api_keys = api_keys
        self._lock = threading.Lock()
        metrics.pending.set_function(lambda: self.num_pending)

    def predict(
        self,
        record: RequestRecord,
        read: Callable[[Mapping], PredictRequest],
        *,
        version: int | None = None,
        timeout_seconds: float | None = None,
    ) -> tuple[PredictRequest, dict[str, np.ndarray]]:
        """Runs a signature, in contexts of `recorded` and `admitted`.

        Args:
            record: `RequestRecord`. Names the model and what the key may see;
                gets version, signature and size.
            read: function of the signatures (name to `SignatureDef`) that
                gives the request.
            version: int. Defaults to the one that is served.
            timeout_seconds: float. What is left of the client's deadline;
                time spent waiting counts. Defaults to the option.

        Returns:
            tuple of what `read` gave and a dict of output name to array.

        Raises:
            RequestError: if it cannot be answered.
        """
        started = time.monotonic()
        if timeout_seconds is None:
            timeout_seconds = self.default_timeout_seconds
        with self.versions.use(record.model, version=version) as used:
            record.version, servable = used
            request = read(servable.signature_defs)
            record.signature = request.signature
            sizes = [len(a) for a in request.inputs.values() if a.ndim]
            record.batch_size = sizes[0] if sizes else None
            request = dataclasses.replace(
                request, inputs=self._limited(request.inputs)
            )
            if self.options.log_questions:
                record.questions = _texts(request.inputs)
            # Before it is one of a batch: its mistakes must not fail others.
            servable.check(
                request.inputs,
                signature=request.signature,
                output_filter=request.output_filter,
            )

            def run(request):
                seconds = started + timeout_seconds - time.monotonic()
                return servable.run(
                    request.inputs,
                    signature=request.signature,
                    timeout_seconds=seconds,
                )

            outputs = self._run_restricted(record, request, servable, run)
        wanted = request.output_filter or outputs
        return request, {name: outputs[name] for name in wanted}

    def _run_restricted(self, record, request, servable, run):
        """Runs a request with the filter of its key, if there is one."""
        filter = record.required_filter
        if not filter:
            return run(request)
        both = restricted(request, filter, servable.signature_defs)
        try:
            return run(both)
        except RequestError as error:
            if error.code != grpc.StatusCode.INVALID_ARGUMENT:
                raise
            # It may quote the filter of the key: what is wrong with the
            # request's own is said without that.
            run(request)
            raise invalid(
                "The filter of this key does not fit the corpus that is "
                "served: tell whoever runs the server."
            ) from error

    def render_metrics(self) -> tuple[bytes, str]:
        """All metrics in Prometheus' text form and their content type."""
        return self.metrics.render(self.versions.known())

    def is_ready(self) -> bool:
        """Whether a request would be answered."""
        return self.versions.current is not None and not self.is_draining

    def check_key(
        self, headers: Mapping[str, str], record: RequestRecord, peer: str
    ) -> None:
        """Refuses, counts and logs a request without a key that is accepted.

        Args:
            headers: mapping of lower-case name to value.
            record: `RequestRecord`. Gets the filter of what the key may see.
            peer: str. The client's address, for the log.

        Raises:
            RequestError: UNAUTHENTICATED.
        """
        if not self._api_keys:
            return
        key = key_of(headers, self._api_keys)
        if key is None:
            self.metrics.refused_keys.labels(record.entrypoint).inc()
            code = grpc.StatusCode.UNAUTHENTICATED
            record.status, record.peer = code.name, peer
            log_request(record, log_questions=False)
            raise RequestError(code, _NO_KEY)
        record.required_filter = self._api_keys[key]

    @contextlib.contextmanager
    def recorded(self, record: RequestRecord) -> Iterator[None]:
        """Counts and logs what is done in it, whatever becomes of it.

        Args:
            record: `RequestRecord`. Gets status and time.

        Raises:
            RequestError: as raised in it; INTERNAL for every other
                exception.
        """
        started = time.monotonic()
        try:
            yield
            record.status = "OK"
        except RequestError as error:
            record.status, record.error = error.code.name, error.message
            raise
        except Exception as error:
            record.status, record.error = "INTERNAL", str(error)
            # Without the error's message, which may quote a question.
            places = traceback.format_tb(error.__traceback__)
            record.traceback = [*places, type(error).__name__]
            raise RequestError(
                grpc.StatusCode.INTERNAL,
                "Internal error; the server's log has more under request id "
                f"{record.request_id}.",
            ) from error
        finally:
            seconds = time.monotonic() - started
            record.milliseconds = 1000 * seconds
            if record.method == "Predict":
                known = record.model == MODEL_NAME
                self.metrics.count_request(
                    model=MODEL_NAME if known else UNKNOWN_MODEL,
                    entrypoint=record.entrypoint,
                    status=record.status,
                    seconds=seconds,
                )
            log_request(record, log_questions=self.options.log_questions)

    @contextlib.contextmanager
    def admitted(self) -> Iterator[None]:
        """Counts a request among the pending ones.

        Raises:
            RequestError: if there are too many, or the server stops.
        """
        if self.is_draining:
            raise unavailable("The server is stopping; ask another one.")
        with self._lock:
            if self.num_pending >= self.options.max_pending:
                raise RequestError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"The server has {self.num_pending} requests to answer, "
                    "as many as it takes; try again later.",
                )
            self.num_pending += 1
        try:
            yield
        finally:
            with self._lock:
                self.num_pending -= 1

    def _limited(self, inputs: Mapping[str, np.ndarray]) -> dict:
        """Inputs with few enough rows, and with no string that is too long."""
        for name, array in inputs.items():
            if array.ndim and len(array) > self.max_batch_size:
                raise invalid(
                    f"input {name} has {len(array)} rows, more than the "
                    f"{self.max_batch_size} that this server takes at once; "
                    "send them in several requests."
                )
        most = self.max_string_bytes
        filters = inputs.get(signatures.FILTER)
        if filters is not None and filters.dtype == object:
            for each in filters.ravel():
                # Those of a key come on top.
                if (
                    sum(map(bool, map(bytes.strip, each.split(b";"))))
                    > _MOST_CONDITIONS
                ):
                    raise invalid(
                        f"input {signatures.FILTER} has more than {_MOST_CONDITIONS} "
                        "conditions."
                    )
            longest = max(map(len, filters.ravel()), default=0)
            if longest > most:
                # Half of one would let other blocks be found.
                raise invalid(
                    f"input {signatures.FILTER} has {longest} bytes, more than "
                    f"the {most} that this server takes."
                )
        return {key: _cut(array, most) for key, array in inputs.items()}


def _cut(array: np.ndarray, most: int) -> np.ndarray:
    """Strings of at most so many bytes, cut between characters.

    The model reads 64 wordpieces of a question, but has to tokenise all of
    it, which takes a hundred times its bytes of memory.
    """
    if array.dtype != object:
        return array
    strings = [
        value
        if len(value) <= most
        else value[:most].decode("utf-8", "ignore").encode()
        for value in array.ravel()
    ]
    return np.array(strings, dtype=object).reshape(array.shape)


def _texts(inputs: Mapping[str, np.ndarray]) -> list[str]:
    return [
        value.decode("utf-8", "replace")
        for array in inputs.values()
        if array.dtype == object
        for value in array.ravel()
    ]
