"""Clients that this project did not write get what TF Serving would give."""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import grpc
import pytest
import tensorflow as tf
import yaml
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from realm_tf import serving

FOLDER = pathlib.Path(serving.__file__).parent / "tf_serving"
QUESTIONS = ["Who wrote Frankenstein?", "", "where is the Eiffel Tower?"]
ANSWERS = ["Mary Shelley", "", "Paris"]
SCORES = [112.5, 0.0, 109.25]
NUM_OUTPUTS = 16


def rest_target(running):
    """`HOST:PORT` of the REST port."""
    return running.rest_url.removeprefix("http://").rstrip("/")


@pytest.fixture(scope="module")
def rest_address(running):
    return rest_target(running)


@pytest.fixture(scope="module")
def channel(running):
    with grpc.insecure_channel(running.target) as channel:
        yield channel


def test_stock_stub_predicts(channel):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "realm"
    request.inputs["question"].CopyFrom(tf.make_tensor_proto(QUESTIONS))
    response = stub.Predict(request, timeout=10)
    spec = response.model_spec
    assert (spec.name, spec.version.value) == ("realm", 2)
    assert spec.signature_name == "serving_default"
    arrays = {k: tf.make_ndarray(v) for k, v in response.outputs.items()}
    assert len(arrays) == NUM_OUTPUTS
    assert [a.decode() for a in arrays["answer"]] == ANSWERS
    assert arrays["score"].tolist() == SCORES
    assert arrays["candidate_block_id"].tolist() == [
        [7, 2, -1],
        [-1, -1, -1],
        [3, 2, -1],
    ]


def test_stock_stub_reads_the_metadata(channel):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "realm"
    request.metadata_field.append("signature_def")
    response = stub.GetModelMetadata(request, timeout=10)
    assert response.model_spec.version.value == 2
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    default = signatures.signature_def["serving_default"]
    assert list(default.inputs) == ["question"]
    assert len(default.outputs) == NUM_OUTPUTS


def test_stock_stub_reads_the_status(channel):
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "realm"
    statuses = stub.GetModelStatus(request, timeout=10).model_version_status
    states = get_model_status_pb2.ModelVersionStatus
    assert [(s.version, s.state) for s in statuses] == [(2, states.AVAILABLE)]
    assert statuses[0].status.error_code == 0


# In a process without TensorFlow: ovmsclient has protos of the same names.
OVMS = """
import json
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "tensorflow_serving"):
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocker())
import ovmsclient

kind, target, version, *questions = sys.argv[1:]
model = {"model_name": "realm", "model_version": int(version)}
client = getattr(ovmsclient, f"make_{kind}_client")(target)
outputs = client.predict(
    inputs={"question": [q.encode() for q in questions]}, **model
)
lists = {name: values.tolist() for name, values in outputs.items()}
print(json.dumps(lists, default=bytes.decode))
print(json.dumps(client.get_model_metadata(**model)))
print(json.dumps(client.get_model_status(**model)))
try:
    client.predict(
        inputs={"question": [b"x"]}, model_name="other", model_version=1
    )
except ovmsclient.ModelNotFoundError as error:
    print(json.dumps(str(error)))
"""


def run_ovms(script, kind, running, version, questions=()):
    """The JSON lines that a script with ovmsclient prints."""
    targets = {"grpc": running.target, "http": rest_target(running)}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            script,
            kind,
            targets[kind],
            str(version),
            *questions,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", ["grpc", "http"])
def test_ovmsclient(kind, running):
    outputs, metadata, status, refusal = run_ovms(
        OVMS, kind, running, 2, QUESTIONS
    )
    assert len(outputs) == NUM_OUTPUTS
    assert outputs["answer"] == ANSWERS
    assert outputs["score"] == SCORES
    assert outputs["candidate_title"][2] == ["Eiffel Tower", "London", ""]
    assert outputs["candidate_log_prob"][0] == [-0.5, -1.0, float("-inf")]
    if kind == "grpc":
        assert metadata["model_version"] == 2
        assert metadata["inputs"] == {
            "question": {"shape": [-1], "dtype": "DT_STRING"}
        }
        assert len(metadata["outputs"]) == NUM_OUTPUTS
        score = metadata["outputs"]["score"]
    else:
        # It returns TF Serving's JSON as it is.
        definition = metadata["metadata"]["signature_def"]["signature_def"]
        score = definition["serving_default"]["outputs"]["score"]
    assert score["dtype"] == "DT_FLOAT"
    assert status == {
        "2": {"state": "AVAILABLE", "error_code": 0, "error_message": ""}
    }
    assert "Servable not found for request: Specific(other, 1)" in refusal


