"""What the server counts, in Prometheus' text form.

Names, labels, units and buckets of what TF Serving counts too are its own, so
that its dashboards work; those that start with process_ are Prometheus' own, with
realm_ ours.

References:
    tensorflow/serving: tensorflow_serving/servables/tensorflow/util.cc,
    saved_model_warmup_util.cc, tensorflow_serving/batching/
    batching_session.cc; tensorflow/cc/saved_model/loader.cc of tensorflow;
    the form of names: tensorflow_serving/util/prometheus_exporter.cc.
"""

from collections.abc import Callable
from collections.abc import Iterable

import prometheus_client
from prometheus_client.core import GaugeMetricFamily

from realm_tf.serving import memory

# Of models that are not served: a client could make up any number of names.
UNKNOWN_MODEL = "(unknown)"
# API and runtime labels of TF Serving's predict_impl.cc.
_RUNTIME = "TF1"
_MICROSECONDS = 1e6
# Scale 10, growth 1.8, 33 buckets: to about 20 minutes.
_LATENCY_BUCKETS = [10 * 1.8**power for power in range(33)]
# Scale 100, growth 1.2, 52 buckets: to about a second.
_QUEUE_BUCKETS = [100 * 1.2**power for power in range(52)]
_ROW_BUCKETS = [2**power for power in range(11)]
_PREFIX = ":tensorflow:"
_COUNTERS = {
    "serving:request_count": ("Requests answered.", ["model_name", "status"]),
    "serving:batching_session:wrapped_run_count": ("Batches run.", []),
    "cc:saved_model:load_attempt_count": (
        "SavedModels loaded or not.",
        ["model_path", "status"],
    ),
    "cc:saved_model:load_latency": (
        "Microseconds spent loading SavedModels.",
        ["model_path"],
    ),
}
_HISTOGRAMS = {
    "serving:request_latency": (
        "Microseconds from a request's arrival to its answer.",
        ["model_name", "API", "entrypoint"],
        _LATENCY_BUCKETS,
    ),
    "serving:runtime_latency": (
        "Microseconds in TensorFlow, waiting for a batch included.",
        ["model_name", "API", "runtime"],
        _LATENCY_BUCKETS,
    ),
    "serving:model_warmup_latency": (
        "Microseconds of warming a version up.",
        ["model_path", "status"],
        _LATENCY_BUCKETS,
    ),
    "serving:batching_session:queuing_latency": (
        "Microseconds that a request waited for its batch.",
        ["thread_pool_name"],
        _QUEUE_BUCKETS,
    ),
}


