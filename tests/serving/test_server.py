"""The server's life: options, start, versions, drain, end."""

import os
import re
import shutil
import socket
import urllib.error
import urllib.request
from concurrent import futures

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from server_process import get_json
from stock_requests import predict_request
from stock_requests import slow_request
from tensorflow_serving.apis import prediction_service_pb2_grpc
from waiting import wait_for

from realm_tf import cli
from realm_tf.errors import InputError
from realm_tf.serving import server
from realm_tf.serving.versions import Versions


def test_stopping_lets_running_calls_finish(serve_fake, fake_servable):
    running = serve_fake()
    url = f"{running.rest_url}/v1/models/realm:predict"
    with (
        grpc.insecure_channel(running.target) as channel,
        futures.ThreadPoolExecutor(2) as pool,
    ):
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        call = stub.Predict.future(predict_request("x"))
        posted = pool.submit(
            get_json, url, data=b'{"inputs": {"question": ["y"]}}'
        )
        for _ in range(2):
            assert fake_servable.started.acquire()
        health = health_pb2_grpc.HealthStub(channel)
        watched = health.Watch(health_pb2.HealthCheckRequest())
        serving = health_pb2.HealthCheckResponse.SERVING
        assert next(watched).status == serving
        stopping = pool.submit(running.stop, grace_seconds=600)
        not_serving = health_pb2.HealthCheckResponse.NOT_SERVING
        assert next(watched).status == not_serving
        # Who looks at its health is told first: one call may still slip in.
        for _ in range(2):
            runs = fake_servable.runs
            refused = stub.Predict.future(predict_request("z"), timeout=1)
            code = refused.code()
            if fake_servable.runs == runs:
                break
        assert fake_servable.runs == runs
        # The connection is refused, or the call dropped or never answered.
        assert code in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.CANCELLED,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )
        assert not fake_servable.closed
        fake_servable.let_go.set()
        answer = call.result().outputs["question"]
        assert list(answer.string_val) == [b"x"]
        assert posted.result() == (200, {"outputs": ["y"]})
        # Not when the grace ends, which the watch outlives.
        stopping.result(timeout=300)
    assert fake_servable.closed
    with pytest.raises(urllib.error.URLError, match="refused"):
        get_json(url, data=b"{}")


def test_a_call_longer_than_the_grace_is_cancelled(saved_model, capsys):
    running = server.start(f"{saved_model}/1")
    url = f"{running.rest_url}/v1/models/realm:predict"
    body = b'{"signature_name": "slow", "inputs": 2147483647}'
    with (
        grpc.insecure_channel(running.target) as channel,
        futures.ThreadPoolExecutor(1) as pool,
    ):
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        call = stub.Predict.future(slow_request(2**31 - 1))
        posted = pool.submit(get_json, url, data=body)
        wait_for(lambda: running.handler.num_pending == 2)
        running.stop(grace_seconds=0.2)
        assert call.code() in (
            grpc.StatusCode.CANCELLED,
            grpc.StatusCode.UNAVAILABLE,
        )
        status, body = posted.result()
        assert status == 503 and body["error"]
    assert "Traceback" not in capsys.readouterr().err


@pytest.fixture
def no_load(monkeypatch):
    """Fails where a model would be loaded, and then served for ever."""
    monkeypatch.setattr(
        Versions, "start", lambda self: pytest.fail("a model is loaded")
    )


def test_a_taken_port_is_refused(running, saved_model, capsys, no_load):
    port = running.target.rpartition(":")[2]
    status = cli.main(
        ["serve", "--saved-model", saved_model, "--grpc-port", port]
    )
    output = capsys.readouterr()
    assert status == 2
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert f"Cannot listen on 127.0.0.1 port {port}" in output.err
    port = running.rest_url.rpartition(":")[2]
    with pytest.raises(InputError, match=f"port {port} .*--rest-port"):
        server.start(saved_model, rest_port=int(port))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--saved-model", "{absent}"], "{absent} does not exist"),
        (["--host", ""], "--host is empty"),
        (["--tls-client-ca", "x"], "--tls-client-ca needs --tls"),
        (["--tls", "{absent}", "{absent}"], "cannot be used for TLS"),
        (
            ["--tls", __file__, __file__, "--tls-client-ca", "{absent}"],
            "{absent} cannot be used for TLS",
        ),
        (["--api-key-file", "{absent}"], "--api-key-file {absent}"),
        (["--max-pending", "0"], "--max-pending is 0"),
        (["--max-merged-size", "-1"], "--max-merged-size is -1"),
        (["--rest-port", "70000"], "127.0.0.1 port 70000 (bind(): port must"),
        (["--grpc-port", "-1"], "another with --grpc-port"),
    ],
)
def test_mistakes(arguments, message, capsys, saved_model, tmp_path, no_load):
    absent = str(tmp_path / "absent")
    arguments = [each.format(absent=absent) for each in arguments]
    if "--saved-model" not in arguments:
        arguments = ["--saved-model", saved_model, *arguments]
    if "--grpc-port" not in arguments:
        arguments = [*arguments, "--grpc-port", "0"]
    assert cli.main(["serve", *arguments]) == 2
    assert message.format(absent=absent) in capsys.readouterr().err


def test_health_follows_the_versions(saved_model, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "_POLL_SECONDS", 0.05)
    shutil.copytree(f"{saved_model}/1", tmp_path / "1")
    with (
        server.start(str(tmp_path)) as running,
        grpc.insecure_channel(running.target) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)

        def is_serving():
            check = health_pb2.HealthCheckRequest()
            status = health.Check(check).status
            return status == health_pb2.HealthCheckResponse.SERVING

        assert is_serving()
        os.rename(tmp_path / "1", tmp_path / "gone")
        wait_for(lambda: not is_serving())
        os.rename(tmp_path / "gone", tmp_path / "2")
        wait_for(is_serving)


def test_concurrent_requests_are_batched(saved_model):
    with (
        server.start(saved_model) as running,
        grpc.insecure_channel(running.target) as channel,
    ):
        assert running.describe() == (
            f"{running.target} and {running.rest_url}, model realm, "
            f"version 2 ({saved_model}/2)"
        )
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        calls = [
            stub.Predict.future(
                predict_request("who wrote frankenstein?"), timeout=20
            )
            for _ in range(100)
        ]
        for call in calls:
            values = call.result().outputs["score"].float_val
            assert list(values) == [112.5]
        text = running.handler.render_metrics()[0].decode()
    (rows,) = re.findall(r"^realm_batch_rows_sum (\S+)$", text, re.M)
    (batches,) = re.findall(r"^realm_batch_rows_count (\S+)$", text, re.M)
    assert float(rows) == 100
    assert float(batches) < 100


def test_ipv6_addresses_are_bracketed(serve_fake):
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    running = serve_fake(host="::1")
    assert running.target.startswith("[::1]:")
    assert running.rest_url.startswith("http://[::1]:")
    assert get_json(f"{running.rest_url}/v1/models/realm")[0] == 200
