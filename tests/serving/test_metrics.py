import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from realm_tf.serving import memory
from realm_tf.serving.batching.batching_servable import BatchRun
from realm_tf.serving.metrics import ServingMetrics


def families(metrics):
    content, content_type = metrics.render()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    found = text_string_to_metric_families(content.decode())
    return {family.name: family for family in found}


def value(metrics, name, **labels):
    """The value of the one sample of that name and these labels."""
    (found,) = (
        sample.value
        for family in families(metrics).values()
        for sample in family.samples
        # This parser adds _total to the name of every counter.
        if sample.name in (name, f"{name}_total") and sample.labels == labels
    )
    return found


def test_names_types_and_labels_are_tf_servings():
    """As prometheus_exporter.cc writes what util.cc declares."""
    metrics = ServingMetrics()
    metrics.count_request(
        model="realm", api="Predict", entrypoint="GRPC", status="OK", seconds=1
    )
    lines = metrics.render()[0].decode().splitlines()
    assert "# TYPE :tensorflow:serving:request_count counter" in lines
    assert "# TYPE :tensorflow:serving:request_latency histogram" in lines
    assert "# TYPE realm_pending_requests gauge" in lines
    assert (
        ':tensorflow:serving:request_count{model_name="realm",status="OK"} 1.0'
        in lines
    )
    family = families(metrics)[":tensorflow:serving:request_latency"]
    buckets = [s for s in family.samples if s.name.endswith("_bucket")]
    assert set(buckets[0].labels) == {"model_name", "API", "entrypoint", "le"}
    limits = [float(s.labels["le"]) for s in buckets]
    assert len(limits) == 34
    # Exponential(10, 1.8, 33): 10, 18, 32.4 and so on to 20 minutes.
    assert limits[:3] == [10, 18, pytest.approx(32.4)]
    assert 20 * 60 * 1e6 < limits[32] < 30 * 60 * 1e6
    counts = dict(zip(limits, (s.value for s in buckets), strict=True))
    assert {count for limit, count in counts.items() if limit < 1e6} == {0}
    assert {count for limit, count in counts.items() if limit >= 1e6} == {1}


def test_latency_is_that_of_answers():
    metrics = ServingMetrics()
    asked = {"model": "realm", "api": "Predict", "entrypoint": "REST"}
    metrics.count_request(**asked, status="NOT_FOUND", seconds=3)
    assert (
        value(
            metrics,
            ":tensorflow:serving:request_count",
            model_name="realm",
            status="NOT_FOUND",
        )
        == 1
    )
    assert not families(metrics)[":tensorflow:serving:request_latency"].samples
    metrics.count_request(**asked, status="OK", seconds=0.25)
    labels = {"model_name": "realm", "API": "Predict", "entrypoint": "REST"}
    name = ":tensorflow:serving:request_latency_sum"
    assert value(metrics, name, **labels) == 250_000


def test_loads_and_warm_ups():
    metrics = ServingMetrics()
    metrics.count_load("/m/1", None)
    metrics.count_load("/m/1", 2.0)
    metrics.count_load("/m/1", 3.0)
    metrics.count_warm_up("/m/1", 0.5)
    prefix = ":tensorflow:cc:saved_model:load"
    assert value(metrics, f"{prefix}_latency", model_path="/m/1") == 5e6
    for status, count in (("fail", 1), ("success", 2)):
        assert count == value(
            metrics,
            f"{prefix}_attempt_count",
            model_path="/m/1",
            status=status,
        )
    assert (
        value(
            metrics,
            ":tensorflow:serving:model_warmup_latency_sum",
            model_path="/m/1",
            status="OK",
        )
        == 500_000
    )


def test_batches():
    metrics = ServingMetrics()
    run = BatchRun("serving_default", 6, 2, (0.001, 0.002))
    metrics.count_batch(run, thread_pool_name="pool")
    prefix = ":tensorflow:serving:batching_session"
    assert value(metrics, f"{prefix}:wrapped_run_count") == 1
    queuing = f"{prefix}:queuing_latency"
    assert value(
        metrics, f"{queuing}_sum", thread_pool_name="pool"
    ) == pytest.approx(3000)
    assert value(metrics, f"{queuing}_count", thread_pool_name="pool") == 2
    assert value(metrics, "realm_batch_rows_sum") == 6
    assert value(metrics, "realm_batch_padding_rows_total") == 2


def test_versions_are_looked_at_when_metrics_are():
    metrics = ServingMetrics()
    versions = [("realm", 1, True)]
    metrics.watch_versions(lambda: versions)
    labels = {"model_name": "realm", "version": "1"}
    assert value(metrics, "realm_version_available", **labels) == 1
    versions[:] = [("realm", 1, False), ("realm", 2, True)]
    assert value(metrics, "realm_version_available", **labels) == 0
    labels["version"] = "2"
    assert value(metrics, "realm_version_available", **labels) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_that_is_resident_and_that_is_in_use():
    metrics = ServingMetrics()
    before = value(metrics, "process_resident_memory_bytes")
    held = b"x" * 100_000_000
    after = value(metrics, "process_resident_memory_bytes")
    assert after - before > 0.9 * len(held)
    if memory.allocated_bytes() is not None:
        found = value(metrics, "realm_allocated_bytes")
        assert abs(found - memory.allocated_bytes()) < 10e6


def test_two_servers_do_not_share_metrics():
    first, second = ServingMetrics(), ServingMetrics()
    first.pending.inc()
    assert value(first, "realm_pending_requests") == 1
    assert value(second, "realm_pending_requests") == 0
