"""SavedModels take each other's place: no wrong answer, no memory left."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
from waiting import wait_for

from realm_tf.serving.servable import SavedModelServable
from realm_tf.serving.version_watcher import VersionWatcher
from realm_tf.serving.versions import Versions


def copy_version(saved_model, version, base, *, to):
    """As one puts a version in place: beside, then renamed."""
    shutil.copytree(f"{saved_model}/{version}", base / "copy")
    os.rename(base / "copy", base / str(to))


def test_saved_models_are_swapped_under_load(saved_model, tmp_path):
    copy_version(saved_model, 1, tmp_path, to=1)
    versions = Versions("realm")
    watcher = VersionWatcher(
        str(tmp_path),
        versions=versions,
        load=lambda directory, version: SavedModelServable(directory),
        poll_seconds=0.05,
    )
    watcher.start()
    question = {"question": np.array([b"who wrote frankenstein?"], object)}
    # By its name: version 2 of the fixture scores 100 higher than 1.
    scores = {1: 12.5, 2: 112.5, 3: 12.5, 4: 112.5}
    enough = threading.Event()
    latest = [0] * 8
    wrong = []

    def ask(thread):
        while not enough.is_set():
            try:
                with versions.use("realm") as (version, servable):
                    outputs = servable.run(question)
                if outputs["score"].tolist() != [scores[version]]:
                    wrong.append((version, outputs["score"]))
                latest[thread] = version
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    with contextlib.ExitStack() as stack:
        stack.callback(versions.stop)
        stack.callback(watcher.stop, timeout_seconds=10)
        for thread in threads:
            thread.start()
            stack.callback(thread.join, 10)
        stack.callback(enough.set)
        for version in (2, 3, 4):
            source = 1 + (version + 1) % 2
            copy_version(saved_model, source, tmp_path, to=version)
            wait_for(lambda v=version: latest == [v] * 8, seconds=60)
        wait_for(
            lambda: (
                [v.state.name for v in versions.status("realm")]
                == ["AVAILABLE", "END", "END", "END"]
            )
        )
    assert wrong == []


_SWAPS = """
import os
import queue
import sys

import numpy as np
import tensorflow as tf

from realm_tf.serving import memory
from realm_tf.serving.servable import SavedModelServable
from realm_tf.serving.version_watcher import VersionWatcher
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
unloaded = queue.SimpleQueue()
versions = Versions(
    "m", on_event=lambda e: e.kind == "unloaded" and unloaded.put(e.version)
)
watcher = VersionWatcher(
    base,
    versions=versions,
    load=lambda directory, version: SavedModelServable(directory),
    poll_seconds=0,
)
watcher.start()
for swap in range(1, 11):
    os.rename(f"{base}/{swap}", f"{base}/{swap + 1}")
    with versions.use("m") as (_, old):
        watcher.poll()
    del old
    assert unloaded.get(timeout=60) == swap
    with versions.use("m") as (version, servable):
        total = servable.run({"x": np.float32(swap)})["sum"]
    del servable
    assert (version, total) == (swap + 1, 13_107_200 + swap), (version, total)
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * 4096
    print("MB", resident / 1e6, (memory.allocated_bytes() or 0) / 1e6)
versions.stop()
"""


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
