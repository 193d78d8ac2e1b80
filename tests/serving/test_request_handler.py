import contextlib
import json
import re
import threading
from concurrent import futures

import grpc
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tensorflow_serving.config import model_server_config_pb2

from realm_tf.errors import InputError
from realm_tf.serving.limits import Limits
from realm_tf.serving.metrics import ServingMetrics
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_handler import RequestHandler
from realm_tf.serving.request_log import RequestLog


def questions(*texts):
    return {"question": np.array([t.encode() for t in texts], dtype=object)}


@pytest.fixture
def handler_of(fake_manager, tmp_path):
    """Makes a handler; its log is at `tmp_path / "log"`."""
    with contextlib.ExitStack() as stack:

        def make(*, log_questions=False, **limits):
            log = RequestLog(str(tmp_path / "log"), log_questions=log_questions)
            stack.callback(log.close)
            return RequestHandler(
                fake_manager,
                limits=Limits(**limits),
                metrics=ServingMetrics(),
                log=log,
            )

        yield make


@pytest.fixture
def read_log(tmp_path):
    def read():
        return [
            json.loads(line)
            for line in (tmp_path / "log").read_text().splitlines()
        ]

    return read


def samples(handler):
    """The metrics: (name, labels) to value; no buckets."""
    text = handler.metrics.render()[0].decode()
    return {
        # This parser adds _total to the name of every counter.
        (
            sample.name.removesuffix("_total"),
            *sorted(sample.labels.values()),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels
    }


def refused(code, message, function, *arguments, **options):
    with pytest.raises(RequestError, match=message) as caught:
        function(*arguments, **options)
    assert caught.value.code == grpc.StatusCode[code]


def test_an_answer_is_counted_and_logged(handler_of, fake_servable, read_log):
    fake_servable.let_go.set()
    handler = handler_of()
    prediction = handler.predict(
        "realm", questions("a", "b"), entrypoint="REST", request_id="id-1"
    )
    assert prediction.version == 1
    assert prediction.signature == "serving_default"
    assert prediction.outputs["question"].tolist() == [b"a", b"b"]
    assert prediction.seconds > 0
    (line,) = read_log()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time")
    )
    assert 0 < line.pop("milliseconds") < 10_000
    assert line == {
        "kind": "request",
        "request_id": "id-1",
        "entrypoint": "REST",
        "method": "Predict",
        "model": "realm",
        "version": 1,
        "batch_size": 2,
        "status": "OK",
    }
    found = samples(handler)
    prefix = ":tensorflow:serving:"
    assert found[f"{prefix}request_count", "OK", "realm"] == 1
    latency = f"{prefix}request_latency"
    assert found[f"{latency}_count", "Predict", "REST", "realm"] == 1
    microseconds = found[f"{latency}_sum", "Predict", "REST", "realm"]
    assert 0 < microseconds <= 1e6 * prediction.seconds
    runtime = f"{prefix}runtime_latency_count"
    assert found[runtime, "Predict", "TF1", "realm"] == 1
    assert found["realm_request_rows_sum", "realm", "serving_default"] == 2
    assert found["realm_pending_requests",] == 0


def test_questions_are_logged_only_if_asked(
    handler_of, fake_servable, read_log, tmp_path
):
    fake_servable.let_go.set()
    fake_servable.error = RequestError(
        grpc.StatusCode.INVALID_ARGUMENT, "cannot read 'secret?'"
    )
    for log_questions in (False, True):
        refused(
            "INVALID_ARGUMENT",
            "cannot read",
            handler_of(log_questions=log_questions).predict,
            "realm",
            questions("secret?"),
        )
    without, with_questions = read_log()
    assert "secret" not in json.dumps(without)
    assert without["status"] == "INVALID_ARGUMENT"
    assert with_questions["questions"] == ["secret?"]
    assert with_questions["error"] == "cannot read 'secret?'"


def test_a_defect_is_internal_and_tells_where(
    handler_of, fake_servable, read_log
):
    fake_servable.let_go.set()
    fake_servable.error = KeyError("secret?")
    handler = handler_of()
    refused(
        "INTERNAL",
        "Internal error; .* request id id-2",
        handler.predict,
        "realm",
        questions("secret?"),
        request_id="id-2",
    )
    (line,) = read_log()
    assert "secret" not in json.dumps(line)
    assert line["traceback"][-1] == "KeyError"
    assert any("conftest.py" in place for place in line["traceback"])
    count = ":tensorflow:serving:request_count"
    assert samples(handler)[count, "INTERNAL", "realm"] == 1


def test_names_that_clients_make_up_are_one_in_the_metrics(
    handler_of, read_log
):
    handler = handler_of()
    for name in ("x", "y"):
        refused(
            "NOT_FOUND",
            rf"Servable not found for request: Latest\({name}\)",
            handler.predict,
            name,
            questions("a"),
        )
    count = ":tensorflow:serving:request_count"
    assert samples(handler)[count, "(unknown)", "NOT_FOUND"] == 2
    assert [line["model"] for line in read_log()] == ["x", "y"]


