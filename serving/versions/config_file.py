"""Follows a model config file while the server runs."""

import contextlib
import threading
from collections.abc import Callable
from collections.abc import Iterable

from realm_tf.errors import InputError
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.versions import config as model_config
from realm_tf.serving.versions.config import ModelSettings
from realm_tf.serving.versions.events import Event
from realm_tf.serving.versions.events import Events
from realm_tf.serving.versions.manager import ModelManager


class ModelConfigFile:
    """Applies a model config file whenever its content has changed.

    A file that is broken, or refused by the manager, is told of as an event
    of kind `"config_refused"`; the settings in force stay, and the file is
    not tried again before it changes. TF Serving, whose
    --model_config_file_poll_wait_seconds this is, applies the file at every
    look and so undoes what HandleReloadConfigRequest has changed meanwhile.

    Args:
        path: str. Local or remote.
        manager: `ModelManager`, started.
        settings: iterable of `ModelSettings`. What the manager was given.
        poll_seconds: float. Time between two looks, above 0.
        on_event: function of an `Event`, called in a thread of its own.

    Raises:
        InputError: if `poll_seconds` is not positive.
    """

    def __init__(
        self,
        path: str,
        *,
        manager: ModelManager,
        settings: Iterable[ModelSettings],
        poll_seconds: float,
        on_event: Callable[[Event], None] | None = None,
    ):
        if not 0 < poll_seconds <= threading.TIMEOUT_MAX:
            raise InputError(
                f"The model config {path} cannot be read every "
                f"{poll_seconds:g} seconds: expected a positive number."
            )
        self._path = path
        self._manager = manager
        self._settings = list(settings)
        self._poll_seconds = poll_seconds
        self._events = Events(on_event)
        self._text: str | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._poll_until_stopped, name="poll-config", daemon=True
        )

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self, *, grace_seconds: float | None = None) -> None:
        """Looks no more.

        Args:
            grace_seconds: float. How long to wait for a config that is being
                applied. Defaults to no limit.
        """
        self._stopping.set()
        self._thread.join(grace_seconds)

    def poll(self) -> None:
        """Looks at the file once."""
        try:
            text = model_config.read_text(self._path)
            if text == self._text:
                return
            self._text = text
            settings = model_config.parse(text, path=self._path)
        except InputError as error:
            self._events.tell_once(
                Event("config_refused", "", message=str(error))
            )
            return
        self._events.is_over("config_refused", "")
        if settings == self._settings:
            return
        self._settings = settings
        # The manager tells of what it refuses.
        with contextlib.suppress(RequestError):
            self._manager.apply(settings)

    def _poll_until_stopped(self) -> None:
        while not self._stopping.wait(self._poll_seconds):
            self.poll()
