"""Fake versions of a model on disk, and what serves them."""

import contextlib
from typing import NamedTuple

import pytest

from realm_tf.artifacts import saved_models
from realm_tf.serving.client import MODEL_NAME
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.versions import State
from realm_tf.serving.versions import Versions


class Event(NamedTuple):
    kind: str
    version: int | None = None
    message: str = ""
    seconds: float | None = None


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

    def close(self):
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
        self.versions = None

    def tell(self, kind, **fields):
        self.events.append(Event(kind, **fields))

    def add(self, *versions):
        for version in versions:
            (self.base / str(version)).mkdir()
            (self.base / str(version) / "saved_model.pb").write_bytes(b"m")

    def load(self, directory):
        (version,) = saved_models.version_directories(directory)
        if version in self.broken:
            raise self.broken[version]
        self.loaded.append(FakeServable(directory, version))
        return self.loaded[-1]

    def start(self, *, base=None, load=None, poll_seconds=0):
        self.versions = Versions(
            str(base or self.base),
            load=load or self.load,
            poll_seconds=poll_seconds,
            on_event=self.tell,
            clock=lambda: self.now,
        )
        self.versions.start()

    def poll(self):
        self.versions.poll()

    def use(self, version=None):
        return self.versions.use(MODEL_NAME, version=version)

    def stop(self):
        if self.versions is not None:
            self.versions.stop()

    def states(self):
        return [
            (v.number, State.Name(v.state))
            for v in self.versions.status(MODEL_NAME)
        ]

    def kinds(self, *kinds):
        return [
            (e.kind, e.version)
            for e in self.events
            if not kinds or e.kind in kinds
        ]

    def open_versions(self):
        return sorted(s.version for s in self.loaded if not s.closed)


@contextlib.contextmanager
def refused(code, message):
    with pytest.raises(RequestError, match=message) as caught:
        yield
    assert caught.value.code.name == code
