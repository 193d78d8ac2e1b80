"""SavedModels take each other's place: no wrong answer, no memory left."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading

import pytest
from server_process import get_json
from waiting import wait_for

from realm_tf.serving import server
from realm_tf.serving.client import RealmClient


def copy_version(saved_model, version, base, *, to):
    """As one puts a version in place: beside, then renamed."""
    shutil.copytree(f"{saved_model}/{version}", base / "copy")
    os.rename(base / "copy", base / str(to))


def test_no_request_fails_while_versions_are_swapped(
    saved_model, tmp_path, monkeypatch
):
    monkeypatch.setattr(server, "_POLL_SECONDS", 0.05)
    copy_version(saved_model, 1, tmp_path, to=1)
    enough = threading.Event()
    latest = [0.0] * 8
    wrong = []

    def ask(thread):
        while not enough.is_set():
            try:
                (answer,) = client.ask(["who wrote frankenstein?"])
                latest[thread] = answer.score
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(server.start(str(tmp_path)))
        client = stack.enter_context(RealmClient(running.target))
        for thread in threads:
            thread.start()
            stack.callback(thread.join, 10)
        stack.callback(enough.set)
        # Version 2 of the fixture scores 100 higher than 1.
        for version, source, score in ((2, 2, 112.5), (3, 1, 12.5)):
            copy_version(saved_model, source, tmp_path, to=version)
            wait_for(lambda s=score: latest == [s] * 8, seconds=60)
        url = f"{running.rest_url}/v1/models/realm"

        def states():
            return [
                (status["version"], status["state"])
                for status in get_json(url)[1]["model_version_status"]
            ]

        expected = [("3", "AVAILABLE"), ("2", "END"), ("1", "END")]
        wait_for(lambda: states() == expected)
        metrics = running.handler.render_metrics()[0].decode()
    assert wrong == []
    # Nor was one sent again.
    assert set(re.findall(r'request_count\{.*status="(\w+)"', metrics)) == {
        "OK"
    }
    sample = 'realm_version_available{model_name="realm",version='
    assert f'{sample}"3"}} 1.0' in metrics
    assert f'{sample}"2"}} 0.0' in metrics


_SWAPS = """
import os
import sys

import numpy as np
import tensorflow as tf

from realm_tf.serving import memory
from realm_tf.serving.servable import SavedModelServable
from realm_tf.serving.versions import Versions

base = sys.argv[1]


class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.values = tf.Variable(np.ones(13_107_200, np.float32))

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="x")])
    def add(self, x):
        return {"sum": x + tf.reduce_sum(self.values)}


module = Module()
tf.saved_model.save(
    module, f"{base}/1", signatures={"serving_default": module.add}
)
unloaded = []
versions = Versions(
    base,
    load=lambda directory, served: SavedModelServable(
        directory, beside=served
    ),
    poll_seconds=0,
    on_event=lambda event, **fields: (
        event == "unloaded" and unloaded.append(fields["version"])
    ),
)
versions.start()
for swap in range(1, 11):
    os.rename(f"{base}/{swap}", f"{base}/{swap + 1}")
    with versions.use("realm") as (_, old):
        versions.poll()
    del old
    versions.poll()
    assert unloaded[-1] == swap
    with versions.use("realm") as (version, servable):
        total = servable.run({"x": np.float32(swap)})["sum"]
    del servable
    assert (version, total) == (swap + 1, 13_107_200 + swap), (version, total)
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * 4096
    print("MB", resident / 1e6, (memory.allocated_bytes() or 0) / 1e6)
versions.stop()
"""


@pytest.mark.slow
def test_memory_is_flat_after_the_third_swap(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _SWAPS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    resident, allocated = zip(
        *(map(float, line[1:]) for line in lines if line[0] == "MB"),
        strict=True,
    )
    assert len(resident) == 10
    # A version is 52 MB: one that stayed would show.
    assert max(resident[3:]) - resident[2] < 26, resident
    # And a small part of one that did.
    assert max(allocated[3:]) - allocated[2] < 1, allocated