def test_ovmsclients_version_0_is_a_version(running):
    """To its own server 0 is the newest; TF Serving takes it at its word."""
    script = OVMS.partition("outputs = ")[0] + (
        "try:\n    client.get_model_metadata(**model)\n"
        "except ovmsclient.ModelNotFoundError as error:\n"
        "    print(json.dumps(str(error)))\n"
    )
    (refusal,) = run_ovms(script, "grpc", running, 0)
    assert refusal.endswith(
        "Servable not found for request: Specific(realm, 0)"
    )


@pytest.fixture(scope="module")
def readme_commands():
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sh\n(.*?)```", text, re.S)
    return block.splitlines()


def run_command(command, address):
    """A command of the README, asked of another port; its output."""
    assert "127.0.0.1:8501" in command
    done = subprocess.run(
        shlex.split(command.replace("127.0.0.1:8501", address))
        + ["--silent", "--show-error", "--fail-with-body"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_commands_of_the_readme(readme_commands, rest_address):
    status, metadata, columns, rows, metrics = (
        run_command(command, rest_address) for command in readme_commands
    )
    (version,) = json.loads(status)["model_version_status"]
    assert (version["version"], version["state"]) == ("2", "AVAILABLE")
    assert json.loads(metadata)["model_spec"]["version"] == "2"
    signatures = json.loads(metadata)["metadata"]["signature_def"]
    assert "serving_default" in signatures["signature_def"]
    outputs = json.loads(columns)["outputs"]
    assert outputs["answer"] == ["Mary Shelley"]
    assert outputs["url"] == ["https://example.org/frankenstein"]
    (row,) = json.loads(rows)["predictions"]
    assert row == {name: values[0] for name, values in outputs.items()}
    assert row["candidate_log_prob"][2] == float("-inf")
    assert re.search(r"^:?\w.*request_count", metrics, re.MULTILINE)


def test_curl_is_refused_as_by_tf_serving(readme_commands, rest_address):
    def ask(path, *arguments):
        done = subprocess.run(
            [
                "curl",
                "--silent",
                "--write-out",
                "\n%{http_code}",
                *arguments,
                f"http://{rest_address}/v1/models/{path}",
            ],
            capture_output=True,
            text=True,
            timeout=30,
        )
        body, _, code = done.stdout.rpartition("\n")
        return int(code), json.loads(body)["error"]

    code, error = ask("other:predict", "-d", '{"instances": ["x"]}')
    assert code == 404
    assert error == "Servable not found for request: Latest(other)"
    code, error = ask("realm/versions/9:predict", "-d", '{"instances": ["x"]}')
    assert code == 404
    assert error == "Servable not found for request: Specific(realm, 9)"
    code, error = ask("realm:predict", "-d", "no json")
    assert code == 400 and error
    code, error = ask("realm:nothing", "-d", "{}")
    assert code == 400
    assert error == "Malformed request: POST /v1/models/realm:nothing"


def test_the_health_check_of_the_container(rest_address):
    """Run by bash as in docker-compose.yml, on another port."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    compose = yaml.safe_load((FOLDER / "docker-compose.yml").read_text())
    kind, *command = compose["services"]["tf-serving"]["healthcheck"]["test"]
    assert kind == "CMD"
    command = [part.replace("$$", "$") for part in command]

    def status(address, model):
        changed = [
            part.replace("127.0.0.1/8501", address.replace(":", "/")).replace(
                "models/realm", f"models/{model}"
            )
            for part in command
        ]
        assert changed != command
        return subprocess.run(changed, capture_output=True, timeout=30)

    healthy = status(rest_address, "realm")
    assert healthy.returncode == 0, healthy.stderr
    assert status(rest_address, "other").returncode != 0
    assert status("127.0.0.1:1", "realm").returncode != 0
