"""The loaded versions of every model, as requests find them.

A version in use is never closed: `VersionTable.use` counts its users, and a
version that was let go is handed out for closing only when the last of them
has left. The table's lock is held for look-ups alone, never while a version
is loaded, run or closed, so no request waits for another version.
"""

import contextlib
import dataclasses
import enum
import queue
import threading
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping

import grpc

from realm_tf.serving.request_error import RequestError
from realm_tf.serving.versions.config import ModelSettings

# Versions let go that stay in a model's status; our choice.
_MAX_ENDED = 100


class State(enum.IntEnum):
    """`tensorflow.serving.ModelVersionStatus.State`."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """What a version is doing.

    Args:
        version: int.
        state: `State`.
        error_code: int. Number of a `grpc.StatusCode`: why it could not be
            loaded. Defaults to 0, OK.
        error_message: str.
    """

    version: int
    state: State
    error_code: int = 0
    error_message: str = ""


@dataclasses.dataclass(eq=False)
class Version:
    """A version from the decision to load it until it is closed.

    Args:
        model: str.
        number: int. The version.
        directory: str.
        servable: the loaded model, while there is one.
        state: `State`.
        error_code: int. As of `VersionStatus`.
        error_message: str.
        users: int. Requests that it is answering.
    """

    model: str
    number: int
    directory: str
    servable: object = None
    state: State = State.START
    error_code: int = 0
    error_message: str = ""
    users: int = 0

    def status(self) -> VersionStatus:
        """What is told of it."""
        return VersionStatus(
            self.number, self.state, self.error_code, self.error_message
        )


class VersionTable:
    """The models' settings and versions. Any number of threads may use it.

    Attributes:
        idle: `queue.SimpleQueue` of `Version`s that were let go and that
            nobody uses any more: whoever gets one has to `close` it.
    """

    def __init__(self):
        self.idle = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._settings: Mapping[str, ModelSettings] = {}
        # Of each model by number: the one that serves, or else the last.
        self._versions: dict[str, dict[int, Version]] = {}
        # Let go, not closed yet.
        self._leaving: set[Version] = set()

    @property
    def settings(self) -> Mapping[str, ModelSettings]:
        """The settings in force by name; replaced, never changed."""
        return self._settings

    @contextlib.contextmanager
    def use(
        self, name: str, *, version: int | None = None, label: str | None = None
    ) -> Iterator[tuple[int, object]]:
        """Holds a version open; see `ModelManager.use`."""
        with self._lock:
            found = self._find(name, version, label)
            found.users += 1
            servable = found.servable
        try:
            yield found.number, servable
        finally:
            with self._lock:
                found.users -= 1
                if not found.users and found.state is State.UNLOADING:
                    self.idle.put(found)

    def status(
        self, name: str, *, version: int | None = None, label: str | None = None
    ) -> list[VersionStatus]:
        """What a model's versions do; see `ModelManager.status`."""
        with self._lock:
            if label is not None:
                version = self._labelled(name, label)
            versions = self._versions.get(name, {})
            if not versions:
                raise RequestError(
                    grpc.StatusCode.NOT_FOUND,
                    f"Could not find any versions of model {name}",
                )
            if version is None:
                ordered = sorted(versions, reverse=True)
                return [versions[number].status() for number in ordered]
            if version not in versions:
                raise RequestError(
                    grpc.StatusCode.NOT_FOUND,
                    f"Could not find version {version} of model {name}",
                )
            return [versions[version].status()]

    def serving(self, name: str) -> dict[int, Version]:
        """The versions of a model that requests can use, by number."""
        with self._lock:
            return self._serving(name)

    def superfluous(self, name: str, aspired: Collection[int]) -> list[Version]:
        """The versions of a model to let go, lowest first.

        Args:
            name: str.
            aspired: collection of versions. Those to serve. If none of them
                serves yet, the highest of the others stays until one does
                (TF Serving's availability_preserving_policy.cc).
        """
        serving = self.serving(name)
        others = [serving[n] for n in sorted(serving) if n not in aspired]
        if aspired and len(others) == len(serving):
            return others[:-1]
        return others

    def show(self, versions: Iterable[Version], state: State) -> None:
        """Makes what is being loaded visible to `status`.

        Args:
            versions: iterable of `Version`.
            state: `State`. Theirs from now on.
        """
        with self._lock:
            for version in versions:
                version.state = state
                # One of the same number, from elsewhere, serves until then.
                if version.number not in self._serving(version.model):
                    self._of(version.model)[version.number] = version

    def fail(self, version: Version, code: int, message: str) -> None:
        """Records that a version could not be loaded."""
        with self._lock:
            version.error_code = code
            version.error_message = message
            self._end(version)

    def publish(
        self,
        loaded: Iterable[Version],
        *,
        settings: Iterable[ModelSettings] | None = None,
    ) -> list[Version]:
        """Lets requests use versions, and settings take effect, at once.

        Args:
            loaded: iterable of `Version` with servables.
            settings: iterable of `ModelSettings`. Defaults to those that
                are in force.

        Returns:
            list of `Version`: those whose numbers were taken over; let go.
        """
        replaced = []
        with self._lock:
            for version in loaded:
                serving = self._serving(version.model)
                if version.number in serving:
                    replaced.append(serving[version.number])
                version.state = State.AVAILABLE
                self._of(version.model)[version.number] = version
            if settings is not None:
                self._settings = {model.name: model for model in settings}
            self._let_go(replaced)
        return replaced

    def let_go(self, versions: Iterable[Version]) -> None:
        """Keeps requests away from versions, which become `idle` after the
        last that is running."""
        with self._lock:
            self._let_go(versions)

    def leaving(self) -> list[Version]:
        """What was let go and is not closed."""
        with self._lock:
            return list(self._leaving)

    def close(
        self, version: Version, *, grace_seconds: float | None = None
    ) -> bool:
        """Frees a version that was let go, unless that was done before.

        Args:
            version: `Version`.
            grace_seconds: float. How long to wait for its users, if it is
                not idle. Defaults to no limit.

        Returns:
            bool, whether this call closed it.
        """
        with self._lock:
            if version not in self._leaving:
                return False
            self._leaving.remove(version)
            # Nothing here may keep the model's memory.
            servable, version.servable = version.servable, None
        try:
            servable.close(grace_seconds=grace_seconds)
        finally:
            with self._lock:
                self._end(version)
        return True

    def _find(self, name, version, label) -> Version:
        if not name:
            raise RequestError(
                grpc.StatusCode.INVALID_ARGUMENT,
                "ModelSpec has no name specified.",
            )
        if label is not None:
            version = self._labelled(name, label)
        serving = self._serving(name)
        asked = f"Specific({name}, {version})"
        if version is None:
            version = max(serving, default=None)
            asked = f"Latest({name})"
        if version not in serving:
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Servable not found for request: {asked}",
            )
        return serving[version]

    def _labelled(self, name: str, label: str) -> int:
        model = self._settings.get(name)
        if model is None or label not in model.labels:
            raise RequestError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"Unrecognized servable version label: {label}",
            )
        return model.labels[label]

    def _serving(self, name: str) -> dict[int, Version]:
        return {
            number: version
            for number, version in self._versions.get(name, {}).items()
            if version.state is State.AVAILABLE
        }

    def _of(self, name: str) -> dict[int, Version]:
        return self._versions.setdefault(name, {})

    def _let_go(self, versions: Iterable[Version]) -> None:
        for version in versions:
            version.state = State.UNLOADING
            self._leaving.add(version)
            if not version.users:
                self.idle.put(version)

    def _end(self, version: Version) -> None:
        version.state = State.END
        versions = self._of(version.model)
        ended = sorted(n for n, v in versions.items() if v.state is State.END)
        for number in ended[:-_MAX_ENDED]:
            del versions[number]
