"""Which versions on disk are loaded, which one answers, which are closed."""

import shutil
import threading

import grpc
import pytest
from version_world import refused
from waiting import wait_for

from realm_tf.artifacts import artifact
from realm_tf.artifacts import saved_models
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.serving.versions import AVAILABLE
from realm_tf.serving.versions import END


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
    assert [s.version for s in world.loaded] == [10]


def test_an_export_in_place_does_not_count_before_its_end(world):
    base = "memory://versions/in-place"
    for version in (1, 2):
        with artifact.write(f"{base}/{version}", kind="saved_model") as stage:
            write_text(stage.path("saved_model.pb"), "model")
            if version == 2:
                world.start(base=base)
                assert world.states() == [(1, "AVAILABLE")]
                assert saved_models.find_version(base) == f"{base}/1"
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

    ended, serving = world.versions.status("realm")
    assert (ended.number, ended.state) == (2, END)
    assert ended.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert ended.error_message == "the file is damaged"
    assert (serving.error_code, serving.error_message) == (0, "")
    assert (serving.number, serving.state) == (1, AVAILABLE)
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
    assert world.open_versions() == [2]


def test_what_fails_while_warming_is_closed(world):
    world.add(1)

    def load(directory):
        servable = world.load(directory)
        if servable.version == 2:
            servable.warm_up = lambda: 1 / 0
        return servable

    world.start(load=load)
    world.add(2)
    world.poll()
    assert world.open_versions() == [1]
    (status,) = world.versions.status("realm", version=2)
    assert status.error_message == "ZeroDivisionError: division by zero"
    assert status.error_code == grpc.StatusCode.UNKNOWN.value[0]


def test_a_start_passes_over_versions_that_do_not_load(world):
    world.add(1, 2, 3)
    world.broken = {3: InputError("damaged"), 2: OSError("gone")}
    world.start()
    assert world.states() == [(3, "END"), (2, "END"), (1, "AVAILABLE")]
    world.now = 60
    del world.broken[2]
    world.poll()
    assert world.open_versions() == [2]


@pytest.mark.parametrize("what", ["path", "version", "whole version", "load"])
def test_a_start_without_a_version_is_refused(world, what):
    message = "base holds no SavedModel: expected saved_model.pb or <integer>/"
    if what == "path":
        world.base.rmdir()
        message = "base does not exist: expected a corpus"
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
    assert world.kinds()[2:] == [
        ("loading", 1),
        ("unloading", 2),
        ("loaded", 1),
        ("unloaded", 2),
    ]
    assert world.open_versions() == [1]
    # A version that is neither on disk nor used is forgotten.
    world.poll()
    assert world.states() == [(1, "AVAILABLE")]
    # The base path is away for a while: nothing changes.
    away = world.base.rename(world.base.parent / "away")
    world.poll()
    world.poll()
    assert world.states() == [(1, "AVAILABLE")]
    assert world.kinds("poll_failed") == [("poll_failed", None)]
    assert "base does not exist" in world.events[-1].message
    away.rename(world.base)
    world.poll()
    # It is there, and empty.
    shutil.rmtree(world.base / "1")
    world.poll()
    assert world.open_versions() == []
    with refused("NOT_FOUND", r"Latest\(realm\)"), world.use():
        raise AssertionError("it was found")
    world.add(1)
    world.poll()
    with world.use() as (version, servable):
        assert version == servable.run() == 1


def _slow_load(world):
    """A load that stops at version 2, when it does, and what lets it go on."""
    loading = threading.Event()
    go_on = threading.Event()

    def load(directory):
        if directory.endswith("2"):
            loading.set()
            assert go_on.wait()
        return world.load(directory)

    return load, loading, go_on


def test_a_new_version_is_warm_before_the_old_is_let_go(world):
    world.add(1)
    load, loading, go_on = _slow_load(world)
    world.start(load=load)
    world.add(2)
    poll = threading.Thread(target=world.poll)
    poll.start()
    assert loading.wait()
    # None of this would return if it waited for the load.
    with world.use() as (version, servable):
        assert version == servable.run() == 1
    assert world.states() == [(2, "LOADING"), (1, "AVAILABLE")]
    go_on.set()
    poll.join()
    with world.use() as (version, servable):
        assert version == servable.run() == 2
    assert world.states() == [(2, "AVAILABLE"), (1, "END")]
    assert world.open_versions() == [2]
    assert world.kinds() == [
        ("loading", 1),
        ("loaded", 1),
        ("loading", 2),
        ("unloading", 1),
        ("loaded", 2),
        ("unloaded", 1),
    ]
    assert world.events[4].seconds >= 0 and world.events[2].seconds is None


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
        with refused("NOT_FOUND", r"Specific\(realm, 1\)"), world.use(1):
            raise AssertionError("it was found")
        # Another version comes and goes meanwhile.
        world.add(3)
        world.poll()
        assert world.open_versions() == [1, 3]
        assert first.run() == 1
    world.poll()
    assert world.open_versions() == [3]
    assert world.kinds("unloaded") == [("unloaded", 2), ("unloaded", 1)]


def test_the_stop_closes_what_is_in_use_and_what_is_being_loaded(world):
    world.add(1)
    load, loading, go_on = _slow_load(world)
    world.start(load=load, poll_seconds=0.01)
    world.add(2)
    assert loading.wait()
    with world.use():
        assert not world.versions.stop(timeout_seconds=0.1)
        assert world.open_versions() == []
    with refused("NOT_FOUND", r"Latest\(realm\)"), world.use():
        raise AssertionError("it was found")
    go_on.set()
    wait_for(
        lambda: world.kinds("unloaded") == [("unloaded", 1), ("unloaded", 2)]
    )
    assert world.versions.stop(timeout_seconds=600)
    world.add(3)
    world.poll()
    assert [s.version for s in world.loaded] == [1, 2]


def test_a_poll_that_fails_is_not_the_last(world, capsys):
    world.add(1)
    world.start(poll_seconds=0.01)
    tell, failures = world.tell, [OSError("no log"), OSError("no log")]

    def fail(kind, **fields):
        if failures:
            raise failures.pop()
        tell(kind, **fields)

    world.versions._tell = fail
    world.add(2)
    wait_for(lambda: world.versions.current == 2)
    world.versions.stop()
    assert not failures and "no log" in capsys.readouterr().err
