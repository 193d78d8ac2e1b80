"""Loads versions, and says when one that failed is to be tried again."""

import dataclasses
import time
from collections.abc import Callable

import grpc

from realm_tf.errors import InputError
from realm_tf.serving import locate
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.versions.events import Event
from realm_tf.serving.versions.events import Events
from realm_tf.serving.versions.table import State
from realm_tf.serving.versions.table import Version
from realm_tf.serving.versions.table import VersionTable


@dataclasses.dataclass
class _Failure:
    """A version directory that did not load, and what it held then."""

    files: dict[str, tuple[int, int]]
    num_attempts: int
    retry_at: float


class VersionLoader:
    """Loads and warms versions one at a time.

    Args:
        load: function of a version directory and its version that returns a
            servable.
        table: `VersionTable`. Shows what is being loaded.
        events: `Events`.
        num_retries: int. How often a load that failed is tried again.
        retry_seconds: float. Time from a failure to the next try.
        clock: function that returns seconds, for retries.
    """

    def __init__(
        self,
        load: Callable[[str, int], object],
        *,
        table: VersionTable,
        events: Events,
        num_retries: int,
        retry_seconds: float,
        clock: Callable[[], float],
    ):
        self._load = load
        self._table = table
        self._events = events
        self._num_retries = num_retries
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._failures: dict[tuple[str, int, str], _Failure] = {}

    def load(self, version: Version) -> str | None:
        """Loads and warms a version.

        Args:
            version: `Version`. Gets its servable.

        Returns:
            str, why it could not be loaded; `None` if it was.
        """
        self._table.show([version], State.LOADING)
        self._tell("loading", version, version.directory)
        files = {}
        started = time.monotonic()
        try:
            files = locate.files_of(version.directory)
            version.servable = self._load(version.directory, version.number)
            version.servable.warm_up()
        # Whatever it is, the other versions must go on being served.
        except Exception as error:
            code, message = explain(error)
            self._record_failure(version, files)
            self._table.fail(version, code, message)
            attempt = self._failures[_key(version)].num_attempts
            message += f" (attempt {attempt} of {1 + self._num_retries})"
            self._tell("load_failed", version, message, started)
            return version.error_message
        self._failures.pop(_key(version), None)
        self._tell("loaded", version, version.directory, started)
        return None

    def is_due(self, version: Version) -> bool:
        """Whether to load a version now: it has not failed, its files have
        changed since, or it is time for a retry."""
        failure = self._failures.get(_key(version))
        if failure is None:
            return True
        try:
            files = locate.files_of(version.directory)
        except InputError:
            # Being changed: the next look sees what became of it.
            return False
        if files != failure.files:
            del self._failures[_key(version)]
            return True
        return (
            failure.num_attempts <= self._num_retries
            and self._clock() >= failure.retry_at
        )

    def forget(self, model: str, *, but: dict[int, str]) -> None:
        """Forgets what failed of a model.

        Args:
            model: str.
            but: dict of version to directory. What to remember.
        """
        for name, number, directory in list(self._failures):
            if name == model and but.get(number) != directory:
                del self._failures[name, number, directory]

    def _record_failure(self, version: Version, files: dict) -> None:
        if version.servable is not None:
            version.servable.close(grace_seconds=0)
            version.servable = None
        before = self._failures.get(_key(version))
        self._failures[_key(version)] = _Failure(
            files,
            num_attempts=1 + (before.num_attempts if before else 0),
            retry_at=self._clock() + self._retry_seconds,
        )

    def _tell(
        self,
        kind: str,
        version: Version,
        message: str,
        started: float | None = None,
    ) -> None:
        seconds = None if started is None else time.monotonic() - started
        self._events.tell(
            Event(kind, version.model, version.number, message, seconds)
        )


def explain(error: Exception) -> tuple[int, str]:
    """The number of a `grpc.StatusCode` and the text for an exception."""
    if isinstance(error, RequestError):
        return error.code.value[0], error.message
    if isinstance(error, InputError):
        return grpc.StatusCode.INVALID_ARGUMENT.value[0], str(error)
    return (
        grpc.StatusCode.UNKNOWN.value[0],
        f"{type(error).__name__}: {error}",
    )


def _key(version: Version) -> tuple[str, int, str]:
    return version.model, version.number, version.directory