def test_limits_on_sizes(handler_of, fake_servable):
    fake_servable.let_go.set()
    handler = handler_of(max_batch_size=2, max_string_bytes=10)
    assert handler.predict("realm", questions("a" * 10, "b"))
    refused(
        "INVALID_ARGUMENT",
        "question has 3 rows, more than the 2",
        handler.predict,
        "realm",
        questions("a", "b", "c"),
    )
    refused(
        "INVALID_ARGUMENT",
        "a string of 12 bytes, more than the 10",
        handler.predict,
        "realm",
        # Bytes count, not characters.
        questions("é" * 6),
    )
    assert fake_servable.runs == 1


@pytest.mark.parametrize(
    "name", ["max_batch_size", "max_running", "default_timeout_seconds"]
)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_limits_that_are_none(name, value):
    with pytest.raises(InputError, match=f"--{name.replace('_', '-')} is"):
        Limits(**{name: value})


def test_one_request_too_many_is_refused_at_once(
    handler_of, fake_servable, read_log
):
    handler = handler_of(max_pending=2, max_running=1)
    with futures.ThreadPoolExecutor(2) as pool:
        calls = [
            pool.submit(handler.predict, "realm", questions(str(i)))
            for i in range(2)
        ]
        assert fake_servable.started.acquire(timeout=20)
        while samples(handler)["realm_pending_requests",] < 2:
            assert not any(call.done() for call in calls)
        decoded = threading.Event()
        refused(
            "RESOURCE_EXHAUSTED",
            "has 2 requests to answer",
            handler.predict,
            "realm",
            # Not even read.
            decoded.set,
        )
        assert not decoded.is_set()
        fake_servable.let_go.set()
        for i, call in enumerate(calls):
            outputs = call.result(timeout=20).outputs
            assert outputs["question"].tolist() == [str(i).encode()]
    assert handler.predict("realm", questions("again"))
    assert read_log()[0]["status"] == "RESOURCE_EXHAUSTED"


def test_time_spent_waiting_counts(handler_of, fake_servable):
    handler = handler_of(max_running=1)
    with futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(handler.predict, "realm", questions("a"))
        assert fake_servable.started.acquire(timeout=20)
        refused(
            "DEADLINE_EXCEEDED",
            "Deadline exceeded",
            handler.predict,
            "realm",
            questions("b"),
            timeout_seconds=0.05,
        )
        fake_servable.let_go.set()
        assert call.result(timeout=20)
    refused(
        "DEADLINE_EXCEEDED",
        "Deadline exceeded",
        handler.predict,
        "realm",
        questions("c"),
        timeout_seconds=-1.0,
    )
    assert fake_servable.runs == 1


def test_the_run_gets_what_is_left_of_the_time(
    handler_of, fake_servable, monkeypatch
):
    given = []

    def run(inputs, *, timeout_seconds, **unused):
        given.append(timeout_seconds)
        return inputs

    monkeypatch.setattr(fake_servable, "run", run)
    handler = handler_of(default_timeout_seconds=7.0)
    handler.predict("realm", questions("a"))
    handler.predict("realm", questions("a"), timeout_seconds=3.0)
    assert 6 < given[0] < 7
    assert 2 < given[1] < 3


def test_metadata_status_and_card(handler_of):
    handler = handler_of()
    version, definitions = handler.metadata("realm")
    assert version == 1
    assert list(definitions) == ["serving_default"]
    assert handler.card("realm") == {"index": "fake"}
    assert handler.names() == ["realm"]
    (status,) = handler.status("realm", version=1)
    assert (status.version, status.state, status.error_code) == (1, 30, 0)
    refused(
        "NOT_FOUND",
        r"Specific\(realm, 9\)",
        handler.metadata,
        "realm",
        version=9,
    )
    refused("NOT_FOUND", "version 9", handler.status, "realm", version=9)
    refused("INVALID_ARGUMENT", "label: x", handler.status, "realm", label="x")


def test_reload_refuses_what_is_wrong(handler_of):
    handler = handler_of()
    config = model_server_config_pb2.ModelServerConfig()
    model = config.model_config_list.config.add(
        name="realm", model_platform="tensorflow", base_path="relative"
    )
    refused("INVALID_ARGUMENT", "absolute path", handler.reload, config)
    model.base_path = "/nonexistent"
    refused("INVALID_ARGUMENT", "does not exist", handler.reload, config)
    assert handler.names() == ["realm"]


@pytest.mark.parametrize(
    "method, message",
    [
        (
            "Classify",
            "Expected classification signature method_name to be "
            "tensorflow/serving/classify. Was: tensorflow/serving/predict",
        ),
        (
            "Regress",
            "Expected regression signature method_name to be "
            "tensorflow/serving/regress. Was: tensorflow/serving/predict",
        ),
    ],
)
def test_examples_are_refused(
    handler_of, fake_servable, read_log, method, message
):
    handler = handler_of()
    refused(
        "INVALID_ARGUMENT", message, handler.refuse_examples, method, "realm"
    )
    refused(
        "INVALID_ARGUMENT",
        "No signature was found with the name: nope",
        handler.refuse_examples,
        method,
        "realm",
        signature="nope",
    )
    definition = fake_servable.signature_defs["serving_default"]
    definition.method_name = f"tensorflow/serving/{method.lower()}"
    refused(
        "UNIMPLEMENTED",
        "TF Serving does",
        handler.refuse_examples,
        method,
        "realm",
    )
    assert [line["method"] for line in read_log()] == [method] * 3
    count = ":tensorflow:serving:request_count"
    assert samples(handler)[count, "INVALID_ARGUMENT", "realm"] == 2
