"""TF Serving's model config: which models to serve, which of their versions.

    model_config_list {
      config {
        name: "realm"
        base_path: "/models/realm"
        model_platform: "tensorflow"
        model_version_policy { specific { versions: 3 versions: 4 } }
        version_labels { key: "stable" value: 3 }
        version_labels { key: "canary" value: 4 }
      }
    }

The text form of `tensorflow.serving.ModelServerConfig`; its rules are those
of TF Serving's server_core.cc. Imports no TensorFlow, so that mistakes show
at once.
"""

import dataclasses
import os
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.errors import InputError
from realm_tf.serving import locate

# TF Serving's name for SavedModels (model_platform_tensorflow.h).
PLATFORM = "tensorflow"


@dataclasses.dataclass(frozen=True)
class VersionPolicy:
    """Which of the versions on disk to serve.

    Args:
        kind: str. `"latest"`, the highest `count` versions; `"all"`; or
            `"specific"`, those in `versions`. Defaults to `"latest"`.
        count: int. Defaults to 1.
        versions: tuple of int.
    """

    kind: str = "latest"
    count: int = 1
    versions: tuple[int, ...] = ()

    def __post_init__(self):
        if self.kind not in ("latest", "all", "specific"):
            raise ValueError(
                "`kind` must be 'latest', 'all' or 'specific'. Received: "
                f"kind={self.kind!r}"
            )

    def __str__(self):
        if self.kind == "specific":
            return f"any of the versions {list(self.versions)}"
        return "any version"

    def choose(
        self, versions: Iterable[int], is_whole: Callable[[int], bool]
    ) -> list[int]:
        """The versions to serve, highest first.

        Args:
            versions: iterable of int. What is on disk.
            is_whole: function of a version. Others are passed over; not
                asked for more versions than it takes.
        """
        chosen = []
        for version in sorted(versions, reverse=True):
            if self.kind == "latest" and len(chosen) == self.count:
                break
            if self.kind == "specific" and version not in self.versions:
                continue
            if is_whole(version):
                chosen.append(version)
        return chosen


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """One model of a model config.

    Args:
        name: str. What clients ask for.
        base_path: str. Directory of the numbered versions, local or remote.
        policy: `VersionPolicy`. Defaults to the latest version.
        labels: mapping of label, such as `"stable"`, to version.
    """

    name: str
    base_path: str
    policy: VersionPolicy = VersionPolicy()
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def looks_as(self, other: "ModelSettings | None") -> bool:
        """Whether both ask for the same versions of the same place."""
        return other is not None and (self.base_path, self.policy) == (
            other.base_path,
            other.policy,
        )


def read(path: str) -> list[ModelSettings]:
    """Reads a model config file.

    Args:
        path: str. Local or remote.

    Returns:
        list of `ModelSettings`, at least one.

    Raises:
        InputError: if the file cannot be read or is no such config; names
            the line.
    """
    return parse(read_text(path), path=path)


def read_text(path: str) -> str:
    """The text of a model config file.

    Raises:
        InputError: if the file cannot be read.
    """
    try:
        return Path(path).read_text()
    except (*locate.storage_errors(path), UnicodeDecodeError) as error:
        raise InputError(
            f"The model config {path} cannot be read ({error}): expected a "
            "file in the text form of ModelServerConfig."
        ) from error


def parse(text: str, *, path: str) -> list[ModelSettings]:
    """The models of a config in text form.

    Args:
        text: str. The file's content.
        path: str. Its name, for errors.

    Returns:
        list of `ModelSettings`, at least one.

    Raises:
        InputError: as `read`.
    """
    config = model_server_config_pb2.ModelServerConfig()
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as error:
        # Its text begins "LINE:COLUMN : ".
        reason = str(error).partition(" : ")[2]
        raise InputError(
            f"{path}, line {error.GetLine()}, column {error.GetColumn()}: "
            f"{reason} Expected the text form of ModelServerConfig."
        ) from error
    lines = _field_lines(text)

    def where(index: int, field: str) -> str:
        return f"{path}, line {lines[index].get(field, lines[index][''])}"

    settings = _to_settings(config, source=path, where=where)
    if not settings:
        raise InputError(
            f"{path} lists no model: expected model_config_list with a "
            "config {...} for each."
        )
    return settings


def from_proto(config, *, source: str) -> list[ModelSettings]:
    """The models of a config that came in a request.

    Args:
        config: `tensorflow.serving.ModelServerConfig`.
        source: str. What it came in, for errors.

    Returns:
        list of `ModelSettings`; empty if the config lists none.

    Raises:
        InputError: if it is no valid config.
    """
    return _to_settings(
        config,
        source=source,
        where=lambda index, field: f"{source}, model {index + 1}",
    )


