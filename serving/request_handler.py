"""Answers requests, however they came: what gRPC and REST have in common.

Limits, back-pressure, deadlines, metrics and the log are here, once.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass

import grpc
import numpy as np

from realm_tf.errors import InputError
from realm_tf.serving.limits import Limits
from realm_tf.serving.metrics import UNKNOWN_MODEL
from realm_tf.serving.metrics import ServingMetrics
from realm_tf.serving.request_error import DEFAULT_SIGNATURE
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import deadline_exceeded
from realm_tf.serving.request_log import RequestLog
from realm_tf.serving.request_log import RequestRecord
from realm_tf.serving.request_log import choose_request_id
from realm_tf.serving.request_log import locations
from realm_tf.serving.versions import config as model_config

# Method: (TF Serving's word, method_name its signatures have), from
# classifier.cc and regressor.cc of tensorflow/serving.
EXAMPLE_METHODS = {
    "Classify": ("classification", "tensorflow/serving/classify"),
    "Regress": ("regression", "tensorflow/serving/regress"),
}
# Those that TF Serving's prediction_service_impl.cc counts.
_COUNTED_METHODS = ("Predict", *EXAMPLE_METHODS)


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
    """Answers requests over the versions of a `ModelManager`.

    Args:
        manager: `ModelManager`, or what has its methods.
        limits: `Limits`.
        metrics: `ServingMetrics`.
        log: `RequestLog`.

    Attributes:
        limits: `Limits`.
        metrics: `ServingMetrics`.
    """

    def __init__(
        self,
        manager,
        *,
        limits: Limits,
        metrics: ServingMetrics,
        log: RequestLog,
    ):
        self.limits = limits
        self.metrics = metrics
        self._manager = manager
        self._log = log
        self._lock = threading.Lock()
        self._pending = 0
        self._turns = threading.Semaphore(limits.max_running or 0)

    def predict(
        self,
        name: str,
        inputs: Mapping[str, np.ndarray] | Callable[[], Mapping],
        *,
        version: int | None = None,
        label: str | None = None,
        signature: str = "",
        output_filter: Iterable[str] = (),
        timeout_seconds: float | None = None,
        entrypoint: str = "GRPC",
        request_id: str = "",
    ) -> Prediction:
        """Runs a signature.

        Args:
            name: str. The model.
            inputs: mapping of name to array, strings as bytes in arrays of
                dtype object; or a function that gives it, which is called
                only once the request is accepted.
            version: int. Defaults to the highest.
            label: str. A version by its label.
            signature: str. Defaults to `serving_default`.
            output_filter: names of the outputs wanted. Defaults to all.
            timeout_seconds: float. What is left of the client's deadline;
                time spent waiting counts. Defaults to the limits' default.
            entrypoint: str. `"GRPC"` or `"REST"`.
            request_id: str. Defaults to a new one.

        Returns:
            `Prediction`.

        Raises:
            RequestError: if it cannot be answered.
        """
        started = time.monotonic()
        if timeout_seconds is None:
            timeout_seconds = self.limits.default_timeout_seconds
        deadline = started + timeout_seconds
        with (
            self.recorded(
                "Predict",
                model=name,
                entrypoint=entrypoint,
                request_id=request_id,
                signature=signature,
            ) as record,
            self._admitted(),
            self._manager.use(name, version=version, label=label) as used,
        ):
            record.version, servable = used
            arrays = inputs() if callable(inputs) else inputs
            self.limits.check_sizes(arrays)
            record.batch_size = _count_rows(arrays)
            if self._log.log_questions:
                record.questions = _texts(arrays)
            outputs = self._run(
                servable,
                arrays,
                record=record,
                output_filter=output_filter,
                deadline=deadline,
            )
        return Prediction(
            version=record.version,
            signature=signature or DEFAULT_SIGNATURE,
            outputs=outputs,
            seconds=time.monotonic() - started,
        )

    def metadata(
        self,
        name: str,
        *,
        version: int | None = None,
        label: str | None = None,
    ) -> tuple[int, dict]:
        """The version that would answer and its signatures.

        Returns:
            version, dict of name to `SignatureDef`.

        Raises:
            RequestError: if there is none.
        """
        with self._manager.use(name, version=version, label=label) as used:
            return used[0], dict(used[1].signature_defs)

    def status(
        self,
        name: str,
        *,
        version: int | None = None,
        label: str | None = None,
    ) -> list:
        """`VersionStatus` of a model's versions, highest first.

        Raises:
            RequestError: if there are none.
        """
        return self._manager.status(name, version=version, label=label)

    def card(self, name: str) -> dict:
        """What `realm export` says of the version that would answer."""
        with self._manager.use(name) as (_, servable):
            return servable.card

    def names(self) -> list[str]:
        """The models that are configured."""
        return list(self._manager.names())

    def reload(self, config) -> None:
        """Makes the given models the only ones.

        Args:
            config: `ModelServerConfig`.

        Raises:
            RequestError: if it is wrong or a model does not load.
        """
        try:
            settings = model_config.from_proto(config, source="the request")
        except InputError as error:
            raise RequestError(
                grpc.StatusCode.INVALID_ARGUMENT, str(error)
            ) from error
        self._manager.apply(settings)

    def refuse_examples(
        self,
        method: str,
        name: str,
        *,
        version: int | None = None,
        label: str | None = None,
        signature: str = "",
        entrypoint: str = "GRPC",
        request_id: str = "",
    ) -> None:
        """Answers Classify and Regress as TF Serving for other signatures.

        Args:
            method: str. A key of `EXAMPLE_METHODS`.

        Raises:
            RequestError: always; REALM has no signature that takes
                tf.Examples.
        """
        with self.recorded(
            method,
            model=name,
            entrypoint=entrypoint,
            request_id=request_id,
            signature=signature,
        ) as record:
            record.version, definitions = self.metadata(
                name, version=version, label=label
            )
            signature = signature or DEFAULT_SIGNATURE
            if signature not in definitions:
                raise RequestError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"No signature was found with the name: {signature}",
                )
            raise examples_refusal(method, definitions[signature])

    @contextlib.contextmanager
    def recorded(
        self,
        method: str,
        *,
        model: str,
        entrypoint: str,
        request_id: str = "",
        signature: str = "",
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
            signature=signature,
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
            self._finish(record, time.monotonic() - started)

    def _finish(self, record: RequestRecord, seconds: float) -> None:
        record.milliseconds = 1000 * seconds
        if record.method in _COUNTED_METHODS:
            known = record.model in self._manager.names()
            self.metrics.count_request(
                model=record.model if known else UNKNOWN_MODEL,
                api=record.method,
                entrypoint=record.entrypoint,
                status=record.status,
                seconds=seconds,
            )
        self._log.request(record)

    @contextlib.contextmanager
    def _admitted(self) -> Iterator[None]:
        with self._lock:
            if self._pending >= self.limits.max_pending:
                raise RequestError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"The server has {self._pending} requests to answer, as "
                    "many as it takes; try again later.",
                )
            self._pending += 1
        self.metrics.pending.inc()
        try:
            yield
        finally:
            with self._lock:
                self._pending -= 1
            self.metrics.pending.dec()

    @contextlib.contextmanager
    def _turn(self, deadline: float) -> Iterator[None]:
        """Waits until one more request may run."""
        if self.limits.max_running is None:
            yield
            return
        if not self._turns.acquire(timeout=max(0, deadline - time.monotonic())):
            raise deadline_exceeded()
        try:
            yield
        finally:
            self._turns.release()

    def _run(self, servable, arrays, *, record, output_filter, deadline):
        with self._turn(deadline):
            started = time.monotonic()
            if started >= deadline:
                raise deadline_exceeded()
            outputs = servable.run(
                arrays,
                signature=record.signature,
                output_filter=output_filter,
                timeout_seconds=deadline - started,
            )
            self.metrics.count_run(
                model=record.model,
                signature=record.signature or DEFAULT_SIGNATURE,
                rows=record.batch_size,
                seconds=time.monotonic() - started,
            )
        return outputs


def examples_refusal(method: str, definition) -> RequestError:
    """Why Classify or Regress cannot use a signature.

    Args:
        method: str. A key of `EXAMPLE_METHODS`.
        definition: `SignatureDef`.
    """
    word, method_name = EXAMPLE_METHODS[method]
    if definition.method_name != method_name:
        return RequestError(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"Expected {word} signature method_name to be {method_name}. "
            f"Was: {definition.method_name}",
        )
    return RequestError(
        grpc.StatusCode.UNIMPLEMENTED,
        f"This server runs no {word} signatures; TF Serving does.",
    )


def _count_rows(arrays: Mapping[str, np.ndarray]) -> int | None:
    return next((len(a) for a in arrays.values() if a.ndim), None)


def _texts(arrays: Mapping[str, np.ndarray]) -> list[str]:
    return [
        value.decode("utf-8", "replace")
        for array in arrays.values()
        if array.dtype == object
        for value in array.flat
    ]
