import json
import re

import grpc
import numpy as np
import pytest

from realm_tf.serving.access import restricted
from realm_tf.serving.metrics import RequestRecord
from realm_tf.serving.metrics import ServingMetrics
from realm_tf.serving.metrics import choose_request_id
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.tensors import PredictRequest

COUNT = ":tensorflow:serving:request_count"


def asking(*texts):
    texts = [t.encode() if isinstance(t, str) else t for t in texts]
    inputs = {"question": np.array(texts, dtype=object)}
    return lambda signatures: PredictRequest(inputs)


def ask(handler, *texts, name="realm", request_id="id", **options):
    record = RequestRecord("Predict", "REST", name, request_id)
    with handler.recorded(record), handler.admitted():
        _, outputs = handler.predict(record, asking(*texts), **options)
    return record, outputs


def _definitions(*names):
    return dict.fromkeys(names)


QUESTIONS = {"question": np.array([b"a", b"b"], object)}
NAMES = ("serving_default", "retrieve", "embed_query", "embed_block")
FILTERED = ("serving_default_filtered", "retrieve_filtered")


@pytest.mark.parametrize(
    "signature", ["", "retrieve", "anything", "__saved_model_init_op"]
)
def test_a_key_that_sees_a_part_is_refused_without_fields(signature):
    request = PredictRequest(QUESTIONS, signature)
    with pytest.raises(
        RequestError, match="sees a part of the documents"
    ) as caught:
        restricted(request, "t=x", _definitions(*NAMES))
    assert caught.value.code == grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
def handler_of(serve_fake):
    return lambda **options: serve_fake(**options).handler


def rendered(handler):
    content, content_type = handler.render_metrics()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    return content.decode()


def refused(code, message, function, *arguments, **options):
    with pytest.raises(RequestError, match=message) as caught:
        function(*arguments, **options)
    assert caught.value.code == grpc.StatusCode[code]


def test_an_answer_is_counted_and_logged(handler_of, fake_servable, read_log):
    fake_servable.let_go.set()
    handler = handler_of()
    record, outputs = ask(handler, "a", "b", request_id="id-1")
    assert record.version == 1
    assert outputs["question"].tolist() == [b"a", b"b"]
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
    text = rendered(handler)
    for sample in (
        f'{COUNT}{{model_name="realm",status="OK"}} 1.0',
        ':tensorflow:serving:request_latency_count{API="Predict",'
        'entrypoint="REST",model_name="realm"} 1.0',
        "realm_pending_requests 0.0",
        'realm_version_available{model_name="realm",version="1"} 1.0',
    ):
        assert f"\n{sample}\n" in text
    (microseconds,) = re.findall(r"request_latency_sum.* (\S+)\n", text)
    assert float(microseconds) == pytest.approx(1e3 * record.milliseconds)
    (resident,) = re.findall(r"\nprocess_resident_memory_bytes (\S+)", text)
    assert float(resident) > 1e6


def test_when_questions_are_logged(handler_of, fake_servable, read_log, caplog):
    # Hostile text stays on its line.
    question = 'secret\nb"\u2028{"kind": "forged"}'
    fake_servable.let_go.set()
    fake_servable.error = RequestError(
        grpc.StatusCode.INVALID_ARGUMENT, "cannot read 'secret?'"
    )
    for log_questions in (False, True):
        handler = handler_of(log_questions=log_questions)
        refused("INVALID_ARGUMENT", "cannot read", ask, handler, question)
    assert all(record.message.isascii() for record in caplog.records)
    assert "\n" not in caplog.records[-1].message
    without, with_questions = read_log()
    assert "secret" not in json.dumps(without)
    assert without["status"] == "INVALID_ARGUMENT"
    assert with_questions["questions"] == [question]
    assert with_questions["error"] == "cannot read 'secret?'"


def test_a_defect_is_internal_tells_where(handler_of, fake_servable, read_log):
    fake_servable.let_go.set()
    fake_servable.error = KeyError("secret?")
    handler = handler_of()
    refused(
        "INTERNAL",
        "Internal error; .* request id id-2",
        ask,
        handler,
        "secret?",
        request_id="id-2",
    )
    (line,) = read_log()
    assert "secret" not in json.dumps(line)
    assert line["traceback"][-1] == "KeyError"
    assert any("conftest.py" in place for place in line["traceback"])
    count = f'{COUNT}{{model_name="realm",status="INTERNAL"}} 1.0'
    assert count in rendered(handler)