def _to_settings(config, *, source: str, where) -> list[ModelSettings]:
    kind = config.WhichOneof("config")
    if kind != "model_config_list":
        raise InputError(
            f"{source} holds {kind or 'no config'}: expected "
            "model_config_list, the only kind of config that is supported."
        )
    settings = []
    names = set()
    for index, model in enumerate(config.model_config_list.config):

        def here(field: str, index: int = index) -> str:
            return where(index, field)

        settings.append(_model_settings(model, here))
        if model.name in names:
            raise InputError(
                f"{here('name')}: Illegal to list model {model.name} multiple "
                "times in config list; give each its own name."
            )
        names.add(model.name)
    return settings


def _model_settings(model, here: Callable[[str], str]) -> ModelSettings:
    if not model.name:
        raise InputError(
            f'{here("name")}: the model has no name: expected name: "NAME".'
        )
    _check_platform(model, here)
    if not is_remote(model.base_path) and not os.path.isabs(model.base_path):
        raise InputError(
            f"{here('base_path')}: Expected model {model.name} to have an "
            f"absolute path or URI; got base_path()={model.base_path}"
        )
    if model.HasField("logging_config"):
        raise InputError(
            f"{here('logging_config')}: model {model.name} has a "
            "logging_config, which this server does not support: remove it."
        )
    return ModelSettings(
        name=model.name,
        base_path=model.base_path,
        policy=_policy(model, here),
        labels=_labels(model, here),
    )


def _check_platform(model, here) -> None:
    typed = model.model_type != model_server_config_pb2.MODEL_TYPE_UNSPECIFIED
    if typed and model.model_platform:
        raise InputError(
            f"{here('model_type')}: Illegal setting both "
            "ModelServerConfig::model_type (deprecated) and "
            "ModelServerConfig::model_platform; remove model_type."
        )
    if not typed and not model.model_platform:
        raise InputError(
            f"{here('model_platform')}: Illegal setting neither "
            "ModelServerConfig::model_type (deprecated) nor "
            "ModelServerConfig::model_platform; add model_platform: "
            f'"{PLATFORM}".'
        )
    if typed:
        name = model_server_config_pb2.ModelType.Name(model.model_type)
        supported = model.model_type == model_server_config_pb2.TENSORFLOW
    else:
        name = model.model_platform
        supported = name == PLATFORM
    if not supported:
        raise InputError(
            f"{here('model_type' if typed else 'model_platform')}: Model "
            f"{model.name} requests unsupported platform {name}; expected "
            f'model_platform: "{PLATFORM}".'
        )


def _policy(model, here) -> VersionPolicy:
    policy = model.model_version_policy
    kind = policy.WhichOneof("policy_choice") or "latest"
    if kind == "latest":
        # 0, or nothing, means 1 (file_system_storage_path_source.cc).
        return VersionPolicy(count=max(1, policy.latest.num_versions))
    versions = tuple(policy.specific.versions)
    if kind == "specific" and (not versions or min(versions) < 0):
        raise InputError(
            f"{here('model_version_policy')}: model {model.name} asks for "
            f"the specific versions {list(versions)}: expected at least one "
            "version: NUMBER, none below 0."
        )
    return VersionPolicy(kind, versions=versions)


def _labels(model, here) -> dict[str, int]:
    labels = dict(model.version_labels)
    for label, version in labels.items():
        if not label or version < 0:
            raise InputError(
                f"{here('version_labels')}: model {model.name} has the label "
                f"{label!r} for version {version}: expected a name as key "
                "and a version as value."
            )
    return labels


def _field_lines(text: str) -> list[dict[str, int]]:
    """Where the fields of each `model_config_list.config` stand.

    Protobuf's parser tells lines only of what it cannot parse.

    Args:
        text: str. A config that parses.

    Returns:
        list, one a model, of dicts of field name to line, from 1; the line
        of the model itself under `""`.
    """
    tokens = text_format.Tokenizer(text.splitlines())
    models = []
    # The names of the messages that are open, and the last name read.
    opened = []
    name = ""
    while not tokens.AtEnd():
        token = tokens.token
        line = tokens.ParseError("").GetLine()
        if token in ("{", "<"):
            opened.append(name)
            if opened == ["model_config_list", "config"]:
                models.append({"": line})
        elif token in ("}", ">"):
            # In a list of messages the name stands only before the first.
            name = opened.pop()
        elif token.isidentifier():
            name = token
            if opened == ["model_config_list", "config"]:
                models[-1].setdefault(name, line)
        tokens.NextToken()
    return models
