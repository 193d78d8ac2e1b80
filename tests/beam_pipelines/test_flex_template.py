import json
import pathlib
import re

import docstring_parser
import pytest

from realm_tf import cli
from realm_tf.beam_pipelines.flex_template import launcher
from realm_tf.operations import annotate

FOLDER = pathlib.Path(launcher.__file__).parent
# What a word cannot say, or would need two jobs, one after the other.
LEFT_OUT = {
    "chunk": {"lowercase", "keep_all_titles", "keep_tables", "cut_sentences"},
    "annotate": {"input", "keep_all_titles", *annotate.CUTTING},
    "embed": set(),
}
# Others have a default; of two sources, one is left out above.
NEEDED = {
    "chunk": {"input", "output", "vocab"},
    "annotate": {"blocks", "output", "tagger"},
    "embed": {"model", "blocks", "output"},
}


@pytest.mark.parametrize("command", launcher.COMMANDS)
def test_a_template_says_what_the_fields_say(command):
    kind = cli.operation_class(command)
    found = json.loads((FOLDER / f"{command}_metadata.json").read_text())
    by_name = {each["name"]: each for each in found["parameters"]}
    fields = [
        field
        for field in docstring_parser.parse_from_object(kind).params
        if field.arg_name not in {*LEFT_OUT[command], "beam_options"}
    ]
    assert list(by_name) == [field.arg_name for field in fields]
    for field in fields:
        text = by_name[field.arg_name]["helpText"]
        assert text.startswith(" ".join(field.description.split()))
    assert NEEDED[command] == {
        name for name, each in by_name.items() if "isOptional" not in each
    }
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
