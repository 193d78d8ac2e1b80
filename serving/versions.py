"""The version of a model that answers, as requests find it.

A version in use is never closed: it is let go when another takes its place,
and closed, its memory freed, when the last request that uses it has been
answered. The lock is held for look-ups alone, never while a version is
loaded, run or closed, so no request waits for another version.
"""

import contextlib
import dataclasses
import enum
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator

import grpc

from realm_tf.errors import InputError
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import invalid

# Versions let go that stay in the status; our choice.
_MAX_ENDED = 100


class State(enum.IntEnum):
    """`tensorflow.serving.ModelVersionStatus.State`."""

    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to the model.

    Args:
        kind: str. Of a version `"loading"`, `"loaded"`, `"load_failed"`,
            `"unloading"`, `"unloaded"`, `"unload_failed"` or `"incomplete"`
            (not whole on disk); of the model `"poll_failed"`.
        version: int. Defaults to `None`: it is about the model.
        message: str.
        seconds: float. How long it took, if it is the end of something.
    """

    kind: str
    version: int | None = None
    message: str = ""
    seconds: float | None = None


@dataclasses.dataclass(eq=False)
class Version:
    """A version from the decision to load it until it is closed.

    Args:
        number: int.
        servable: the loaded model, while there is one.
        state: `State`.
        error_code: int. Number of a `grpc.StatusCode`: why it could not be
            loaded. Defaults to 0, OK.
        error_message: str.
        users: int. Requests that it is answering.
    """

    number: int
    servable: object = None
    state: State = State.LOADING
    error_code: int = 0
    error_message: str = ""
    users: int = 0


class Versions:
    """The version of a model that is served, and what became of the others.

    Args:
        name: str. The model's.
        on_event: function of an `Event`, called from several threads.
    """

    def __init__(
        self,
        name: str,
        *,
        on_event: Callable[[Event], None] = lambda event: None,
    ):
        self.name = name
        self._tell = on_event
        self._changed = threading.Condition()
        self._current: Version | None = None
        # The last of each number, for the status.
        self._versions: dict[int, Version] = {}
        self._closers: list[threading.Thread] = []
        self._stopping = False

    @property
    def is_stopping(self) -> bool:
        """Whether nothing is taken any more."""
        return self._stopping

    @property
    def current(self) -> int | None:
        """The version that is served, if there is one."""
        current = self._current
        return None if current is None else current.number

    @contextlib.contextmanager
    def use(
        self, name: str, *, version: int | None = None
    ) -> Iterator[tuple[int, object]]:
        """Holds the version that is served open.

        Args:
            name: str. The model that is asked for.
            version: int. The version that it must be. Defaults to any.

        Yields:
            tuple of the version and its servable, which is not closed as
            long as the context lasts.

        Raises:
            RequestError: if that is not served.
        """
        if not name:
            raise invalid("ModelSpec has no name specified.")
        with self._changed:
            found = self._current
            if (
                found is None
                or name != self.name
                or version not in (None, found.number)
            ):
                asked = f"Latest({name})"
                if version is not None:
                    asked = f"Specific({name}, {version})"
                raise RequestError(
                    grpc.StatusCode.NOT_FOUND,
                    f"Servable not found for request: {asked}",
                )
            found.users += 1
            servable = found.servable
        try:
            yield found.number, servable
        finally:
            with self._changed:
                found.users -= 1
                self._changed.notify_all()

    def status(self, name: str, *, version: int | None = None) -> list[Version]:
        """What the model's versions do, those that ended included.

        Args:
            name: str. The model that is asked for.
            version: int. Defaults to all.

        Returns:
            list of `Version`, highest first.

        Raises:
            RequestError: if there are none.
        """
        with self._changed:
            found = [
                self._versions[number]
                for number in sorted(self._versions, reverse=True)
                if name == self.name and version in (None, number)
            ]
        if not found:
            what = "any versions" if version is None else f"version {version}"
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Could not find {what} of model {name}",
            )
        return found

    def add(self, version: Version) -> None:
        """Shows a version that is being loaded in the status."""
        with self._changed:
            self._versions[version.number] = version

    def fail(self, version: Version, error: Exception) -> None:
        """Records that a version could not be loaded, and frees it."""
        if version.servable is not None:
            version.servable.close(grace_seconds=0)
            version.servable = None
        with self._changed:
            version.error_code, version.error_message = explain(error)
            self._end(version)

    def replace_by(self, version: Version | None, reason: str) -> None:
        """Lets requests use a version and lets the one before go, at once.

        Args:
            version: `Version` with its servable, or `None`. After `stop` it
                is closed.
            reason: str. Why the other is let go.
        """
        with self._changed:
            if self._stopping:
                old = version
            else:
                old, self._current = self._current, version
                if version is not None:
                    version.state = State.AVAILABLE
        if old is None:
            return
        self._unload(old, reason)
        closer = threading.Thread(
            target=self._close, args=(old,), name="close", daemon=True
        )
        with self._changed:
            # `stop` joins what is listed, so it has to run by then.
            closer.start()
            self._closers = [c for c in self._closers if c.is_alive()]
            self._closers.append(closer)

    def stop(self, *, grace_seconds: float | None = None) -> None:
        """Closes all versions; none is served from now on.

        Args:
            grace_seconds: float. How long running requests, all together,
                may take; then they are cancelled. Defaults to no limit.
        """
        deadline = None
        if grace_seconds is not None:
            deadline = time.monotonic() + grace_seconds
        with self._changed:
            self._stopping = True
            current, self._current = self._current, None
            leaving = [
                v for v in self._versions.values() if v.state is State.UNLOADING
            ]
        if current is not None:
            self._unload(current, "stopping")
            leaving.append(current)
        for version in leaving:
            self._close(version, grace_seconds=_left(deadline))
        with self._changed:
            closers = list(self._closers)
        for closer in closers:
            closer.join(_left(deadline))

    def _unload(self, version: Version, reason: str) -> None:
        with self._changed:
            version.state = State.UNLOADING
        self._tell(Event("unloading", version.number, reason))

    def _close(
        self, version: Version, *, grace_seconds: float | None = None
    ) -> None:
        """Frees a version after its last request, unless another did."""
        with self._changed:
            self._changed.wait_for(
                lambda: not version.users or version.servable is None,
                grace_seconds,
            )
            # Nothing here may keep the model's memory.
            servable, version.servable = version.servable, None
        if servable is None:
            return
        started = time.monotonic()
        kind, message = "unloaded", ""
        try:
            servable.close(grace_seconds=grace_seconds)
        # The others must still be closed.
        except Exception as error:
            kind, message = "unload_failed", explain(error)[1]
        del servable
        with self._changed:
            self._end(version)
        seconds = time.monotonic() - started
        self._tell(Event(kind, version.number, message, seconds))

    def _end(self, version: Version) -> None:
        version.state = State.END
        ended = sorted(
            n for n, v in self._versions.items() if v.state is State.END
        )
        for number in ended[:-_MAX_ENDED]:
            del self._versions[number]


def explain(error: Exception) -> tuple[int, str]:
    """The number of a `grpc.StatusCode` and the text for an exception."""
    if isinstance(error, RequestError):
        return error.code.value[0], error.message
    if isinstance(error, InputError):
        return grpc.StatusCode.INVALID_ARGUMENT.value[0], str(error)
    return grpc.StatusCode.UNKNOWN.value[0], f"{type(error).__name__}: {error}"


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    return max(0.0, deadline - time.monotonic())
