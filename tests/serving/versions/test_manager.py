import contextlib
import shutil
import subprocess
import sys
import threading
import time

import grpc
import numpy as np
import pytest

from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.serving import locate
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.servable import SavedModelServable
from realm_tf.serving.versions.config import ModelSettings
from realm_tf.serving.versions.config import VersionPolicy
from realm_tf.serving.versions.config_file import ModelConfigFile
from realm_tf.serving.versions.manager import ModelManager
from realm_tf.serving.versions.manager import State


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
    """Base paths with fake versions, and managers that serve them."""

    def __init__(self, tmp_path):
        self.base = tmp_path / "base"
        self.base.mkdir()
        # All that were loaded, all events, and what is to be found broken.
        self.loaded = []
        self.events = []
        self.broken = {}
        self.now = 0.0
        self.managers = []

    def add(self, version, base=None):
        directory = (base or self.base) / str(version)
        directory.mkdir(parents=True)
        (directory / "saved_model.pb").write_bytes(b"model")

    def load(self, directory, version):
        if version in self.broken:
            raise self.broken[version]
        self.loaded.append(FakeServable(directory, version))
        return self.loaded[-1]

    def settings(self, policy=None, *, labels=None, name="m", base=None):
        return ModelSettings(
            name,
            str(base or self.base),
            policy or VersionPolicy(),
            labels or {},
        )

    def manager(self, *settings, load=None, **options):
        options = {"poll_seconds": 0, "clock": lambda: self.now, **options}
        manager = ModelManager(
            settings or [self.settings()],
            load=load or self.load,
            on_event=self.events.append,
            **options,
        )
        self.managers.append(manager)
        return manager

    def start(self, *settings, **options):
        manager = self.manager(*settings, **options)
        manager.start()
        return manager

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
    for manager in world.managers:
        manager.stop(grace_seconds=0)
    assert world.open_versions() == []


def wait_for(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.002)


def states(manager, name="m"):
    return [(s.version, s.state.name) for s in manager.status(name)]


@contextlib.contextmanager
def refused(code, message):
    with pytest.raises(RequestError, match=message) as caught:
        yield
    assert caught.value.code.name == code


@pytest.mark.parametrize(
    "policy, serving",
    [
        (VersionPolicy(), [10]),
        (VersionPolicy(count=2), [10, 3]),
        (VersionPolicy("all"), [10, 3, 2]),
        (VersionPolicy("specific", versions=(2, 3, 7)), [3, 2]),
    ],
)
def test_policies_decide_what_is_loaded(world, policy, serving):
    for version in (2, 3, 10):
        world.add(version)
    # Not whole, no version, or beyond int64.
    for name in ("11", "12.partial", "tmp-13", str(2**63)):
        (world.base / name).mkdir()
    manager = world.start(world.settings(policy))
    assert states(manager) == [(v, "AVAILABLE") for v in serving]
    assert [s.version for s in world.loaded] == serving
    assert manager.names() == ["m"]
    with manager.use("m") as (version, servable):
        assert version == servable.run() == serving[0]
    with manager.use("m", version=serving[-1]) as (version, servable):
        assert version == servable.run() == serving[-1]
    missing = [("missing", 7)] if policy.kind == "specific" else []
    torn = [] if policy.kind == "specific" else [("incomplete", 11)]
    manager.poll()
    # Told once.
    assert world.kinds("missing", "incomplete") == missing + torn


