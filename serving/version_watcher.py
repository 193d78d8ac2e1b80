"""Looks for versions on disk, again and again: the newest that loads is served.

A newer version is loaded and warmed while the old one answers. A version that
does not load is passed over for the next older one if none is served yet, and
is tried again after a pause.

What is served stays while the base path cannot be read. It is let go when the
base path is there and holds no version any more, as TF Serving does.
"""

import threading
import time
from collections.abc import Callable

from realm_tf.artifacts import saved_models
from realm_tf.errors import InputError
from realm_tf.serving.versions import Event
from realm_tf.serving.versions import Version
from realm_tf.serving.versions import Versions
from realm_tf.serving.versions import explain

# From a failure to the next try, doubled after each up to an hour; the first
# is TF Serving's --load_retry_interval_micros.
RETRY_SECONDS = 60.0
_MAX_DOUBLINGS = 6


class VersionWatcher:
    """Serves the newest version under a base path that loads.

    Args:
        base_path: str. A base directory or a version directory.
        versions: `Versions`. Gets what is loaded.
        load: function of a version directory and its version that returns a
            servable. Called in one thread at a time.
        poll_seconds: float. Time between two looks at the base path. 0: only
            one at the start.
        on_event: function of an `Event`.
        retry_seconds: float. Time from a version's first failure to the next
            try. Defaults to 60.
        clock: function that returns seconds, for retries.
    """

    def __init__(
        self,
        base_path: str,
        *,
        versions: Versions,
        load: Callable[[str, int], object],
        poll_seconds: float,
        on_event: Callable[[Event], None] = lambda event: None,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._base_path = base_path
        self._versions = versions
        self._load = load
        self._poll_seconds = poll_seconds
        self._tell = on_event
        self._retry_seconds = retry_seconds
        self._clock = clock
        # Version to how often it did not load and when to try it again.
        self._failures: dict[int, tuple[int, float]] = {}
        # What lasts is told once.
        self._told: dict[tuple[str, int | None], str] = {}
        self._stopping = threading.Event()
        # A load that outlives `stop` must not hold up the exit.
        self._poller = threading.Thread(
            target=self._poll_until_stopped, name="poll-versions", daemon=True
        )

    def start(self) -> None:
        """Loads and warms the newest version that loads.

        Raises:
            InputError: if there is none.
        """
        saved_models.find_version(self._base_path)
        self.poll()
        if self._versions.current is None:
            reasons = "; ".join(
                f"version {version.number}: {version.error_message}"
                for version in self._versions.status(self._versions.name)
            )
            raise InputError(
                f"No version in {self._base_path} loads: {reasons}"
            )
        if self._poll_seconds:
            self._poller.start()

    def stop(self, *, timeout_seconds: float) -> bool:
        """Looks no more.

        Args:
            timeout_seconds: float. How long to wait for a version that is
                being loaded.

        Returns:
            bool, whether none is any more.
        """
        self._stopping.set()
        if self._poller.is_alive():
            self._poller.join(timeout_seconds)
        return not self._poller.is_alive()

    def poll(self) -> None:
        """Looks at the base path once: loads, retries or lets go."""
        try:
            directories = saved_models.version_directories(self._base_path)
            whole = self._find_whole(directories)
        except InputError as error:
            self._tell_once("poll_failed", None, str(error))
            return
        self._told.pop(("poll_failed", None), None)
        # One that is put there again is new.
        for number in set(self._failures) - set(directories):
            del self._failures[number]
        for number in whole:
            if self._stopping.is_set() or self._versions.is_stopping:
                return
            if number == self._versions.current:
                return
            if self._is_due(number) and self._serve(
                number, directories[number]
            ):
                return
        if not whole and self._versions.current not in directories:
            self._versions.replace_by(None, "all gone")

    def _poll_until_stopped(self) -> None:
        while not self._stopping.wait(self._poll_seconds):
            self.poll()

    def _find_whole(self, directories: dict[int, str]) -> list[int]:
        """The versions that can be loaded, highest first."""
        whole = []
        for number in sorted(directories, reverse=True):
            if saved_models.is_whole(directories[number]):
                whole.append(number)
                self._told.pop(("incomplete", number), None)
            else:
                message = f"{directories[number]} holds no whole SavedModel"
                self._tell_once("incomplete", number, message)
        return whole

    def _is_due(self, number: int) -> bool:
        _, retry_at = self._failures.get(number, (0, 0.0))
        return not retry_at or self._clock() >= retry_at

    def _serve(self, number: int, directory: str) -> bool:
        """Loads and warms a version, and serves it; whether it could."""
        version = Version(number)
        self._versions.add(version)
        self._tell(Event("loading", number, directory))
        started = time.monotonic()
        try:
            version.servable = self._load(directory, number)
            version.servable.warm_up()
        # Whatever it is, what is served must go on.
        except Exception as error:
            failures, _ = self._failures.get(number, (0, 0.0))
            pause = self._retry_seconds * 2 ** min(failures, _MAX_DOUBLINGS)
            self._failures[number] = (failures + 1, self._clock() + pause)
            self._versions.fail(version, error)
            message = f"{explain(error)[1]} (again in {pause:g} s)"
            seconds = time.monotonic() - started
            self._tell(Event("load_failed", number, message, seconds))
            return False
        self._failures.pop(number, None)
        seconds = time.monotonic() - started
        self._tell(Event("loaded", number, directory, seconds))
        self._versions.replace_by(version, f"version {number} takes over")
        return True

    def _tell_once(self, kind: str, version: int | None, message: str) -> None:
        if self._told.get((kind, version)) != message:
            self._told[kind, version] = message
            self._tell(Event(kind, version, message))
