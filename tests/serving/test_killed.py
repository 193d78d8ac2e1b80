"""The server is killed while a version is being written, and starts again."""

import subprocess
import sys

import pytest
from server_process import Process
from server_process import get_json
from waiting import wait_for

pytestmark = pytest.mark.slow


def _version(process):
    _, about = get_json(f"{process.rest_url}/about.json")
    return about["version"]


def _serve(base):
    return Process("--saved-model", base)


def test_an_export_that_is_killed_is_never_served(
    tmp_path, model_dir, blocks_dir, brute_force_index_dir
):
    base = tmp_path / "base"
    command = [
        *(sys.executable, "-m", "realm_tf.cli", "export"),
        *("--model", model_dir, "--blocks", blocks_dir),
        *("--index", brute_force_index_dir, "--output", str(base)),
    ]
    subprocess.run(command, check=True, capture_output=True)
    with _serve(str(base)):
        export = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        # In the middle: weights are being written, the rest is not there.
        wait_for((base / "2.partial" / "variables").exists)
        export.kill()
        export.communicate()
    assert not (base / "2").exists()
    with _serve(str(base)) as process:
        assert _version(process) == 1
        subprocess.run(command, check=True, capture_output=True)
        wait_for(lambda: _version(process) == 2)
    assert sorted(n.name for n in base.iterdir()) == ["1", "2"]
