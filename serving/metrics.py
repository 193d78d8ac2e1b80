"""What the server counts, in Prometheus' text form.

Requests have TF Serving's names, labels, units and buckets, so that its
dashboards work; names that start with process_ are Prometheus' own, those with
realm_ ours.

References:
    tensorflow/serving: tensorflow_serving/servables/tensorflow/util.cc; the
    form of names: tensorflow_serving/util/prometheus_exporter.cc.
"""

import threading

import prometheus_client

from realm_tf.serving import memory
from realm_tf.serving.version import State
from realm_tf.serving.version import Version

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