def test_requests_for_what_is_not_there(world):
    world.add(1)
    manager = world.start()
    for arguments, code, message in [
        ({"name": ""}, "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        ({"name": "x"}, "NOT_FOUND", r"for request: Latest\(x\)$"),
        (
            {"name": "m", "version": 2},
            "NOT_FOUND",
            r"^Servable not found for request: Specific\(m, 2\)$",
        ),
        (
            {"name": "m", "label": "new"},
            "INVALID_ARGUMENT",
            "^Unrecognized servable version label: new$",
        ),
    ]:
        with refused(code, message), manager.use(**arguments):
            raise AssertionError("it was found")
    with refused("NOT_FOUND", "^Could not find any versions of model x$"):
        manager.status("x")
    with refused("NOT_FOUND", "^Could not find version 2 of model m$"):
        manager.status("m", version=2)
    with refused("INVALID_ARGUMENT", "version label: new"):
        manager.status("m", label="new")


def test_a_new_version_is_warm_before_the_old_is_let_go(world):
    world.add(1)
    seen = []

    def load(directory, version):
        if version == 2:
            with manager.use("m") as (serving, servable):
                seen.append((serving, servable.run(), states(manager)))
        return world.load(directory, version)

    manager = world.start(load=load)
    world.add(2)
    manager.poll()
    assert seen == [(1, 1, [(2, "LOADING"), (1, "AVAILABLE")])]
    wait_for(lambda: world.open_versions() == [2])
    assert [s.warm for s in world.loaded] == [True, True]
    wait_for(lambda: states(manager) == [(2, "AVAILABLE"), (1, "END")])
    assert world.kinds() == [
        ("loading", 1),
        ("loaded", 1),
        ("loading", 2),
        ("loaded", 2),
        ("unloading", 1),
        ("unloaded", 1),
    ]
    assert all(e.model == "m" for e in world.events)
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

    manager = world.start(load=load)
    world.add(2)
    poll = threading.Thread(target=manager.poll)
    poll.start()
    assert loading.wait(10)
    # None of this would return if it waited for the load.
    with manager.use("m") as (version, servable):
        assert version == servable.run() == 1
    assert states(manager) == [(2, "LOADING"), (1, "AVAILABLE")]
    assert manager.names() == ["m"]
    go_on.set()
    poll.join(10)
    with manager.use("m") as (version, _):
        assert version == 2


def test_a_version_in_use_is_not_closed(world):
    world.add(1)
    manager = world.start()
    with manager.use("m") as (_, first), manager.use("m") as (_, again):
        assert first is again
        world.add(2)
        manager.poll()
        with manager.use("m") as (version, _):
            assert version == 2
        assert states(manager) == [(2, "AVAILABLE"), (1, "UNLOADING")]
        # Once let go it is for nobody new.
        with (
            refused("NOT_FOUND", r"Specific\(m, 1\)"),
            manager.use("m", version=1),
        ):
            raise AssertionError("it was found")
        # Another version comes and goes meanwhile.
        world.add(3)
        manager.poll()
        wait_for(lambda: world.open_versions() == [1, 3])
        assert first.run() == 1
    wait_for(lambda: world.open_versions() == [3])
    assert world.kinds("unloaded") == [("unloaded", 2), ("unloaded", 1)]


def test_swaps_under_load_fail_no_request(world):
    world.add(1)
    manager = world.start(poll_seconds=0.01)
    enough = threading.Event()
    answered = [[] for _ in range(8)]
    wrong = []

    def ask(versions):
        while not enough.is_set():
            try:
                with manager.use("m") as (version, servable):
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
    base = "ram://manager/in-place"
    manager = None
    for version in (1, 2):
        with artifact.write(f"{base}/{version}", kind="saved_model") as stage:
            write_text(stage.path("saved_model.pb"), "model")
            if version == 2:
                manager = world.start(world.settings(base=base))
                assert states(manager) == [(1, "AVAILABLE")]
                assert locate.find_version(base) == (f"{base}/1", 1)
                assert not locate.is_whole(f"{base}/2")
        assert locate.is_whole(f"{base}/{version}")
    assert world.kinds("incomplete") == [("incomplete", 2)]
    manager.poll()
    assert states(manager)[0] == (2, "AVAILABLE")


def test_a_directory_that_holds_the_model_itself(world):
    world.add(7)
    world.add("mine")
    manager = world.start(
        world.settings(base=world.base / "7"),
        world.settings(name="n", base=world.base / "mine"),
    )
    assert states(manager) == [(7, "AVAILABLE")]
    assert states(manager, "n") == [(1, "AVAILABLE")]


def test_a_version_that_does_not_load_is_tried_again(world):
    world.add(1)
    manager = world.start(num_load_retries=2, retry_seconds=60)
    world.broken[2] = InputError("the file is damaged")
    world.add(2)
    manager.poll()

    def attempts():
        return len(world.kinds("load_failed"))

    assert attempts() == 1
    ended, serving = manager.status("m")
    assert (ended.version, ended.state) == (2, State.END)
    assert ended.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert ended.error_message == "the file is damaged"
    assert (serving.version, serving.state) == (1, State.AVAILABLE)
    assert (serving.error_code, serving.error_message) == (0, "")
    for now, expected in [(59, 1), (60, 2), (119, 2), (120, 3), (1e6, 3)]:
        world.now = now
        manager.poll()
        assert attempts() == expected
    assert [e.message for e in world.events if e.kind == "load_failed"] == [
        f"the file is damaged (attempt {i} of 3)" for i in (1, 2, 3)
    ]
    # Its files change: at once, and the retries begin anew.
    (world.base / "2" / "saved_model.pb").write_bytes(b"another")
    manager.poll()
    manager.poll()
    assert attempts() == 4
    assert world.open_versions() == [1]
    del world.broken[2]
    world.now += 60
    manager.poll()
    assert states(manager)[0] == (2, "AVAILABLE")
    wait_for(lambda: world.open_versions() == [2])


def test_what_fails_while_warming_is_closed(world):
    world.add(1)

    def load(directory, version):
        servable = world.load(directory, version)
        if version == 2:
            servable.warm_up = lambda: 1 / 0
        return servable

    manager = world.start(load=load)
    world.add(2)
    manager.poll()
    assert world.open_versions() == [1]
    status = manager.status("m", version=2)[0]
    assert status.error_message == "ZeroDivisionError: division by zero"
    assert status.error_code == grpc.StatusCode.UNKNOWN.value[0]


def test_a_broken_version_does_not_hold_up_a_newer_one(world):
    world.add(1)
    manager = world.start()
    world.broken[2] = RequestError(grpc.StatusCode.INTERNAL, "it broke")
    world.add(2)
    manager.poll()
    assert manager.status("m", version=2)[0].error_code == 13
    world.add(3)
    manager.poll()
    wait_for(lambda: world.open_versions() == [3])
    assert states(manager)[0] == (3, "AVAILABLE")


@pytest.mark.parametrize("what", ["path", "version", "whole version", "load"])
def test_a_start_without_a_version_is_refused(world, what):
    other = world.base.parent / "other"
    world.add(1, base=other)
    message = "Model m: .*base does not hold any version: expected <integer>/"
    if what == "path":
        world.base.rmdir()
        message = "Model m: .*base does not exist: expected a SavedModel"
    if what == "whole version":
        (world.base / "1").mkdir()
    if what == "load":
        world.add(2)
        world.broken[2] = InputError("damaged")
        message = (
            r"^1 model\(s\) did not become available: \{\{name: m version: 2\} "
            r"due to error: damaged\}$"
        )
    manager = world.manager(
        world.settings(name="other", base=other), world.settings()
    )
    with pytest.raises(InputError, match=message):
        manager.start()
    # What was loaded before is not left behind.
    assert [s.version for s in world.loaded] == [1]
    assert world.open_versions() == []
    assert manager.names() == []


def test_settings_that_make_no_sense(world):
    for seconds in (-1, float("inf"), float("nan")):
        with pytest.raises(InputError, match=f"polled every {seconds} seconds"):
            world.manager(poll_seconds=seconds)
    for seconds in (0, float("inf")):
        with pytest.raises(InputError, match=f"read every {seconds} seconds"):
            ModelConfigFile(
                "x", manager=None, settings=[], poll_seconds=seconds
            )


def test_versions_that_are_deleted_are_let_go(world):
    for version in (1, 2):
        world.add(version)
    manager = world.start()
    shutil.rmtree(world.base / "2")
    manager.poll()
    # The older one is loaded again first.
    assert world.kinds()[2:5] == [
        ("loading", 1),
        ("loaded", 1),
        ("unloading", 2),
    ]
    wait_for(lambda: world.open_versions() == [1])
    # The base path is away for a while: nothing changes.
    away = world.base.rename(world.base.parent / "away")
    manager.poll()
    manager.poll()
    assert states(manager)[-1] == (1, "AVAILABLE")
    assert world.kinds("poll_failed", "polling") == [("poll_failed", None)]
    assert "base does not exist" in world.events[-1].message
    away.rename(world.base)
    manager.poll()
    assert world.kinds("poll_failed", "polling")[1:] == [("polling", None)]
    # It is there, and empty.
    shutil.rmtree(world.base / "1")
    manager.poll()
    wait_for(lambda: world.open_versions() == [])
    with refused("NOT_FOUND", r"Latest\(m\)"), manager.use("m"):
        raise AssertionError("it was found")
    world.add(1)
    manager.poll()
    with manager.use("m") as (version, servable):
        assert version == servable.run() == 1


def test_labels(world):
    for version in (1, 2):
        world.add(version)
    both = VersionPolicy("specific", versions=(1, 2))
    message = (
        "^Request to assign label to version 3 of model m, which is not "
        "currently available for inference$"
    )
    with pytest.raises(InputError, match=message):
        world.start(world.settings(both, labels={"stable": 3}))
    assert world.open_versions() == []
    manager = world.start(world.settings(both, labels={"stable": 1}))

    def labelled(label):
        with manager.use("m", label=label) as (version, servable):
            assert version == servable.run()
            return version

    assert labelled("stable") == 1
    assert manager.status("m", label="stable")[0].version == 1
    world.add(3)
    three = VersionPolicy("specific", versions=(1, 2, 3))
    # Not in one step with the load, as in TF Serving.
    labels = {"stable": 2, "canary": 3}
    with refused("FAILED_PRECONDITION", message):
        manager.apply([world.settings(three, labels=labels)])
    assert labelled("stable") == 1
    assert states(manager) == [(2, "AVAILABLE"), (1, "AVAILABLE")]
    manager.apply([world.settings(three, labels={"stable": 1})])
    manager.apply([world.settings(three, labels=labels)])
    assert (labelled("stable"), labelled("canary")) == (2, 3)
    assert world.kinds("config_refused", "config_applied") == [
        ("config_refused", None),
        ("config_applied", None),
        ("config_applied", None),
    ]


def test_labels_for_versions_to_come(world):
    world.add(1)
    every = VersionPolicy("all")
    manager = world.start(
        world.settings(every, labels={"next": 2}),
        allow_labels_for_unavailable=True,
    )
    with (
        refused("NOT_FOUND", r"Specific\(m, 2\)"),
        manager.use("m", label="next"),
    ):
        raise AssertionError("it was found")
    # A label in use is not moved to a version that cannot answer.
    with refused("FAILED_PRECONDITION", "version 3 of model m"):
        manager.apply([world.settings(every, labels={"next": 3})])
    world.add(2)
    manager.poll()
    with manager.use("m", label="next") as (version, _):
        assert version == 2


def test_apply_makes_the_given_models_the_only_ones(world):
    elsewhere = world.base.parent / "elsewhere"
    world.add(1)
    world.add(1, base=elsewhere)
    manager = world.start()
    manager.apply([world.settings(), world.settings(name="n", base=elsewhere)])
    assert manager.names() == ["m", "n"]
    # What was loaded already was not loaded again.
    assert len(world.loaded) == 2
    # The same version from another place is another model.
    with manager.use("m") as (_, old):
        manager.apply([world.settings(base=elsewhere)])
        assert manager.names() == ["m"]
        with manager.use("m") as (version, servable):
            assert version == 1
            assert servable.directory == str(elsewhere / "1")
        assert old.run() == 1
    wait_for(lambda: world.open_versions() == [1])
    wait_for(lambda: states(manager, "n") == [(1, "END")])
    with refused("NOT_FOUND", r"Latest\(n\)"), manager.use("n"):
        raise AssertionError("it was found")
    manager.apply([])
    wait_for(lambda: world.open_versions() == [])


def test_a_refused_config_changes_nothing(world):
    elsewhere = world.base.parent / "elsewhere"
    world.add(1)
    world.add(5, base=elsewhere)
    manager = world.start()
    good = world.settings(name="n", base=elsewhere)
    bad = world.settings(name="bad", base=world.base.parent / "bad")
    with refused("INVALID_ARGUMENT", "Model bad: .*bad does not exist"):
        manager.apply([good, bad])
    world.add("x", base=world.base.parent / "bad")
    with refused("NOT_FOUND", "Model bad: .*bad does not hold any version"):
        manager.apply([bad])
    specific = VersionPolicy("specific", versions=(8, 9))
    with refused("NOT_FOUND", r"base does not hold any of the versions \[8, 9"):
        manager.apply([world.settings(specific)])
    world.broken[1] = InputError("damaged")
    with refused("UNKNOWN", r"1 model\(s\) did not .*m2 version: 1.*damaged"):
        manager.apply([good, world.settings(name="m2")])
    assert manager.names() == ["m"]
    assert states(manager) == [(1, "AVAILABLE")]
    assert world.open_versions() == [1]
    assert world.kinds("config_applied") == []


def test_a_model_that_stays_does_not_keep_others_from_coming(world):
    elsewhere = world.base.parent / "elsewhere"
    world.add(1)
    world.add(5, base=elsewhere)
    manager = world.start()
    world.add(2)
    world.broken[2] = InputError("damaged")
    manager.poll()
    manager.apply([world.settings(), world.settings(name="n", base=elsewhere)])
    assert states(manager, "n") == [(5, "AVAILABLE")]
    assert states(manager) == [(2, "END"), (1, "AVAILABLE")]
    # Nor is it tried again before its time.
    assert len(world.kinds("load_failed")) == 1


def test_an_apply_looks_at_the_disk_even_without_polling(world):
    world.add(1)
    manager = world.start(poll_seconds=0)
    world.add(2)
    manager.apply([world.settings()])
    assert states(manager)[0] == (2, "AVAILABLE")


def test_the_status_does_not_grow_without_end(world):
    world.add(1)
    manager = world.start()
    for version in range(2, 120):
        world.add(version)
        manager.poll()
        shutil.rmtree(world.base / str(version - 1))
    wait_for(lambda: len(manager.status("m")) == 101)
    assert states(manager)[:2] == [(119, "AVAILABLE"), (118, "END")]


def test_stop_gives_running_requests_time(world):
    world.add(1)
    manager = world.start(poll_seconds=0.01)
    grace = []
    world.loaded[0].close = lambda *, grace_seconds: grace.append(grace_seconds)
    manager.stop(grace_seconds=5)
    world.loaded[0].closed = True
    assert len(grace) == 1 and 4 < grace[0] <= 5
    assert states(manager) == [(1, "END")]
    with refused("NOT_FOUND", r"Latest\(m\)"), manager.use("m"):
        raise AssertionError("it was found")
    with refused("UNAVAILABLE", "is stopping"):
        manager.apply([])
    manager.stop()


def test_what_is_being_loaded_at_the_stop_is_closed(world):
    world.add(1)
    loading = threading.Event()
    go_on = threading.Event()

    def load(directory, version):
        if version == 2:
            loading.set()
            assert go_on.wait(10)
        return world.load(directory, version)

    manager = world.start(load=load, poll_seconds=0.01)
    world.add(2)
    assert loading.wait(10)
    started = time.monotonic()
    manager.stop(grace_seconds=0.1)
    assert time.monotonic() - started < 5
    assert world.open_versions() == []
    go_on.set()
    wait_for(
        lambda: world.kinds("unloaded") == [("unloaded", 1), ("unloaded", 2)]
    )


def test_a_close_that_fails_is_told(world):
    world.add(1)
    manager = world.start()

    def close(*, grace_seconds):
        world.loaded[0].closed = True
        raise OSError("no")

    world.loaded[0].close = close
    world.add(2)
    manager.poll()
    wait_for(lambda: world.kinds("unload_failed") == [("unload_failed", 1)])
    world.add(3)
    manager.poll()
    wait_for(lambda: world.open_versions() == [3])


@pytest.fixture
def config(world, tmp_path):
    """A config file of one model and a function that writes another."""
    world.add(1)
    path = tmp_path / "models.config"

    def write(*names, platform="tensorflow", base=world.base):
        models = "".join(
            f'config {{ name: "{name}" base_path: "{base}" '
            f'model_platform: "{platform}" }}'
            for name in names
        )
        write_text(str(path), f"model_config_list {{ {models} }}")

    write("m")
    return path, write


def test_a_config_file_is_applied_when_it_changes(world, config):
    path, write = config
    manager = world.start()
    file = ModelConfigFile(
        str(path),
        manager=manager,
        settings=[world.settings()],
        poll_seconds=1,
        on_event=world.events.append,
    )

    def told():
        kinds = ("config_applied", "config_refused")
        told = [e for e in world.events if e.kind in kinds]
        return [(e.kind, e.message.partition(":")[0]) for e in told]

    def look_twice():
        file.poll()
        file.poll()
        return told()[-1:], manager.names()

    assert look_twice() == ([], ["m"])
    write("m", "n")
    assert look_twice() == ([("config_applied", "m, n")], ["m", "n"])
    # What came over the wire is not undone by a file that stays as it is.
    manager.apply([world.settings()])
    assert look_twice()[1] == ["m"]
    write("m", platform="caffe")
    assert look_twice() == (
        [("config_refused", f"{path}, line 1")],
        ["m"],
    )
    write("o", base=world.base / "missing")
    assert look_twice() == ([("config_refused", "Model o")], ["m"])
    path.unlink()
    reason = (
        f"The model config {path} cannot be read ([Errno 2] No such file or "
        "directory"
    )
    assert look_twice() == ([("config_refused", reason)], ["m"])
    write("n")
    assert look_twice() == ([("config_applied", "n")], ["n"])
    assert len(told()) == 6


def test_a_config_file_is_looked_at_again_and_again(world, config):
    path, write = config
    manager = world.start()
    file = ModelConfigFile(
        str(path),
        manager=manager,
        settings=[world.settings()],
        poll_seconds=0.01,
        on_event=world.events.append,
    )
    file.start()
    write("renamed")
    wait_for(lambda: manager.names() == ["renamed"])
    file.stop(grace_seconds=5)
    write("m")
    assert manager.names() == ["renamed"]


def copy_version(saved_model, version, base, *, to):
    """As one puts a version in place: beside, then renamed."""
    shutil.copytree(f"{saved_model}/{version}", base / "copy")
    (base / "copy").rename(base / str(to))


def test_saved_models_are_swapped_under_load(saved_model, tmp_path):
    copy_version(saved_model, 1, tmp_path, to=1)
    manager = ModelManager(
        [ModelSettings("realm", str(tmp_path))],
        load=lambda directory, version: SavedModelServable(directory),
        poll_seconds=0.05,
    )
    manager.start()
    question = {"question": np.array([b"who wrote frankenstein?"], object)}
    # By its name: version 2 of the fixture scores 100 higher than 1.
    scores = {1: 12.5, 2: 112.5, 3: 12.5, 4: 112.5}
    enough = threading.Event()
    latest = [0] * 8
    wrong = []

    def ask(thread):
        while not enough.is_set():
            try:
                with manager.use("realm") as (version, servable):
                    outputs = servable.run(question)
                if outputs["score"].tolist() != [scores[version]]:
                    wrong.append((version, outputs["score"]))
                latest[thread] = version
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    with contextlib.ExitStack() as stack:
        stack.callback(manager.stop)
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
                [s.state.name for s in manager.status("realm")]
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
from realm_tf.serving.versions.config import ModelSettings
from realm_tf.serving.versions.manager import ModelManager
from realm_tf.serving.servable import SavedModelServable

base = sys.argv[1]


class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.values = tf.Variable(np.ones(13_107_200, np.float32))

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="x")])
    def add(self, x):
        return {"sum": x + tf.reduce_sum(self.values)}


module = Module()
tf.saved_model.save(module, f"{base}/1", signatures={"serving_default": module.add})
unloaded = queue.SimpleQueue()
manager = ModelManager(
    [ModelSettings("m", base)],
    load=lambda directory, version: SavedModelServable(directory),
    poll_seconds=0,
    on_event=lambda e: e.kind == "unloaded" and unloaded.put(e.version),
)
manager.start()
for swap in range(1, 11):
    os.rename(f"{base}/{swap}", f"{base}/{swap + 1}")
    with manager.use("m") as (_, old):
        manager.poll()
    del old
    assert unloaded.get(timeout=60) == swap
    with manager.use("m") as (version, servable):
        total = servable.run({"x": np.float32(swap)})["sum"]
    del servable
    assert (version, total) == (swap + 1, 13_107_200 + swap), (version, total)
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * 4096
    print("MB", resident / 1e6, (memory.allocated_bytes() or 0) / 1e6)
manager.stop()
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
