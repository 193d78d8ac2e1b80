"""Loads the versions that the settings ask for and lets others go.

As TF Serving with its availability-preserving policy: the base paths are
looked at again and again; a new version is loaded and warmed while the old
one answers, and the old one is let go only then. What was let go is closed,
its memory freed, when the last request that uses it has been answered.

A model keeps the versions it serves while its base path cannot be read. When
the base path is there and holds no version to serve any more, the last one is
let go, as TF Serving does unless servable_versions_always_present is set.
"""

import threading
import time
from collections.abc import Callable
from collections.abc import Iterable

import grpc

from realm_tf.errors import InputError
from realm_tf.serving import locate
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.versions import aspired as aspired_versions
from realm_tf.serving.versions.config import ModelSettings
from realm_tf.serving.versions.events import Event
from realm_tf.serving.versions.events import Events
from realm_tf.serving.versions.loader import VersionLoader
from realm_tf.serving.versions.loader import explain
from realm_tf.serving.versions.table import State
from realm_tf.serving.versions.table import Version
from realm_tf.serving.versions.table import VersionStatus
from realm_tf.serving.versions.table import VersionTable

# As TF Serving's --file_system_poll_wait_seconds, --max_num_load_retries and
# --load_retry_interval_micros.
POLL_SECONDS = 1.0
NUM_LOAD_RETRIES = 5
RETRY_SECONDS = 60.0


