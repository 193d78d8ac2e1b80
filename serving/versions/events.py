"""What happens to models, as the log and the metrics are told of it."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to a model.

    Args:
        kind: str. Of a version `"loading"`, `"loaded"`, `"load_failed"`,
            `"unloading"`, `"unloaded"`, `"unload_failed"`, `"incomplete"`
            (not whole on disk) or `"missing"` (asked for, not on disk); of a
            model `"poll_failed"` or, after that, `"polling"` again; of all
            models `"config_applied"` or `"config_refused"`.
        model: str. Empty where it is about all of them.
        version: int. Defaults to `None`: it is about the model.
        message: str.
        seconds: float. How long it took, if it is the end of something.
    """

    kind: str
    model: str
    version: int | None = None
    message: str = ""
    seconds: float | None = None


class Events:
    """Tells of events; of what lasts, once.

    Args:
        on_event: function of an `Event`. Defaults to nobody.
    """

    def __init__(self, on_event: Callable[[Event], None] | None = None):
        self._on_event = on_event
        self._lasting: dict[tuple[str, str, int | None], str] = {}

    def tell(self, event: Event) -> None:
        """Tells of something that happened."""
        if self._on_event is not None:
            self._on_event(event)

    def tell_once(self, event: Event) -> None:
        """Tells of something that lasts, unless its message is known."""
        key = (event.kind, event.model, event.version)
        if self._lasting.get(key) != event.message:
            self._lasting[key] = event.message
            self.tell(event)

    def is_over(
        self, kind: str, model: str, version: int | None = None
    ) -> bool:
        """Notes that something lasts no longer.

        Returns:
            bool, whether it was told of.
        """
        return self._lasting.pop((kind, model, version), None) is not None
