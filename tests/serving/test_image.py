"""The image of `realm serve`, built, asked and stopped."""

import json
import os
import subprocess
import urllib.request

import images
import pytest
from engine_processes import free_port
from server_process import get_json
from waiting import wait_for

from realm_tf.serving.servable import SavedModelServable

pytestmark = pytest.mark.slow

IMAGE = "localhost/realm-serve"


def _podman(*arguments):
    done = subprocess.run(
        ["podman", *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout


def test_it_answers_and_ends(saved_model):
    images.build(
        "serving/Dockerfile", "docker.io/library/python:3.11-slim", IMAGE
    )
    (found,) = json.loads(_podman("image", "inspect", IMAGE))
    assert found["Size"] < 1.6e9
    # For the nobody who reads it.
    os.chmod(saved_model, 0o755)
    ports = free_port(), free_port()
    run = subprocess.Popen(
        [
            *images.RUN,
            *("--name", "realm-serve-test", "--read-only", "--tmpfs", "/tmp"),
            *("--volume", f"{saved_model}:/export:ro", IMAGE),
            *("--saved-model", "/export", "--grpc-port", str(ports[0])),
            *("--rest-port", str(ports[1])),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert run.stdout.readline().startswith("realm serve: ready at ")
        url = f"http://127.0.0.1:{ports[1]}"
        wait_for(lambda: get_json(f"{url}/v1/models/realm")[0] == 200)
        body = json.dumps({"instances": [{"question": "Who is Ada?"}]})
        request = urllib.request.Request(
            f"{url}/v1/models/realm:predict", body.encode()
        )
        status, answer = get_json(request)
        (found,) = answer["predictions"]
        with SavedModelServable(saved_model) as servable:
            (expected,) = servable.ask(["Who is Ada?"])
        assert status == 200
        assert found["answer"] == expected.answer
        assert found["text"] == expected.text
        uid = _podman("exec", "realm-serve-test", "id", "-u")
        assert uid.strip() == "65534"
        with pytest.raises(subprocess.CalledProcessError):
            _podman("exec", "realm-serve-test", "touch", "/opt/realm/a")
        _podman("kill", "--signal", "TERM", "realm-serve-test")
        assert run.wait(60) == 0
    finally:
        run.kill()
        run.communicate()
        subprocess.run(["podman", "rm", "--force", "realm-serve-test"])
