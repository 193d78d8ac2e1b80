"""The server's metrics in Prometheus' text form, and its log of requests.

Metrics of requests have TF Serving's names, labels, units and buckets, so that
its dashboards work. Names that start with process_ are Prometheus' own, those
with realm_ ours. The log has one JSON object a line for every request and every
event of a model. It leaves out questions, and messages of errors, which may
quote them, unless they are asked for.

References:
    tensorflow/serving: tensorflow_serving/servables/tensorflow/util.cc; the
    form of names: tensorflow_serving/util/prometheus_exporter.cc.
"""

import dataclasses
import datetime
import json
import logging
import logging.handlers
import os
import re
import secrets
import sys
import threading

import prometheus_client

from realm_tf.errors import InputError
from realm_tf.serving import memory
from realm_tf.serving.client import State
from realm_tf.serving.versions import Version

# Of models that are not served: a client could make up any number of names.
UNKNOWN_MODEL = "(unknown)"
_MICROSECONDS = 1e6
# Scale 10, growth 1.8, 33 buckets: to about 20 minutes.
_LATENCY_BUCKETS = [10 * 1.8**power for power in range(33)]
_ROW_BUCKETS = [2**power for power in range(11)]
_COUNT_NAME = ":tensorflow:serving:request_count"


class ServingMetrics:
    """The metrics of one server.

    Attributes:
        pending: prometheus_client.Gauge. Requests accepted and not yet
            answered.
        refused_keys: prometheus_client.Counter by entrypoint. Requests
            without a key that is accepted.
    """

    def __init__(self):
        self._registry = prometheus_client.CollectorRegistry()
        own = {"registry": self._registry}
        # prometheus_client's own counters must end in _total; `render` gives
        # this one its type back.
        self._requests = prometheus_client.Gauge(
            _COUNT_NAME, "Requests answered.", ["model_name", "status"], **own
        )
        self._latency = prometheus_client.Histogram(
            ":tensorflow:serving:request_latency",
            "Microseconds from a request's arrival to its answer.",
            ["model_name", "API", "entrypoint"],
            buckets=_LATENCY_BUCKETS,
            **own,
        )
        self._batch_rows = prometheus_client.Histogram(
            "realm_batch_rows",
            "Rows (questions) that were run as one.",
            buckets=_ROW_BUCKETS,
            **own,
        )
        self._batch_wait = prometheus_client.Histogram(
            "realm_batch_wait_seconds",
            "How long a request waited for its batch.",
            **own,
        )
        self.refused_keys = prometheus_client.Counter(
            "realm_refused_keys",
            "Requests without a key that is accepted.",
            ["entrypoint"],
            **own,
        )
        self.pending = prometheus_client.Gauge(
            "realm_pending_requests",
            "Requests accepted and not yet answered.",
            **own,
        )
        self._available = prometheus_client.Gauge(
            "realm_version_available",
            "1 while a version answers requests, else 0.",
            ["model_name", "version"],
            **own,
        )
        self._rendering = threading.Lock()
        # Processor time, resident memory and open files.
        prometheus_client.ProcessCollector(**own)
        if memory.allocated_bytes() is not None:
            prometheus_client.Gauge(
                "realm_allocated_bytes",
                "Allocated and not freed. Where process_resident_memory_bytes "
                "grows and this does not, there are gaps but no leak.",
                **own,
            ).set_function(memory.allocated_bytes)

    def render(
        self, *, model: str, versions: list[Version]
    ) -> tuple[bytes, str]:
        """All metrics and their content type.

        Args:
            model: str. The name of the model.
            versions: list of `Version`, all that are known.
        """
        # Or one reader would clear the versions that another is to get.
        with self._rendering:
            self._available.clear()
            for version in versions:
                self._available.labels(model, version.number).set(
                    version.state is State.AVAILABLE
                )
            text = prometheus_client.generate_latest(self._registry).decode()
        line = f"# TYPE {_COUNT_NAME} "
        return (
            text.replace(f"{line}gauge\n", f"{line}counter\n").encode(),
            prometheus_client.exposition.CONTENT_TYPE_PLAIN_0_0_4,
        )

    def count_request(
        self, *, model: str, entrypoint: str, status: str, seconds: float
    ) -> None:
        """Counts an answered request; latencies only of those that are OK."""
        self._requests.labels(model, status).inc()
        if status == "OK":
            self._latency.labels(model, "Predict", entrypoint).observe(
                _MICROSECONDS * seconds
            )

    def count_batch(self, rows: int, wait_seconds: list[float]) -> None:
        """Counts a batch and how long each of its requests waited."""
        self._batch_rows.observe(rows)
        for seconds in wait_seconds:
            self._batch_wait.observe(seconds)


