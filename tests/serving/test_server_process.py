"""`realm serve` in a process of its own, until it ends."""

import json
import os
import shutil
import signal

import grpc
import pytest
import tensorflow as tf
from file_gate import WaitingModule
from server_process import Process
from server_process import get_json
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc
from waiting import wait_for


def is_refused(process):
    """Whether the server takes no new connections, as after SIGTERM."""
    try:
        get_json(process.rest_url + "/about.json")
    except OSError:
        return True
    return False


@pytest.mark.slow
def test_serve_process_ends_gracefully(tmp_path):
    base = tmp_path / "base"
    module = WaitingModule()
    tf.saved_model.save(
        module, str(base / "5"), signatures={"wait": module.wait}
    )
    with Process("--saved-model", str(base)) as process:
        assert process.ready.endswith(f", model realm, version 5 ({base}/5)\n")
        begun, ended = tmp_path / "begun", tmp_path / "ended"
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "realm"
        request.model_spec.signature_name = "wait"
        for path in (begun, ended):
            request.inputs[path.name].CopyFrom(tf.make_tensor_proto(str(path)))
        with grpc.insecure_channel(process.target) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            assert get_json(f"{process.rest_url}/v1/models/realm")[0] == 200
            call = stub.Predict.future(request)
            wait_for(begun.exists)
            process.popen.send_signal(signal.SIGTERM)
            wait_for(lambda: is_refused(process))
            ended.touch()
            assert call.result().outputs["found"].int_val[0] == 1
        log = process.end()
    events = [line["event"] for line in log if line["kind"] == "model"]
    assert events == ["loading", "loaded", "unloading", "unloaded"]
    requests = [line for line in log if line["kind"] == "request"]
    assert [(r["entrypoint"], r["method"], r["status"]) for r in requests] == [
        ("REST", "GetModelStatus", "OK"),
        ("GRPC", "Predict", "OK"),
    ]


@pytest.mark.slow
def test_sigterm_ends_a_server_whose_load_is_stuck(saved_model, tmp_path):
    shutil.copytree(f"{saved_model}/1", tmp_path / "1")
    with Process("--saved-model", str(tmp_path)) as process:
        # Nobody ever writes into it.
        (tmp_path / "new" / "variables").mkdir(parents=True)
        shutil.copy(f"{saved_model}/2/saved_model.pb", tmp_path / "new")
        os.mkfifo(tmp_path / "new" / "variables" / "variables.index")
        os.rename(tmp_path / "new", tmp_path / "2")
        url = f"{process.rest_url}/v1/models/realm/versions/2"

        def is_loading():
            status, body = get_json(url)
            return status == 200 and "LOADING" in json.dumps(body)

        wait_for(is_loading)
        assert get_json(f"{process.rest_url}/v1/models/realm")[0] == 200
        process.popen.send_signal(signal.SIGTERM)
        process.end()
