"""The commands of TF Serving's README and container, asked of our server."""

import json
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest
import yaml

from realm_tf import serving

FOLDER = pathlib.Path(serving.__file__).parent / "tf_serving"


@pytest.fixture(scope="module")
def rest_address(running):
    """`HOST:PORT` of the REST port."""
    return running.rest_url.removeprefix("http://").rstrip("/")


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
