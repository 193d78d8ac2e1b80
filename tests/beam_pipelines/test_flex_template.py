import json
import re

import pytest

from realm_tf import cli
from realm_tf.beam_pipelines.flex_template import launcher
from realm_tf.beam_pipelines.flex_template import metadata


def test_every_command_that_goes_on_has_a_template():
    found = {path.name for path in metadata.FOLDER.glob("*.json")}
    assert found == {f"{name}_metadata.json" for name in launcher.COMMANDS}


@pytest.mark.parametrize("command", launcher.COMMANDS)
def test_the_files_are_those_of_the_fields(command):
    path = metadata.FOLDER / f"{command}_metadata.json"
    found = json.loads(path.read_text())
    # If not: python -m realm_tf.beam_pipelines.flex_template.metadata
    assert found == metadata.template(cli.operation_class(command))
    for parameter in found["parameters"]:
        # Those that the launcher's schema knows.
        assert parameter.keys() <= {
            *("name", "label", "helpText", "isOptional", "regexes")
        }


@pytest.mark.parametrize(
    "command, needed, left_out",
    [
        ("chunk", {"input", "output", "vocab"}, {"lowercase"}),
        ("annotate", {"blocks", "output", "tagger"}, {"input", "vocab"}),
        ("embed", {"model", "blocks", "output"}, {"beam_options"}),
    ],
)
def test_parameters(command, needed, left_out):
    found = metadata.template(cli.operation_class(command))["parameters"]
    by_name = {each["name"]: each for each in found}
    assert needed == {
        name for name, each in by_name.items() if "isOptional" not in each
    }
    assert not left_out & by_name.keys()
    for name, good, bad in (
        ("output", "gs://bucket/path", "/path"),
        ("batch_size", "7", "seven"),
        ("unit", "words", "bytes"),
        ("tagger_model", "gs://bucket/tagger", "tagger"),
    ):
        for regex in by_name.get(name, {"regexes": []})["regexes"]:
            assert re.search(regex, good) and not re.search(regex, bad)


def test_parameters_become_arguments():
    found = launcher.command_arguments(
        "embed",
        [
            "--model=gs://b/model",
            "--batch_size=7",
            "--rows-per-shard=9",
            "--runner=DataflowRunner",
            "--template_location=gs://b/staging/template_launches/1",
            "--no_use_public_ips",
        ],
    )
    assert found == [
        "--model=gs://b/model",
        "--batch-size=7",
        "--rows-per-shard=9",
        "--template_location=gs://b/staging/template_launches/1",
        "--no_use_public_ips",
        "--runner=realm_tf.beam_pipelines.flex_template.launcher"
        ".DataflowRunner",
    ]


@pytest.mark.parametrize("name", ["", "index", "serve"])
def test_other_commands_are_refused(monkeypatch, capsys, name):
    monkeypatch.setenv("REALM_COMMAND", name)
    assert launcher.main([]) == 2
    assert capsys.readouterr().err == (
        f"REALM_COMMAND is {name!r}: build the launcher's image with "
        "--build-arg COMMAND= one of chunk, annotate, embed.\n"
    )