class ServingMetrics:
    """The metrics of one server.

    Attributes:
        pending: gauge. Requests accepted and not yet answered.
    """

    def __init__(self):
        self._registry = prometheus_client.CollectorRegistry()
        # prometheus_client's own counters must end in _total; `render`
        # gives these their type back.
        self._counters = {
            name: prometheus_client.Gauge(
                f"{_PREFIX}{name}", text, labels, registry=self._registry
            )
            for name, (text, labels) in _COUNTERS.items()
        }
        self._histograms = {
            name: prometheus_client.Histogram(
                f"{_PREFIX}{name}",
                text,
                labels,
                buckets=buckets,
                registry=self._registry,
            )
            for name, (text, labels, buckets) in _HISTOGRAMS.items()
        }
        self._add_own()

    def _add_own(self) -> None:
        self.pending = prometheus_client.Gauge(
            "realm_pending_requests",
            "Requests accepted and not yet answered.",
            registry=self._registry,
        )
        self._request_rows = prometheus_client.Histogram(
            "realm_request_rows",
            "Rows (questions) of a request.",
            ["model_name", "signature"],
            buckets=_ROW_BUCKETS,
            registry=self._registry,
        )
        self._batch_rows = prometheus_client.Histogram(
            "realm_batch_rows",
            "Rows of a merged batch, without padding.",
            buckets=_ROW_BUCKETS,
            registry=self._registry,
        )
        self._padding = prometheus_client.Counter(
            "realm_batch_padding_rows",
            "Rows that filled batches up to an allowed size.",
            registry=self._registry,
        )
        # Processor time, resident memory and open files.
        prometheus_client.ProcessCollector(registry=self._registry)
        if memory.allocated_bytes() is not None:
            prometheus_client.Gauge(
                "realm_allocated_bytes",
                "Allocated and not freed. Where process_resident_memory_bytes "
                "grows and this does not, there are gaps but no leak.",
                registry=self._registry,
            ).set_function(memory.allocated_bytes)

    def render(self) -> tuple[bytes, str]:
        """All metrics and their content type."""
        text = prometheus_client.generate_latest(self._registry).decode()
        for name in _COUNTERS:
            line = f"# TYPE {_PREFIX}{name} "
            text = text.replace(f"{line}gauge\n", f"{line}counter\n")
        return (
            text.encode(),
            prometheus_client.exposition.CONTENT_TYPE_PLAIN_0_0_4,
        )

    def count_request(
        self,
        *,
        model: str,
        api: str,
        entrypoint: str,
        status: str,
        seconds: float,
    ) -> None:
        """Counts an answered request; latencies only of those that are OK."""
        self._counters["serving:request_count"].labels(model, status).inc()
        if status == "OK":
            self._histograms["serving:request_latency"].labels(
                model, api, entrypoint
            ).observe(_MICROSECONDS * seconds)

    def count_run(
        self, *, model: str, signature: str, rows: int | None, seconds: float
    ) -> None:
        """Counts a finished run of a signature."""
        self._histograms["serving:runtime_latency"].labels(
            model, "Predict", _RUNTIME
        ).observe(_MICROSECONDS * seconds)
        if rows is not None:
            self._request_rows.labels(model, signature).observe(rows)

    def count_load(self, directory: str, seconds: float | None) -> None:
        """Counts a load of a version; `None` seconds: it failed."""
        status = "fail" if seconds is None else "success"
        self._counters["cc:saved_model:load_attempt_count"].labels(
            directory, status
        ).inc()
        if seconds is not None:
            self._counters["cc:saved_model:load_latency"].labels(directory).inc(
                _MICROSECONDS * seconds
            )

    def count_warm_up(self, directory: str, seconds: float) -> None:
        """Counts a version's warm-up."""
        self._histograms["serving:model_warmup_latency"].labels(
            directory, "OK"
        ).observe(_MICROSECONDS * seconds)

    def count_batch(self, batch, *, thread_pool_name: str) -> None:
        """Counts a merged batch.

        Args:
            batch: `batching.BatchRun`.
            thread_pool_name: str.
        """
        self._counters["serving:batching_session:wrapped_run_count"].inc()
        queuing = self._histograms[
            "serving:batching_session:queuing_latency"
        ].labels(thread_pool_name)
        for seconds in batch.queue_seconds:
            queuing.observe(_MICROSECONDS * seconds)
        self._batch_rows.observe(batch.rows)
        self._padding.inc(batch.padding_rows)

    def watch_versions(
        self, list_versions: Callable[[], Iterable[tuple[str, int, bool]]]
    ) -> None:
        """Adds the gauge of versions, read whenever metrics are.

        Args:
            list_versions: function that gives model name, version and
                whether it is AVAILABLE, for every version known.
        """
        self._registry.register(_Versions(list_versions))


class _Versions:
    """A collector of prometheus_client."""

    def __init__(self, list_versions):
        self._list_versions = list_versions

    def describe(self) -> list:
        """No metrics in advance: registering must not ask for versions."""
        return []

    def collect(self):
        """One sample a version."""
        family = GaugeMetricFamily(
            "realm_version_available",
            "1 while a version answers requests, else 0.",
            labels=["model_name", "version"],
        )
        for model, version, available in self._list_versions():
            family.add_metric([model, str(version)], float(available))
        yield family
