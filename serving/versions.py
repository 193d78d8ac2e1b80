"""Finds the versions of a model on disk, loads, serves and closes them.

The newest version that loads is served. A newer one is loaded and warmed
while the old one answers. If a version does not load and none is served yet, the
next older one is served; the failed one is tried again after a pause.

The served version stays while the base path cannot be read. It is closed when
the base path exists and holds no version any more, as in TF Serving.

A version in use is never closed: when another takes its place it gets no new
requests, and it is closed after its last one. The lock is held for look-ups
alone, never while a version is loaded, run or closed, so no request waits for
another version.
"""

import contextlib
import dataclasses
import threading
import time
import traceback
from collections.abc import Callable
from collections.abc import Iterator

import grpc

from realm_tf.artifacts import saved_models
from realm_tf.errors import InputError
from realm_tf.serving.client import State
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import invalid

# From a failure to the next try, doubled after each up to an hour; the first
# is TF Serving's --load_retry_interval_micros.
_RETRY_SECONDS = 60.0
_MAX_DOUBLINGS = 6


@dataclasses.dataclass(eq=False)
class Version:
    """A version from the decision to load it until it is closed.

    Args:
        number: int.
        servable: the loaded model, while there is one.
        state: `State`.
        error_code: int. Number of a `grpc.StatusCode`: the reason why it does
            not load. Defaults to 0, OK.
        error_message: str.
        users: int. Requests that it is answering.
        failures: int. Failed attempts to load it.
        retry_at: float. Time of the next attempt after a failure.
    """

    number: int
    servable: object = None
    state: State = State.LOADING
    error_code: int = 0
    error_message: str = ""
    users: int = 0
    failures: int = 0
    retry_at: float = 0.0


