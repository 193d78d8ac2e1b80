"""Clients that this project did not write get what TF Serving would give."""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml

from realm_tf import serving

FOLDER = pathlib.Path(serving.__file__).parent / "tf_serving"
QUESTIONS = ["Who wrote Frankenstein?", "", "where is the Eiffel Tower?"]
ANSWERS = ["Mary Shelley", "", "Paris"]
SCORES = [112.5, 0.0, 109.25]
NUM_OUTPUTS = 18


def rest_target(running):
    """`HOST:PORT` of the REST port."""
    return running.rest_url.removeprefix("http://").rstrip("/")


@pytest.fixture(scope="module")
def rest_address(running):
    return rest_target(running)


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
