"""Finds the versions of a model on disk, loads, serves and closes them.

The newest version that loads is served. A newer one is loaded and warmed
while the old one answers. If a version does not load and none is served yet, the
next older one is served; the failed one is tried again after a pause.

The served version stays while the base path cannot be read. It is closed when
the base path exists and holds no version any more, as in TF Serving.

A version in use is never closed: when another takes its place it gets no new
requests, and a look at the disk after its last request closes it. The lock is
held for look-ups alone, never while a version is loaded, run or closed, so no
request waits for another version.
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
from realm_tf.serving.client import MODEL_NAME
from realm_tf.serving.protos import get_model_status_pb2
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import invalid

# From a failure to the next try, doubled after each up to an hour; the first
# is TF Serving's --load_retry_interval_micros.
_RETRY_SECONDS = 60.0
_MAX_DOUBLINGS = 6

# Its `State` has TF Serving's names and numbers.
State = get_model_status_pb2.ModelVersionStatus.State
LOADING = State.Value("LOADING")
AVAILABLE = State.Value("AVAILABLE")
UNLOADING = State.Value("UNLOADING")
END = State.Value("END")


@dataclasses.dataclass(eq=False)
class Version:
    """A version from the decision to load it until it is closed.

    Args:
        number: int.
        servable: the loaded model, while there is one.
        state: int. One of the constants of this module.
        error_code: int. Number of a `grpc.StatusCode`: the reason why it does
            not load. Defaults to 0, OK.
        error_message: str.
        users: int. Requests that it is answering.
        failures: int. Failed attempts to load it.
        retry_at: float. Time of the next attempt after a failure.
    """

    number: int
    servable: object = None
    state: int = LOADING
    error_code: int = 0
    error_message: str = ""
    users: int = 0
    failures: int = 0
    retry_at: float = 0.0


class Versions:
    """The served version of the model, and the states of the others.

    Args:
        base_path: str. A base directory or a version directory.
        load: function of a version directory that returns a servable.
            Called in one thread at a time.
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
        base_path: str,
        *,
        load: Callable[[str], object],
        poll_seconds: float,
        on_event: Callable[..., None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._base_path = base_path
        self._load = load
        self._poll_seconds = poll_seconds
        self._tell = on_event
        self._clock = clock
        self._lock = threading.Lock()
        self._current: Version | None = None
        # The last of each number.
        self._versions: dict[int, Version] = {}
        # Out of service, and not closed before their last request.
        self._closing: list[Version] = []
        # Why the base path could not be read: a lasting problem is one event.
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
        with self._lock:
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
        """Serves and loads nothing from now on; closes all open versions.

        Args:
            timeout_seconds: float. How long to wait for a version that is
                being loaded.

        Returns:
            bool, whether none is being loaded any more.
        """
        with self._lock:
            self._stopping.set()
        self._replace_by(None, "stopping")
        self._close_unused()
        if self._poller.is_alive():
            self._poller.join(timeout_seconds)
        return not self._poller.is_alive()

    @contextlib.contextmanager
    def use(
        self, name: str, *, version: int | None = None
    ) -> Iterator[tuple[int, object]]:
        """Holds the version that is served open.

        Args:
            name: str. The model that the request names.
            version: int. The version that it must be. Defaults to any.

        Yields:
            tuple of the version and its servable, which is not closed as
            long as the context lasts, except by `stop`.

        Raises:
            RequestError: if that is not served.
        """
        if not name:
            raise invalid("ModelSpec has no name specified.")
        with self._lock:
            found = self._current
            if (
                found is None
                or name != MODEL_NAME
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
            with self._lock:
                found.users -= 1

    def status(self, name: str, *, version: int | None = None) -> list[Version]:
        """The model's versions, those that ended included.

        Args:
            name: str. The model that the request names.
            version: int. Defaults to all.

        Returns:
            list of `Version`, highest first.

        Raises:
            RequestError: if there are none.
        """
        found = [v for v in self.known() if version in (None, v.number)]
        if name != MODEL_NAME or not found:
            what = "any versions" if version is None else f"version {version}"
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Could not find {what} of model {name}",
            )
        return found

    def poll(self) -> None:
        """Looks at the base path once: loads, retries or closes."""
        self._close_unused()
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
        # A version that comes back after its removal is new.
        for version in self.known():
            gone = version.number not in directories
            if gone and version.state == END:
                with self._lock:
                    del self._versions[version.number]
        for number in sorted(directories, reverse=True):
            if self._stopping.is_set() or number == self.current:
                break
            if self._serve(number, directories[number]):
                break
        if not directories:
            self._replace_by(None, "all gone")
        self._close_unused()

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
        with self._lock:
            self._versions[number] = version
        self._tell("loading", version=number, message=directory)
        started = time.monotonic()
        try:
            version.servable = self._load(directory)
            version.servable.warm_up()
        # Whatever it is, the served version must go on.
        except Exception as error:
            self._fail(version, error, seconds=time.monotonic() - started)
            return False
        version.failures = 0
        self._replace_by(version, f"version {number} takes over")
        self._tell(
            "loaded",
            version=number,
            message=directory,
            seconds=time.monotonic() - started,
        )
        return True

    def _fail(self, version: Version, error: Exception, seconds: float) -> None:
        """Notes why a version does not load and when to try again."""
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
        version.state = END
        self._tell(
            "load_failed",
            version=version.number,
            message=f"{version.error_message} (again in {pause:g} s)",
            seconds=seconds,
        )

    def _replace_by(self, version: Version | None, reason: str) -> None:
        """Lets requests use a version, at once; the old one waits to close.

        After `stop` it is the new version that waits to close.
        """
        with self._lock:
            old, self._current = self._current, version
            if version is not None and self._stopping.is_set():
                old, self._current = version, None
            elif version is not None:
                version.state = AVAILABLE
            if old is not None:
                old.state = UNLOADING
                self._closing.append(old)
        if old is not None:
            self._tell("unloading", version=old.number, message=reason)

    def _close_unused(self) -> None:
        """Closes the versions out of service that answer no request.

        After `stop` those in use, too.
        """
        with self._lock:
            unused = [
                version
                for version in self._closing
                if not version.users or self._stopping.is_set()
            ]
            self._closing = [v for v in self._closing if v not in unused]
        for version in unused:
            started = time.monotonic()
            # Nothing here may keep the model's memory.
            servable, version.servable = version.servable, None
            servable.close()
            del servable
            version.state = END
            seconds = time.monotonic() - started
            self._tell("unloaded", version=version.number, seconds=seconds)
