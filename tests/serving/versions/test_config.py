import subprocess
import sys

import pytest
from google.protobuf import any_pb2
from tensorflow_serving.config import model_server_config_pb2

from realm_tf.errors import InputError
from realm_tf.serving.versions import config as model_config
from realm_tf.serving.versions.config import ModelSettings
from realm_tf.serving.versions.config import VersionPolicy

CONFIG = """
# model_config_list { config {
model_config_list {
  config {
    name: "realm"
    base_path: "/models/realm"
    model_platform: "tensorflow"
    model_version_policy { specific { versions: 3 versions: 4 } }
    version_labels { key: "stable" value: 3 }
    version_labels { key: "canary" value: 4 }
  }
  config: <
    name: 'other{'
    base_path: "gs://bucket/other"
    model_type: TENSORFLOW
    model_version_policy: { latest { num_versions: 2 } }
  >
  config [
    { name: "third" base_path: "/3" model_platform: "tensorflow" },
    {
      name: "fourth"
      base_path: "/4" model_platform: "tensorflow"
      model_version_policy { all {} }
    }
  ]
}
"""


def write(tmp_path, text):
    path = tmp_path / "models.config"
    path.write_text(text)
    return str(path)


def test_a_config_is_read(tmp_path):
    assert model_config.read(write(tmp_path, CONFIG)) == [
        ModelSettings(
            "realm",
            "/models/realm",
            VersionPolicy("specific", versions=(3, 4)),
            {"stable": 3, "canary": 4},
        ),
        ModelSettings(
            "other{", "gs://bucket/other", VersionPolicy("latest", count=2)
        ),
        ModelSettings("third", "/3"),
        ModelSettings("fourth", "/4", VersionPolicy("all")),
    ]


MODEL = 'name: "a" base_path: "/a" model_platform: "tensorflow"'


def listed(*models):
    configs = "".join(f"config {{\n{model}\n}}\n" for model in models)
    return f"model_config_list {{\n{configs}}}\n"


@pytest.mark.parametrize(
    "text, message",
    [
        # The first model's fields begin on line 3, the second's on line 6.
        (listed(MODEL, MODEL), "line 6: Illegal to list model a multiple"),
        (listed('base_path: "/a"'), "line 2: the model has no name"),
        (
            listed('name: "a"\nbase_path: "models/a" model_platform: ""'),
            "line 4: Illegal setting neither ModelServerConfig::model_type",
        ),
        (
            listed(MODEL.replace("tensorflow", "caffe")),
            "line 3: Model a requests unsupported platform caffe",
        ),
        (
            listed('name: "a" base_path: "/a"\nmodel_type: OTHER'),
            "line 4: Model a requests unsupported platform OTHER",
        ),
        (
            listed(f"{MODEL}\nmodel_type: TENSORFLOW"),
            "line 4: Illegal setting both",
        ),
        (
            listed(MODEL, MODEL.replace('"/a"', '\n"a"')),
            r"line 6: Expected model a to have an absolute path or URI; "
            r"got base_path\(\)=a$",
        ),
        (
            listed('name: "a" model_platform: "tensorflow"'),
            r"line 2: Expected model a .* got base_path\(\)=$",
        ),
        (
            listed(f"{MODEL}\n\nmodel_version_policy {{ specific {{}} }}"),
            r"line 5: model a asks for the specific versions \[\]",
        ),
        (
            listed(f"{MODEL} version_labels {{ value: 1 }}"),
            "line 3: model a has the label '' for version 1",
        ),
        (
            listed(f"{MODEL} logging_config {{ sampling_config {{}} }}"),
            "line 3: model a has a logging_config, which this server does not",
        ),
        (
            listed(f"{MODEL}\nbasepath: 3"),
            'line 4, column 1: .* has no field named "basepath"',
        ),
        (listed(MODEL)[:-4], 'line 3, column .*: Expected "}"'),
        ("", "holds no config: expected model_config_list"),
        (
            'custom_model_config { type_url: "x" }',
            "holds custom_model_config: expected model_config_list",
        ),
        ("model_config_list {}", "lists no model"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=f"^{path}.*{message}"):
        model_config.read(path)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="missing cannot be read"):
        model_config.read(str(tmp_path / "missing"))
    file = tmp_path / "binary"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="binary cannot be read"):
        model_config.read(str(file))
    with pytest.raises(InputError, match="ram://no/file cannot be read"):
        model_config.read("ram://no/file")


def test_a_config_from_a_request():
    config = model_server_config_pb2.ModelServerConfig()
    with pytest.raises(InputError, match="^the request holds no config"):
        model_config.from_proto(config, source="the request")
    config.model_config_list.SetInParent()
    assert model_config.from_proto(config, source="the request") == []
    model = config.model_config_list.config.add(
        name="a", base_path="/a", model_platform="tensorflow"
    )
    (settings,) = model_config.from_proto(config, source="the request")
    assert settings == ModelSettings("a", "/a", VersionPolicy("latest", 1), {})
    model.base_path = "a"
    with pytest.raises(InputError, match="the request, model 1: Expected mod"):
        model_config.from_proto(config, source="the request")
    config.custom_model_config.CopyFrom(any_pb2.Any())
    with pytest.raises(InputError, match="holds custom_model_config"):
        model_config.from_proto(config, source="the request")


@pytest.mark.parametrize(
    "policy, chosen",
    [
        (VersionPolicy(), [9]),
        (VersionPolicy(count=2), [9, 5]),
        (VersionPolicy(count=9), [9, 5, 3]),
        (VersionPolicy("all"), [9, 5, 3]),
        (VersionPolicy("specific", versions=(3, 4, 5, 10)), [5, 3]),
    ],
)
def test_policies_choose_among_what_is_whole(policy, chosen):
    asked = []

    def is_whole(version):
        asked.append(version)
        return version != 10

    assert policy.choose([3, 10, 9, 5], is_whole) == chosen
    # Nothing on disk is looked at for longer than it takes.
    if policy == VersionPolicy():
        assert asked == [10, 9]
    with pytest.raises(ValueError, match="kind='newest'"):
        VersionPolicy("newest")


def test_tensorflow_is_not_imported():
    code = (
        "import sys; import serving.versions.config; "
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
