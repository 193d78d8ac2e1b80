"""TensorFlow Serving's files agree with its protocol and with each other.

The commands in them are asked of our server.
"""

import importlib.metadata
import json
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest
import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from realm_tf import serving
from realm_tf.serving import client
from realm_tf.serving import options
from realm_tf.serving import rest_server

FOLDER = pathlib.Path(serving.__file__).parent / "tf_serving"
README = (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((FOLDER / "docker-compose.yml").read_text())


@pytest.fixture(scope="module")
def server(compose):
    return compose["services"]["tf-serving"]


def flags(server):
    pairs = [argument.split("=", 1) for argument in server["command"]]
    assert all(name.startswith("--") for name, _ in pairs)
    return {name: value for name, value in pairs}


def mounts(service):
    """Container path to what is mounted there, all of it read-only."""
    found = {}
    for mount in service["volumes"]:
        # ${NAME:?message} has a colon of its own.
        source, target, mode = mount.rsplit(":", 2)
        assert mode == "ro"
        found[target] = source
    return found


def ports(service):
    """Port in the container to port of this machine, on loopback only."""
    found = {}
    for port in service["ports"]:
        address, outside, inside = port.split(":")
        assert address == "127.0.0.1"
        found[int(inside)] = int(outside)
    return found


def test_the_model_is_the_one_that_clients_ask_for(server):
    text = (FOLDER / "models.config").read_text()
    config = text_format.Parse(
        text, model_server_config_pb2.ModelServerConfig()
    )
    (model,) = config.model_config_list.config
    assert model.name == client.MODEL_NAME
    assert model.model_platform == "tensorflow"
    assert model.model_version_policy.latest.num_versions == 1
    assert "REALM_EXPORT" in mounts(server)[model.base_path]


def test_batches_hold_what_the_client_sends():
    text = (FOLDER / "batching_parameters.txt").read_text()
    (most,) = re.findall(r"max_batch_size \{ value: (\d+) \}", text)
    assert int(most) >= client.BATCH_SIZE


def test_prometheus_looks_where_the_metrics_are(compose, server):
    text = (FOLDER / "monitoring.config").read_text()
    (path,) = re.findall(r'enable: true,?\s+path: "(.*)"', text)
    assert path == rest_server.METRICS_PATH
    (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())[
        "scrape_configs"
    ]
    assert job["metrics_path"] == path
    (target,) = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    assert compose["services"][host] is server
    assert int(port) == options.REST_PORT
    prometheus = compose["services"]["prometheus"]
    assert mounts(prometheus) == {
        "/etc/prometheus/prometheus.yml": "./prometheus.yml"
    }
    assert ports(prometheus) == {9090: 9090}


def test_the_server_is_that_of_the_installed_tensorflow(server):
    api = importlib.metadata.version("tensorflow-serving-api")
    image, _, tag = server["image"].partition(":")
    assert image == "tensorflow/serving"
    assert tag.split(".")[:2] == api.split(".")[:2]


def test_flags_name_files_that_are_mounted(server):
    given, mounted = flags(server), mounts(server)
    files = {name: v for name, v in given.items() if v.startswith("/config/")}
    assert sorted(files) == [
        "--batching_parameters_file",
        "--model_config_file",
        "--monitoring_config_file",
    ]
    for path in files.values():
        source = FOLDER / mounted[path]
        assert source.is_file() and source.name == pathlib.Path(path).name
    assert given["--enable_batching"] == "true"
    assert ports(server) == {
        options.GRPC_PORT: options.GRPC_PORT,
        options.REST_PORT: options.REST_PORT,
    }


def test_the_readme_tells_of_every_file_and_flag(server):
    explained = re.findall(r"^\| `(--\w+)` \|", README, re.MULTILINE)
    assert explained == list(flags(server))
    told = re.findall(r"^\| `([\w-]+\.\w+)` \|", README, re.MULTILINE)
    files = {path.name for path in FOLDER.iterdir()} - {"README.md"}
    assert set(told) == files


def test_the_example_of_two_versions_parses():
    (example,) = re.findall(r"```\n(model_version_policy.*?)```", README, re.S)
    model = text_format.Parse(example, model_server_config_pb2.ModelConfig())
    assert list(model.model_version_policy.specific.versions) == [7, 8]
    assert dict(model.version_labels) == {"stable": 7, "canary": 8}


@pytest.fixture(scope="module")
def rest_address(running):
    """`HOST:PORT` of the REST port."""
    return running.rest_url.removeprefix("http://").rstrip("/")


@pytest.fixture(scope="module")
def readme_commands():
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (block,) = re.findall(r"```sh\n(.*?)```", README, re.S)
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


def test_the_health_check_of_the_container(rest_address, server):
    """Run by bash as in docker-compose.yml, on another port."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    kind, *command = server["healthcheck"]["test"]
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
