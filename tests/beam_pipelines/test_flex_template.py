import argparse
import importlib
import json
import pathlib
import re

import pytest

from realm_tf import cli
from realm_tf.beam_pipelines import flex_template
from realm_tf.beam_pipelines.flex_template import launcher

FOLDER = pathlib.Path(flex_template.__file__).parent


def _parser(command):
    parser = argparse.ArgumentParser()
    module = importlib.import_module(cli.COMMANDS[command][0])
    module.add_arguments(parser)
    return parser


def _options(command):
    """Name, as of a template's parameter, to the argparse action."""
    return {
        option.removeprefix("--").replace("-", "_"): action
        for action in _parser(command)._actions
        for option in action.option_strings
        if option.startswith("--")
    }


def _parameters(command):
    metadata = json.loads((FOLDER / f"{command}_metadata.json").read_text())
    assert metadata["name"] == f"realm {command}"
    assert f"`realm {command}`" in metadata["description"]
    return {p["name"]: p for p in metadata["parameters"]}


def _left_out(command):
    """Options that a template does not have."""
    # A template gives every parameter a value, which flags do not take.
    names = {
        name for name, action in _options(command).items() if action.nargs == 0
    }
    if command == "annotate":
        # Articles would need two jobs, one after the other.
        names |= {"input"}
        (group,) = (
            group
            for group in _parser(command)._action_groups
            if group.title.startswith("with --input")
        )
        names |= {action.dest for action in group._group_actions}
    return names


def test_every_command_that_goes_on_has_a_template():
    found = {path.name for path in FOLDER.glob("*.json")}
    assert found == {f"{name}_metadata.json" for name in launcher.COMMANDS}


@pytest.mark.parametrize("command", launcher.COMMANDS)
def test_parameters_are_the_options_of_the_command(command):
    options = _options(command)
    parameters = _parameters(command)
    assert parameters.keys() == options.keys() - _left_out(command)
    for name, parameter in parameters.items():
        # Those that the launcher's schema knows.
        assert parameter.keys() <= {
            *("name", "label", "helpText", "isOptional", "regexes")
        }
        assert all(parameter[key] for key in ("label", "helpText"))
        is_optional = parameter.get("isOptional", False)
        # Of annotate's two sources only one is left.
        is_needed = options[name].required or name == "blocks"
        assert is_optional is not is_needed, name


@pytest.mark.parametrize("command", launcher.COMMANDS)
def test_regexes_let_valid_values_pass(command):
    options = _options(command)
    for name, parameter in _parameters(command).items():
        (regex,) = parameter["regexes"]
        action = options[name]
        values = [*(action.choices or ())]
        if action.default is not None:
            values.append(str(action.default))
            if isinstance(action.default, int):
                assert str(action.default) in parameter["helpText"], name
        if action.type is int:
            values.append("7")
            assert not re.search(regex, "seven")
        if not values:
            values = {
                "spacy_model": ["en_core_web_sm"],
                "base_url": ["https://en.wikipedia.org/wiki/"],
            }.get(name, ["gs://bucket/path"])
        for value in values:
            assert re.search(regex, value), (name, value)


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
        "--runner=beam_pipelines.flex_template.launcher.DataflowRunner",
    ]


@pytest.mark.parametrize("name", ["", "index", "serve"])
def test_other_commands_are_refused(monkeypatch, capsys, name):
    monkeypatch.setenv("REALM_COMMAND", name)
    assert launcher.main([]) == 2
    assert capsys.readouterr().err == (
        f"REALM_COMMAND is {name!r}: build the launcher's image with "
        "--build-arg COMMAND= one of chunk, annotate, embed.\n"
    )
