"""Which versions on disk a model's settings ask for."""

from realm_tf.serving import locate
from realm_tf.serving.versions.config import ModelSettings
from realm_tf.serving.versions.events import Event
from realm_tf.serving.versions.events import Events


def find(settings: ModelSettings, events: Events) -> dict[int, str]:
    """The versions to serve, highest first, with their directories.

    Args:
        settings: `ModelSettings`.
        events: `Events`. Told of version directories passed over because
            they are not whole, and of versions asked for that are not there.

    Returns:
        dict of version to directory.

    Raises:
        InputError: if the base path is missing or cannot be read.
    """
    directories = locate.version_directories(settings.base_path)

    def note(well: bool, kind: str, version: int, message: str) -> None:
        if well:
            events.is_over(kind, settings.name, version)
        else:
            events.tell_once(Event(kind, settings.name, version, message))

    def is_whole(version: int) -> bool:
        directory = directories[version]
        whole = locate.is_whole(directory)
        message = f"{directory} holds no whole SavedModel"
        note(whole, "incomplete", version, message)
        return whole

    for version in settings.policy.versions:
        message = f"{settings.base_path} does not hold it"
        note(version in directories, "missing", version, message)
    chosen = settings.policy.choose(directories, is_whole)
    return {version: directories[version] for version in chosen}
