"""The server's metrics in Prometheus' text form, and its log of requests.

Metrics of requests have TF Serving's names, labels, units and buckets, so that
its dashboards work. Names that start with process_ are Prometheus' own, those
with realm_ ours. The logger `realm_tf.serving` gets one JSON object for every
request and every event of a model. It leaves out questions, and messages of
errors, which may quote them, unless they are asked for.

References:
    tensorflow/serving: tensorflow_serving/servables/tensorflow/util.cc; the
    form of names: tensorflow_serving/util/prometheus_exporter.cc.
"""

import contextlib
import dataclasses
import datetime
import json
import logging
import re
import secrets
from collections.abc import Iterator

import prometheus_client

from realm_tf.serving import memory
from realm_tf.serving.client import MODEL_NAME
from realm_tf.serving.versions import AVAILABLE
from realm_tf.serving.versions import Version

LOGGER = logging.getLogger("realm_tf.serving")

# Of models that are not served: a client could make up any number of names.
UNKNOWN_MODEL = "(unknown)"
_MICROSECONDS = 1e6
# Scale 10, growth 1.8, 33 buckets: to about 20 minutes.
_LATENCY_BUCKETS = [10 * 1.8**power for power in range(33)]
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
            buckets=[2**power for power in range(11)],
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
        # Processor time, resident memory and open files.
        prometheus_client.ProcessCollector(**own)
        if memory.allocated_bytes() is not None:
            prometheus_client.Gauge(
                "realm_allocated_bytes",
                "Allocated and not freed. Where process_resident_memory_bytes "
                "grows and this does not, there are gaps but no leak.",
                **own,
            ).set_function(memory.allocated_bytes)

    def render(self, versions: list[Version]) -> tuple[bytes, str]:
        """All metrics and their content type; for one thread at a time.

        Args:
            versions: list of `Version`, all that are known.
        """
        self._available.clear()
        for version in versions:
            self._available.labels(MODEL_NAME, version.number).set(
                version.state == AVAILABLE
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
        status: str. Name of the gRPC status. Defaults to that of a request
            that ends without an answer.
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
    status: str = "CANCELLED"
    milliseconds: float = 0.0
    error: str = ""
    traceback: list[str] = dataclasses.field(default_factory=list)


# Text of a client, or an error that may quote it.
_PRIVATE = ("questions", "error")


def log_request(record: RequestRecord, *, log_questions: bool) -> None:
    """Writes a request's line.

    Args:
        record: `RequestRecord`.
        log_questions: bool. Whether to write questions and messages of errors.
    """
    fields = {
        name: value
        for name, value in dataclasses.asdict(record).items()
        if value not in ("", None, [])
        and (log_questions or name not in _PRIVATE)
    }
    fields["milliseconds"] = round(record.milliseconds, 3)
    _log("request", fields)


def log_event(event: str, **fields) -> None:
    """Writes the line of a model's event; see `versions.Versions`."""
    _log("model", {"event": event, **fields})


@contextlib.contextmanager
def logged_to_stderr() -> Iterator[None]:
    """Writes the log to stderr, and nowhere else."""
    handler = logging.StreamHandler()
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.propagate = True
        LOGGER.removeHandler(handler)


def _log(kind: str, fields: dict) -> None:
    now = datetime.datetime.now(datetime.UTC)
    time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    LOGGER.info(json.dumps({"time": time, "kind": kind, **fields}))
