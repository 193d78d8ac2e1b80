"""Which version is served, and what becomes of the others."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time

import grpc
import numpy as np
import pytest

from realm_tf.artifacts import artifact
from realm_tf.artifacts import saved_models
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.servable import SavedModelServable
from realm_tf.serving.version_watcher import VersionWatcher
from realm_tf.serving.versions import State
from realm_tf.serving.versions import Versions


class FakeServable:
    """Knows where it came from and whether it was closed in use."""

    def __init__(self, directory, version):
        self.directory = directory
        self.version = version
        self.warm = False
        self.closed = False

    def warm_up(self):
        self.warm = True
        return 0.0

    def run(self):
        assert self.warm and not self.closed
        return self.version

    def close(self, *, grace_seconds=None):
        assert not self.closed
        self.closed = True


class World:
    """A base path with fake versions, and what watches it."""

    def __init__(self, tmp_path):
        self.base = tmp_path / "base"
        self.base.mkdir()
        # All that were loaded, all events, and what is to be found broken.
        self.loaded = []
        self.events = []
        self.broken = {}
        self.now = 0.0
        self.versions = Versions("m", on_event=self.events.append)
        self.watcher = None

    def add(self, *versions):
        for version in versions:
            (self.base / str(version)).mkdir()
            (self.base / str(version) / "saved_model.pb").write_bytes(b"m")

    def load(self, directory, version):
        if version in self.broken:
            raise self.broken[version]
        self.loaded.append(FakeServable(directory, version))
        return self.loaded[-1]

    def start(self, *, base=None, load=None, poll_seconds=0):
        self.watcher = VersionWatcher(
            str(base or self.base),
            versions=self.versions,
            load=load or self.load,
            poll_seconds=poll_seconds,
            on_event=self.events.append,
            clock=lambda: self.now,
        )
        self.watcher.start()

    def poll(self):
        self.watcher.poll()

    def use(self, version=None):
        return self.versions.use("m", version=version)

    def stop(self, grace_seconds=0):
        self.versions.stop(grace_seconds=grace_seconds)
        if self.watcher is not None:
            self.watcher.stop(timeout_seconds=grace_seconds)

    def states(self):
        return [(v.number, v.state.name) for v in self.versions.status("m")]

    def kinds(self, *kinds):
        return [
            (e.kind, e.version)
            for e in self.events
            if not kinds or e.kind in kinds
        ]

    def open_versions(self):
        return sorted(s.version for s in self.loaded if not s.closed)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.stop()
    wait_for(lambda: world.open_versions() == [])


def wait_for(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.002)


@contextlib.contextmanager
def refused(code, message):
    with pytest.raises(RequestError, match=message) as caught:
        yield
    assert caught.value.code.name == code


def test_the_newest_whole_version_is_served(world):
    world.add(2, 3, 10)
    # Not whole, no version, or beyond int64.
    for name in ("11", "12.partial", "tmp-13", str(2**63)):
        (world.base / name).mkdir()
    world.start()
    assert world.states() == [(10, "AVAILABLE")]
    for asked in (None, 10):
        with world.use(asked) as (version, servable):
            assert version == servable.run() == 10
    world.poll()
    # Told once.
    assert world.kinds("incomplete") == [("incomplete", 11)]
    assert [s.version for s in world.loaded] == [10]


def test_requests_for_what_is_not_there(world):
    world.add(1)
    world.start()
    for name, version, code, message in [
        ("", None, "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        ("x", None, "NOT_FOUND", r"for request: Latest\(x\)$"),
        ("m", 2, "NOT_FOUND", r"^Servable .* request: Specific\(m, 2\)$"),
    ]:
        with (
            refused(code, message),
            world.versions.use(name, version=version),
        ):
            raise AssertionError("it was found")
    with refused("NOT_FOUND", "^Could not find any versions of model x$"):
        world.versions.status("x")
    with refused("NOT_FOUND", "^Could not find version 2 of model m$"):
        world.versions.status("m", version=2)


def test_a_new_version_is_warm_before_the_old_is_let_go(world):
    world.add(1)
    seen = []

    def load(directory, version):
        if version == 2:
            with world.use() as (serving, servable):
                seen.append((serving, servable.run(), world.states()))
        return world.load(directory, version)

    world.start(load=load)
    world.add(2)
    world.poll()
    assert seen == [(1, 1, [(2, "LOADING"), (1, "AVAILABLE")])]
    wait_for(lambda: world.states() == [(2, "AVAILABLE"), (1, "END")])
    assert world.open_versions() == [2]
    assert [s.warm for s in world.loaded] == [True, True]
    wait_for(
        lambda: (
            world.kinds()
            == [
                ("loading", 1),
                ("loaded", 1),
                ("loading", 2),
                ("loaded", 2),
                ("unloading", 1),
                ("unloaded", 1),
            ]
        )
    )
    assert world.events[3].seconds >= 0 and world.events[2].seconds is None


def test_requests_do_not_wait_for_a_load(world):
    world.add(1)
    loading = threading.Event()
    go_on = threading.Event()

    def load(directory, version):
        if version == 2:
            loading.set()
            assert go_on.wait(10)
        return world.load(directory, version)

    world.start(load=load)
    world.add(2)
    poll = threading.Thread(target=world.poll)
    poll.start()
    assert loading.wait(10)
    # None of this would return if it waited for the load.
    with world.use() as (version, servable):
        assert version == servable.run() == 1
    assert world.states() == [(2, "LOADING"), (1, "AVAILABLE")]
    go_on.set()
    poll.join(10)
    with world.use() as (version, _):
        assert version == 2


def test_a_version_in_use_is_not_closed(world):
    world.add(1)
    world.start()
    with world.use() as (_, first), world.use() as (_, again):
        assert first is again
        world.add(2)
        world.poll()
        with world.use() as (version, _):
            assert version == 2
        assert world.states() == [(2, "AVAILABLE"), (1, "UNLOADING")]
        # Once let go it is for nobody new.
        with refused("NOT_FOUND", r"Specific\(m, 1\)"), world.use(1):
            raise AssertionError("it was found")
        # Another version comes and goes meanwhile.
        world.add(3)
        world.poll()
        wait_for(lambda: world.open_versions() == [1, 3])
        assert first.run() == 1
    wait_for(lambda: world.open_versions() == [3])
    wait_for(
        lambda: world.kinds("unloaded") == [("unloaded", 2), ("unloaded", 1)]
    )


def test_swaps_under_load_fail_no_request(world):
    world.add(1)
    world.start(poll_seconds=0.01)
    enough = threading.Event()
    answered = [[] for _ in range(8)]
    wrong = []

    def ask(versions):
        while not enough.is_set():
            try:
                with world.use() as (version, servable):
                    before = servable.run()
                    time.sleep(0)
                    if not before == servable.run() == version:
                        wrong.append((version, before))
                    versions.append(version)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=ask, args=(v,)) for v in answered]
    for thread in threads:
        thread.start()
    for version in range(2, 12):
        world.add(version)
        wait_for(lambda v=version: all(a and a[-1] == v for a in answered))
    enough.set()
    for thread in threads:
        thread.join(10)
    assert wrong == []
    for versions in answered:
        assert versions == sorted(versions)
    wait_for(lambda: world.open_versions() == [11])
    assert [s.version for s in world.loaded] == list(range(1, 12))


def test_an_export_in_place_does_not_count_before_its_end(world):
    base = "ram://versions/in-place"
    for version in (1, 2):
        with artifact.write(f"{base}/{version}", kind="saved_model") as stage:
            write_text(stage.path("saved_model.pb"), "model")
            if version == 2:
                world.start(base=base)
                assert world.states() == [(1, "AVAILABLE")]
                assert saved_models.find_version(base) == (f"{base}/1", 1)
    assert world.kinds("incomplete") == [("incomplete", 2)]
    world.poll()
    assert world.states()[0] == (2, "AVAILABLE")


@pytest.mark.parametrize("name, version", [("7", 7), ("mine", 1)])
def test_a_directory_that_holds_the_model_itself(world, name, version):
    world.add(name)
    world.start(base=world.base / name)
    assert world.states() == [(version, "AVAILABLE")]


def test_a_version_that_does_not_load_is_tried_again(world):
    world.add(1)
    world.start()
    world.broken[2] = InputError("the file is damaged")
    world.add(2)
    world.poll()

    def attempts():
        return len(world.kinds("load_failed"))

    ended, serving = world.versions.status("m")
    assert (ended.number, ended.state) == (2, State.END)
    assert ended.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert ended.error_message == "the file is damaged"
    assert (serving.number, serving.state) == (1, State.AVAILABLE)
    assert (serving.error_code, serving.error_message) == (0, "")
    for now, expected in [(59, 1), (60, 2), (179, 2), (180, 3), (181, 3)]:
        world.now = now
        world.poll()
        assert attempts() == expected
    assert world.events[-1].message == "the file is damaged (again in 240 s)"
    assert world.open_versions() == [1]
    # It is taken away and put there again: at once.
    shutil.rmtree(world.base / "2")
    world.poll()
    world.add(2)
    del world.broken[2]
    world.poll()
    assert world.states()[0] == (2, "AVAILABLE")
    wait_for(lambda: world.open_versions() == [2])


def test_what_fails_while_warming_is_closed(world):
    world.add(1)

    def load(directory, version):
        servable = world.load(directory, version)
        if version == 2:
            servable.warm_up = lambda: 1 / 0
        return servable

    world.start(load=load)
    world.add(2)
    world.poll()
    assert world.open_versions() == [1]
    (status,) = world.versions.status("m", version=2)
    assert status.error_message == "ZeroDivisionError: division by zero"
    assert status.error_code == grpc.StatusCode.UNKNOWN.value[0]


def test_a_broken_version_does_not_hold_up_a_newer_one(world):
    world.add(1)
    world.start()
    world.broken[2] = RequestError(grpc.StatusCode.INTERNAL, "it broke")
    world.add(2)
    world.poll()
    assert world.versions.status("m", version=2)[0].error_code == 13
    world.add(3)
    world.poll()
    wait_for(lambda: world.open_versions() == [3])
    assert world.states()[0] == (3, "AVAILABLE")


def test_a_start_passes_over_versions_that_do_not_load(world):
    world.add(1, 2, 3)
    world.broken = {3: InputError("damaged"), 2: OSError("gone")}
    world.start()
    assert world.states() == [(3, "END"), (2, "END"), (1, "AVAILABLE")]
    world.now = 60
    del world.broken[2]
    world.poll()
    wait_for(lambda: world.open_versions() == [2])


@pytest.mark.parametrize("what", ["path", "version", "whole version", "load"])
def test_a_start_without_a_version_is_refused(world, what):
    message = "base holds no SavedModel: expected saved_model.pb or <integer>/"
    if what == "path":
        world.base.rmdir()
        message = "base does not exist: expected a SavedModel"
    if what == "whole version":
        (world.base / "1").mkdir()
    if what == "load":
        world.add(2)
        world.broken[2] = InputError("damaged")
        message = "No version in .*base loads: version 2: damaged"
    with pytest.raises(InputError, match=message):
        world.start()
    assert world.open_versions() == []


def test_versions_that_are_deleted_are_let_go(world):
    world.add(1, 2)
    world.start()
    shutil.rmtree(world.base / "2")
    world.poll()
    # The older one is loaded first.
    assert world.kinds()[2:5] == [
        ("loading", 1),
        ("loaded", 1),
        ("unloading", 2),
    ]
    wait_for(lambda: world.open_versions() == [1])
    # The base path is away for a while: nothing changes.
    away = world.base.rename(world.base.parent / "away")
    world.poll()
    world.poll()
    assert world.states()[-1] == (1, "AVAILABLE")
    assert world.kinds("poll_failed") == [("poll_failed", None)]
    assert "base does not exist" in world.events[-1].message
    away.rename(world.base)
    world.poll()
    # It is there, and empty.
    shutil.rmtree(world.base / "1")
    world.poll()
    wait_for(lambda: world.open_versions() == [])
    with refused("NOT_FOUND", r"Latest\(m\)"), world.use():
        raise AssertionError("it was found")
    world.add(1)
    world.poll()
    with world.use() as (version, servable):
        assert version == servable.run() == 1


def test_the_status_does_not_grow_without_end(world):
    world.add(1)
    world.start()
    for version in range(2, 120):
        world.add(version)
        world.poll()
        shutil.rmtree(world.base / str(version - 1))
    wait_for(lambda: len(world.versions.status("m")) == 101)
    assert world.states()[:2] == [(119, "AVAILABLE"), (118, "END")]


def test_stop_gives_running_requests_time(world):
    world.add(1)
    world.start(poll_seconds=0.01)
    enough = threading.Event()
    entered = threading.Event()

    def hold():
        with world.use():
            entered.set()
            assert enough.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(10)
    threading.Timer(0.2, enough.set).start()
    started = time.monotonic()
    world.stop(grace_seconds=10)
    assert 0.1 < time.monotonic() - started < 8
    assert world.states() == [(1, "END")]
    with refused("NOT_FOUND", r"Latest\(m\)"), world.use():
        raise AssertionError("it was found")
    thread.join(10)
    world.stop()


def test_what_is_being_loaded_at_the_stop_is_closed(world):
    world.add(1)
    loading = threading.Event()
    go_on = threading.Event()

    def load(directory, version):
        if version == 2:
            loading.set()
            assert go_on.wait(10)
        return world.load(directory, version)

    world.start(load=load, poll_seconds=0.01)
    world.add(2)
    assert loading.wait(10)
    started = time.monotonic()
    world.versions.stop(grace_seconds=0.1)
    assert not world.watcher.stop(timeout_seconds=0.1)
    assert time.monotonic() - started < 5
    assert world.open_versions() == []
    go_on.set()
    wait_for(
        lambda: world.kinds("unloaded") == [("unloaded", 1), ("unloaded", 2)]
    )
    assert world.watcher.stop(timeout_seconds=10)


def test_a_close_that_fails_is_told(world):
    world.add(1)
    world.start()

    def close(*, grace_seconds):
        world.loaded[0].closed = True
        raise OSError("no")

    world.loaded[0].close = close
    world.add(2)
    world.poll()
    wait_for(lambda: world.kinds("unload_failed") == [("unload_failed", 1)])
    world.add(3)
    world.poll()
    wait_for(lambda: world.open_versions() == [3])


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
