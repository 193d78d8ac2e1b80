"""Which version answers, and when another is closed."""

import shutil
import threading
import time

from version_world import refused
from waiting import wait_for


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


def test_nothing_is_loaded_after_the_stop(world):
    world.add(1)
    world.start()
    world.versions.stop()
    world.add(2)
    world.poll()
    assert [s.version for s in world.loaded] == [1]
    assert world.states() == [(1, "END")]


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