class ModelManager:
    """Serves versions of models that come and go on disk.

    Args:
        settings: iterable of `ModelSettings`, their names distinct.
        load: function of a version directory and its version that returns a
            servable. Called in one thread at a time.
        poll_seconds: float. Time between two looks at the base paths. 0:
            only one at the start and at each `apply`, as TF Serving; failed
            loads are then not tried again by themselves. Defaults to 1.
        allow_labels_for_unavailable: bool. Labels may point to versions that
            are not loaded, as long as they are new or do not move. Defaults
            to `False`.
        on_event: function of an `Event`, called from several threads.
        num_load_retries: int. How often a load is tried again after it
            failed; a change of the version's files starts the count anew,
            at once. Defaults to 5.
        retry_seconds: float. Time from a failure to the next try. Defaults
            to 60.
        clock: function that returns seconds, for retries.

    Raises:
        InputError: if `poll_seconds` is negative or beyond all clocks.
    """

    def __init__(
        self,
        settings: Iterable[ModelSettings],
        *,
        load: Callable[[str, int], object],
        poll_seconds: float = POLL_SECONDS,
        allow_labels_for_unavailable: bool = False,
        on_event: Callable[[Event], None] | None = None,
        num_load_retries: int = NUM_LOAD_RETRIES,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ):
        if not 0 <= poll_seconds <= threading.TIMEOUT_MAX:
            raise InputError(
                f"The base paths cannot be polled every {poll_seconds:g} "
                "seconds: expected a positive number, or 0 for once."
            )
        self._given = list(settings)
        self._poll_seconds = poll_seconds
        self._allow_labels = allow_labels_for_unavailable
        self._events = Events(on_event)
        self._table = VersionTable()
        self._loader = VersionLoader(
            load,
            table=self._table,
            events=self._events,
            num_retries=num_load_retries,
            retry_seconds=retry_seconds,
            clock=clock,
        )
        # Held while versions are chosen and loaded; requests do not need it.
        self._work = threading.Lock()
        self._stopping = threading.Event()
        # A load that outlives the grace of `stop` must not hold up the exit.
        self._poller = threading.Thread(
            target=self._poll_until_stopped, name="poll-models", daemon=True
        )
        self._closer = threading.Thread(
            target=self._close_idle, name="close-models", daemon=True
        )

    def start(self) -> None:
        """Loads and warms the models; returns when each has a version.

        Labels may point to versions that it loads: TF Serving, which looks
        at labels before it loads anything, refuses every label here.

        Raises:
            InputError: if a base path or a version of it is missing, the
                versions do not load or a label points to none.
        """
        try:
            with self._work:
                self._change(self._given, first=True)
        except RequestError as error:
            raise InputError(error.message) from error
        self._closer.start()
        if self._poll_seconds:
            self._poller.start()

    def stop(self, *, grace_seconds: float | None = None) -> None:
        """Closes all versions.

        A version that is being loaded is waited for at most as long, then
        left to the end of the process.

        Args:
            grace_seconds: float. How long running requests, all together,
                may take; then they are cancelled. Defaults to no limit.
        """
        deadline = None
        if grace_seconds is not None:
            deadline = time.monotonic() + grace_seconds
        self._stopping.set()
        # Whoever is loading stops after it.
        acquired = self._work.acquire(
            timeout=-1 if deadline is None else _left(deadline)
        )
        for name in self._table.settings:
            self._let_go(self._table.serving(name).values(), "stopping")
        if acquired:
            self._work.release()
        for version in self._table.leaving():
            self._close(version, grace_seconds=_left(deadline))
        self._table.idle.put(None)
        if self._closer.is_alive():
            # It waits for nobody: what it closes is idle.
            self._closer.join()
        if self._poller.is_alive():
            self._poller.join(_left(deadline))

    def use(
        self, name: str, *, version: int | None = None, label: str | None = None
    ):
        """Holds a version of a model open.

        Args:
            name: str. The model.
            version: int. Defaults to the highest that is loaded.
            label: str. Instead of a version.

        Returns:
            context manager that gives the version and its servable, which
            is not closed as long as the context lasts.

        Raises:
            RequestError: on entering, if it is not loaded.
        """
        return self._table.use(name, version=version, label=label)

    def status(
        self, name: str, *, version: int | None = None, label: str | None = None
    ) -> list[VersionStatus]:
        """What a model's versions do, those that ended included.

        Args:
            name: str. The model.
            version: int. Defaults to all.
            label: str. Instead of a version.

        Returns:
            list of `VersionStatus`, highest version first.

        Raises:
            RequestError: if there are none.
        """
        return self._table.status(name, version=version, label=label)

    def names(self) -> list[str]:
        """The models that are configured, sorted."""
        return sorted(self._table.settings)

    def apply(self, settings: Iterable[ModelSettings]) -> None:
        """Makes the given models the only ones; returns when they answer.

        All of it takes effect or nothing: models and versions that are new
        are loaded beside the old ones first. A model whose base path and
        policy stay as they are is not held to have a version that loads.

        Args:
            settings: iterable of `ModelSettings`, their names distinct.

        Raises:
            RequestError: if a label points to a version that is not loaded
                already, a base path or its versions are missing, or a model
                does not load. The old settings stay in force.
        """
        settings = list(settings)
        try:
            with self._work:
                self._change(settings)
        except RequestError as error:
            event = Event("config_refused", "", message=error.message)
            self._events.tell(event)
            raise
        names = ", ".join(model.name for model in settings)
        self._events.tell(Event("config_applied", "", message=names))

    def poll(self) -> None:
        """Looks at the base paths once: loads, retries and lets go."""
        with self._work:
            for settings in self._table.settings.values():
                self._follow(settings)

    def _poll_until_stopped(self) -> None:
        while not self._stopping.wait(self._poll_seconds):
            self.poll()

    def _follow(self, settings: ModelSettings) -> None:
        """Brings a model's versions to what is on disk now."""
        name = settings.name
        try:
            aspired = aspired_versions.find(settings, self._events)
        except InputError as error:
            self._events.tell_once(Event("poll_failed", name, None, str(error)))
            return
        if self._events.is_over("poll_failed", name):
            self._events.tell(Event("polling", name))
        self._loader.forget(name, but=aspired)
        self._let_go_unaspired(name, aspired)
        missing = self._missing(name, aspired)
        due = [v for v in missing if self._loader.is_due(v)]
        self._table.show(due, State.START)
        for version in due:
            if self._stopping.is_set():
                return
            if self._loader.load(version) is not None:
                continue
            if self._stopping.is_set():
                self._discard([version], "stopping")
                return
            self._publish([version])
            self._let_go_unaspired(name, aspired)

    def _change(
        self, settings: list[ModelSettings], *, first: bool = False
    ) -> None:
        """Loads what `settings` need, then puts them in force."""
        if not first:
            self._check_labels(settings, loaded=())
        old = self._table.settings
        loaded = []
        try:
            for model in settings:
                if not model.looks_as(old.get(model.name)):
                    loaded += self._load_model(model)
            if first:
                self._check_labels(settings, loaded=loaded)
            if self._stopping.is_set():
                raise RequestError(
                    grpc.StatusCode.UNAVAILABLE, "The server is stopping."
                )
        except BaseException:
            self._discard(loaded, "the config was refused")
            raise
        self._publish(loaded, settings=settings)
        for name in set(old) - {model.name for model in settings}:
            self._loader.forget(name, but={})
            serving = self._table.serving(name).values()
            self._let_go(serving, "the model was removed")
        for model in settings:
            self._follow(model)

    def _load_model(self, settings: ModelSettings) -> list[Version]:
        """Loads a model's aspired versions beside those that serve."""
        name = settings.name
        # A new config is a new beginning.
        self._loader.forget(name, but={})
        try:
            aspired = aspired_versions.find(settings, self._events)
        except InputError as error:
            raise RequestError(
                grpc.StatusCode.INVALID_ARGUMENT, f"Model {name}: {error}"
            ) from error
        if not aspired:
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Model {name}: {settings.base_path} does not hold "
                f"{settings.policy}: expected <integer>/"
                f"{locate.SAVED_MODEL_FILE} in it, written to the end. "
                "`realm export` makes one.",
            )
        missing = self._missing(name, aspired)
        self._table.show(missing, State.START)
        errors = {version: self._loader.load(version) for version in missing}
        loaded = [v for v, error in errors.items() if error is None]
        if len(missing) == len(aspired) and not loaded:
            reasons = ", ".join(
                f"{{name: {name} version: {version.number}}} due to error: "
                f"{error}"
                for version, error in errors.items()
            )
            raise RequestError(
                grpc.StatusCode.UNKNOWN,
                f"1 model(s) did not become available: {{{reasons}}}",
            )
        return loaded

    def _check_labels(
        self, settings: list[ModelSettings], *, loaded: Iterable[Version]
    ) -> None:
        for model in settings:
            serving = set(self._table.serving(model.name))
            serving.update(v.number for v in loaded if v.model == model.name)
            old = self._table.settings.get(model.name)
            for label, version in model.labels.items():
                before = old.labels.get(label, version) if old else version
                allowed = self._allow_labels and before == version
                if not allowed and version not in serving:
                    raise RequestError(
                        grpc.StatusCode.FAILED_PRECONDITION,
                        f"Request to assign label to version {version} of "
                        f"model {model.name}, which is not currently "
                        "available for inference",
                    )

    def _missing(self, name: str, aspired: dict[int, str]) -> list[Version]:
        """What is aspired and does not serve, from that directory."""
        serving = self._table.serving(name)
        return [
            Version(name, number, directory)
            for number, directory in aspired.items()
            if number not in serving or serving[number].directory != directory
        ]

    def _let_go_unaspired(self, name: str, aspired: dict[int, str]) -> None:
        reason = "not among the versions to serve" if aspired else "all gone"
        self._let_go(self._table.superfluous(name, aspired), reason)

    def _publish(self, loaded: list[Version], *, settings=None) -> None:
        for version in self._table.publish(loaded, settings=settings):
            self._tell_unloading(version, "loaded from another directory")

    def _let_go(self, versions: Iterable[Version], reason: str) -> None:
        versions = list(versions)
        self._table.let_go(versions)
        for version in versions:
            self._tell_unloading(version, reason)

    def _discard(self, loaded: list[Version], reason: str) -> None:
        """Closes versions that no request has seen."""
        self._let_go(loaded, reason)
        for version in loaded:
            self._close(version)

    def _tell_unloading(self, version: Version, reason: str) -> None:
        event = Event("unloading", version.model, version.number, reason)
        self._events.tell(event)

    def _close_idle(self) -> None:
        while (version := self._table.idle.get()) is not None:
            self._close(version)

    def _close(
        self, version: Version, *, grace_seconds: float | None = None
    ) -> None:
        started = time.monotonic()
        kind, message = "unloaded", ""
        try:
            if not self._table.close(version, grace_seconds=grace_seconds):
                return
        # The others must still be closed.
        except Exception as error:
            kind, message = "unload_failed", explain(error)[1]
        seconds = time.monotonic() - started
        self._events.tell(
            Event(kind, version.model, version.number, message, seconds)
        )


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    return max(0.0, deadline - time.monotonic())