REQUEST_ID_HEADER = "x-request-id"
# Longer ids of clients are replaced: they go into every line and back to the
# client. Our choice; a UUID takes 36 characters.
_REQUEST_ID = re.compile("[!-~]{1,128}")
_REQUEST_ID_BYTES = 8


def choose_request_id(sent: str | None) -> str:
    """The client's request id if it is fit for a log, else a new one.

    Args:
        sent: str. What came as `x-request-id`; `None` or empty if nothing.

    Returns:
        str of printable ASCII without spaces.
    """
    if sent and _REQUEST_ID.fullmatch(sent):
        return sent
    return secrets.token_hex(_REQUEST_ID_BYTES)


@dataclasses.dataclass
class RequestRecord:
    """What is known of a request; filled in while it is answered.

    Args:
        method: str. `"Predict"`, `"GetModelStatus"` and so on.
        entrypoint: str. `"GRPC"` or `"REST"`, as in TF Serving's metrics.
        model: str. The name the client sent.
        request_id: str. Defaults to a new one.
        peer: str. The client's address, where it was turned away.
        signature: str. Empty: none was asked for.
        version: int. `None` until it is known.
        batch_size: int. Rows of the request; `None` if it has none.
        required_filter: str. Of what the key may see; `""` for everything.
        questions: list of str. The request's strings.
        status: str. Name of the gRPC status.
        milliseconds: float. From its arrival to its answer.
        error: str. Why it was refused.
        traceback: list of str. Where in the code a defect showed.
    """

    method: str
    entrypoint: str
    model: str = ""
    request_id: str = dataclasses.field(
        default_factory=lambda: choose_request_id(None)
    )
    peer: str = ""
    signature: str = ""
    version: int | None = None
    batch_size: int | None = None
    required_filter: str = ""
    questions: list[str] = dataclasses.field(default_factory=list)
    status: str = "OK"
    milliseconds: float = 0.0
    error: str = ""
    traceback: list[str] = dataclasses.field(default_factory=list)


# Text of a client, or an error that may quote it.
_PRIVATE = ("questions", "error")


class RequestLog:
    """Writes the lines; any number of threads may do so at once.

    Args:
        path: str. A file to append to; one that is renamed, as logrotate
            does, is opened again, and while that fails lines are lost and
            stderr is told. `"-"` is stderr. Defaults to `""`: nothing
            is written.
        log_questions: bool. Whether questions and messages of errors are
            written too. Defaults to `False`.

    Raises:
        InputError: if the file cannot be written.
    """

    def __init__(self, path: str = "", *, log_questions: bool = False):
        self.log_questions = log_questions
        # Not from logging.getLogger: every server has its own.
        self._logger = logging.Logger("realm.requests", logging.INFO)
        self._handler = _handler(path)
        self._logger.addHandler(self._handler)

    def close(self) -> None:
        """Closes the file."""
        self._handler.close()

    def request(self, record: RequestRecord) -> None:
        """Writes a request's line."""
        fields = {
            name: value
            for name, value in dataclasses.asdict(record).items()
            if value not in ("", None, [])
            and (self.log_questions or name not in _PRIVATE)
        }
        fields["milliseconds"] = round(record.milliseconds, 3)
        self._write("request", fields)

    def event(self, event: str, **fields) -> None:
        """Writes the line of a model's event; see `versions.Versions`."""
        self._write("model", {"event": event, **fields})

    def _write(self, kind: str, fields: dict) -> None:
        now = datetime.datetime.now(datetime.UTC)
        time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._logger.info(json.dumps({"time": time, "kind": kind, **fields}))


class _File(logging.handlers.WatchedFileHandler):
    """A file whose failure stops no request: stderr is told of it."""

    def emit(self, record):
        try:
            super().emit(record)
        # It opens a renamed file outside of logging's own care.
        except OSError:
            self.handleError(record)


def _handler(path: str) -> logging.Handler:
    if not path:
        return logging.NullHandler()
    if path == "-":
        return logging.StreamHandler(sys.stderr)
    try:
        return _File(os.path.abspath(path), encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"--log-file {path} cannot be written ({error.strerror}): "
            "expected a file in a directory that exists, or - for stderr."
        ) from error