class Versions:
    """The served version of a model, and the states of the others.

    Args:
        name: str. The model's.
        base_path: str. A base directory or a version directory.
        load: function of a version directory and of the servable in use
            (`None` before the first), that returns a servable. Called in one
            thread at a time.
        poll_seconds: float. Time between two looks at the base path. 0: only
            one at the start.
        on_event: function of an event and, by name, `version`, `message` and
            `seconds` (its duration), called from several threads. Events of a
            version are `"loading"`, `"loaded"`, `"load_failed"`, `"unloading"`
            and `"unloaded"`; of the model `"poll_failed"`.
        clock: function that returns seconds, for retries.
    """

    def __init__(
        self,
        name: str,
        base_path: str,
        *,
        load: Callable[[str, object], object],
        poll_seconds: float,
        on_event: Callable[..., None] = lambda event, **fields: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.name = name
        self._base_path = base_path
        self._load = load
        self._poll_seconds = poll_seconds
        self._tell = on_event
        self._clock = clock
        self._changed = threading.Condition()
        self._current: Version | None = None
        # The last of each number.
        self._versions: dict[int, Version] = {}
        # Why the base path could not be read: what lasts is told once.
        self._problem = ""
        self._stopping = threading.Event()
        # A load that outlives `stop` must not hold up the exit.
        self._poller = threading.Thread(
            target=self._poll_until_stopped, name="poll-versions", daemon=True
        )

    @property
    def current(self) -> int | None:
        """The version that is served, if there is one."""
        current = self._current
        return None if current is None else current.number

    def known(self) -> list[Version]:
        """The versions on disk or in memory, highest first."""
        with self._changed:
            return [
                self._versions[n] for n in sorted(self._versions, reverse=True)
            ]

    def start(self) -> None:
        """Loads and warms the newest version that loads.

        Raises:
            InputError: if there is none.
        """
        saved_models.find_version(self._base_path)
        self.poll()
        if self._current is None:
            reasons = "; ".join(
                f"version {version.number}: {version.error_message}"
                for version in self.known()
            )
            raise InputError(
                f"No version in {self._base_path} loads: {reasons}"
            )
        if self._poll_seconds:
            self._poller.start()

    def stop(self, *, timeout_seconds: float = 0.0) -> bool:
        """Serves and loads nothing from now on; what is open is closed.

        Args:
            timeout_seconds: float. How long to wait for a version that is
                being loaded or closed.

        Returns:
            bool, whether none is being loaded any more.
        """
        with self._changed:
            current = self._replace_by(None)
            self._stopping.set()
        if current is not None:
            self._tell("unloading", version=current.number, message="stopping")
        for version in self.known():
            if version.state is State.UNLOADING:
                self._close(version)
        if self._poller.is_alive():
            self._poller.join(timeout_seconds)
        with self._changed:
            self._changed.wait_for(
                lambda: all(
                    v.state is not State.UNLOADING
                    for v in self._versions.values()
                ),
                timeout_seconds,
            )
        return not self._poller.is_alive()

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
            long as the context lasts, except by `stop`.

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
        """The model's versions, those that ended included.

        Args:
            name: str. The model that is asked for.
            version: int. Defaults to all.

        Returns:
            list of `Version`, highest first.

        Raises:
            RequestError: if there are none.
        """
        found = [v for v in self.known() if version in (None, v.number)]
        if name != self.name or not found:
            what = "any versions" if version is None else f"version {version}"
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Could not find {what} of model {name}",
            )
        return found

    def poll(self) -> None:
        """Looks at the base path once: loads, retries or lets go."""
        try:
            found = saved_models.version_directories(self._base_path)
            directories = {
                number: directory
                for number, directory in found.items()
                if saved_models.is_whole(directory)
            }
        except InputError as error:
            if str(error) != self._problem:
                self._tell("poll_failed", message=str(error))
            self._problem = str(error)
            return
        self._problem = ""
        # One that is put there again is new.
        for version in self.known():
            gone = version.number not in directories
            if gone and version.state is State.END:
                with self._changed:
                    del self._versions[version.number]
        for number in sorted(directories, reverse=True):
            if self._stopping.is_set() or number == self.current:
                return
            if self._serve(number, directories[number]):
                return
        if not directories:
            self._let_go(self._replace_by(None), "all gone")

    def _poll_until_stopped(self) -> None:
        while not self._stopping.wait(self._poll_seconds):
            try:
                self.poll()
            # One bad look at the disk must not be the last.
            except Exception:
                traceback.print_exc()

    def _serve(self, number: int, directory: str) -> bool:
        """Loads and warms a version, and serves it; whether it could."""
        version = Version(number)
        before = self._versions.get(number)
        if before is not None and before.failures:
            if self._clock() < before.retry_at:
                return False
            version.failures = before.failures
        with self._changed:
            self._versions[number] = version
        self._tell("loading", version=number, message=directory)
        started = time.monotonic()
        try:
            version.servable = self._load(directory, self._served())
            version.servable.warm_up()
        # Whatever it is, what is served must go on.
        except Exception as error:
            if version.servable is not None:
                version.servable.close()
                version.servable = None
            pause = _RETRY_SECONDS * 2 ** min(version.failures, _MAX_DOUBLINGS)
            version.failures += 1
            version.retry_at = self._clock() + pause
            code = grpc.StatusCode.UNKNOWN
            version.error_message = f"{type(error).__name__}: {error}"
            if isinstance(error, InputError):
                code = grpc.StatusCode.INVALID_ARGUMENT
                version.error_message = str(error)
            version.error_code = code.value[0]
            version.state = State.END
            self._tell(
                "load_failed",
                version=number,
                message=f"{version.error_message} (again in {pause:g} s)",
                seconds=time.monotonic() - started,
            )
            return False
        version.failures = 0
        old = self._replace_by(version)
        self._tell(
            "loaded",
            version=number,
            message=directory,
            seconds=time.monotonic() - started,
        )
        self._let_go(old, f"version {number} takes over")
        return True

    def _served(self):
        current = self._current
        return None if current is None else current.servable

    def _replace_by(self, version: Version | None) -> Version | None:
        """Lets requests use a version, at once; gives the one before.

        After `stop` it gives the version itself.
        """
        with self._changed:
            if self._stopping.is_set():
                old = version
            else:
                old, self._current = self._current, version
                if version is not None:
                    version.state = State.AVAILABLE
            if old is not None:
                old.state = State.UNLOADING
        return old

    def _let_go(self, old: Version | None, reason: str) -> None:
        if old is None:
            return
        self._tell("unloading", version=old.number, message=reason)
        threading.Thread(
            target=self._close_unused, args=(old,), daemon=True
        ).start()

    def _close_unused(self, version: Version) -> None:
        """Frees a version after its last request."""
        with self._changed:
            self._changed.wait_for(
                lambda: not version.users or version.servable is None
            )
        self._close(version)

    def _close(self, version: Version) -> None:
        """Frees a version, unless another thread did."""
        with self._changed:
            # Nothing here may keep the model's memory.
            servable, version.servable = version.servable, None
        if servable is None:
            return
        started = time.monotonic()
        servable.close()
        del servable
        with self._changed:
            version.state = State.END
            self._changed.notify_all()
        seconds = time.monotonic() - started
        self._tell("unloaded", version=version.number, seconds=seconds)