def test_names_that_clients_make_up_are_one_in_metrics(handler_of, read_log):
    handler = handler_of()
    for name in ("x", "y"):
        message = rf"Servable not found for request: Latest\({name}\)"
        refused("NOT_FOUND", message, ask, handler, "a", name=name)
    count = f'{COUNT}{{model_name="(unknown)",status="NOT_FOUND"}} 2.0'
    assert count in rendered(handler)
    assert [line["model"] for line in read_log()] == ["x", "y"]


@pytest.mark.parametrize(
    "sent, expected",
    [
        (b"x" * 10, b"x" * 10),
        (b"x" * 11, b"x" * 10),
        # Between characters.
        ("é".encode() * 9, "é".encode() * 5),
        (b"x" + "é".encode() * 9, b"x" + "é".encode() * 4),
        ("🚀".encode() * 3, "🚀".encode() * 2),
    ],
)
def test_long_strings_are_cut(handler_of, fake_servable, sent, expected):
    fake_servable.let_go.set()
    handler = handler_of()
    handler.max_string_bytes = 10
    _, outputs = ask(handler, sent, "y")
    assert outputs["question"].tolist() == [expected, b"y"]


def test_a_long_filter_is_refused(handler_of):
    """Its first half would let other blocks be found."""
    handler = handler_of()
    handler.max_string_bytes = 10
    inputs = {**QUESTIONS, "filter": np.array([b"", b"t!=a|b|c|d"], object)}
    inputs["filter"][1] += b"|e"
    record = RequestRecord("Predict", "REST", "realm", "id")
    message = "filter has 12 bytes, more than the 10"
    refused(
        "INVALID_ARGUMENT",
        message,
        handler.predict,
        record,
        lambda signatures: PredictRequest(inputs, FILTERED[0]),
    )


def test_the_run_gets_the_time_left(handler_of, fake_servable, monkeypatch):
    given = []

    def run(inputs, *, timeout_seconds, **unused):
        given.append(timeout_seconds)
        return inputs

    monkeypatch.setattr(fake_servable, "run", run)
    handler = handler_of()
    handler.default_timeout_seconds = 7.0
    ask(handler, "a")
    ask(handler, "a", timeout_seconds=3.0)
    assert 6 < given[0] < 7
    assert 2 < given[1] < 3


def test_names_types_and_labels_are_tf_servings():
    """As prometheus_exporter.cc writes what util.cc declares."""
    metrics, other = ServingMetrics(), ServingMetrics()
    for status in ("OK", "NOT_FOUND"):
        metrics.count_request(
            model="realm", entrypoint="GRPC", status=status, seconds=1
        )
    text = metrics.render([])[0].decode()
    lines = text.splitlines()
    assert f"# TYPE {COUNT} counter" in lines
    assert "# TYPE :tensorflow:serving:request_latency histogram" in lines
    assert f'{COUNT}{{model_name="realm",status="OK"}} 1.0' in lines
    buckets = re.findall(
        r":request_latency_bucket\{API=\"Predict\",entrypoint=\"GRPC\","
        r"le=\"(\S+)\",model_name=\"realm\"\} (\S+)",
        text,
    )
    limits = [float(limit) for limit, _ in buckets]
    assert len(limits) == 34
    # Exponential(10, 1.8, 33): 10, 18, 32.4 and so on to 20 minutes.
    assert limits[:3] == [10, 18, pytest.approx(32.4)]
    assert 20 * 60 * 1e6 < limits[32] < 30 * 60 * 1e6
    # Latencies of answers only.
    assert [c for limit, c in buckets if float(limit) < 1e6][-1] == "0.0"
    assert buckets[-1][1] == "1.0"
    # Two servers of a process do not share them.
    assert f"{COUNT}{{" not in other.render([])[0].decode()


@pytest.mark.parametrize("sent", ["abc", "6f1c:7/x-Z_~", "x" * 128])
def test_a_clients_request_id_is_kept(sent):
    assert choose_request_id(sent) == sent


@pytest.mark.parametrize(
    "sent", [None, "", "x" * 129, "a b", "a\nb", "é", "\x1b[2J", "a\x7f"]
)
def test_other_request_ids_are_replaced(sent):
    first, second = choose_request_id(sent), choose_request_id(sent)
    assert first != second
    assert len(first) == 16
    assert int(first, 16) >= 0
