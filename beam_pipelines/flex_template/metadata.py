"""Writes what Dataflow must know of each Flex Template's parameters.

    python -m realm_tf.beam_pipelines.flex_template.metadata

They are the fields of the operations; COMMAND_metadata.json is written beside
this file.
"""

import dataclasses
import json
import pathlib
import typing
from typing import Literal

import docstring_parser

from realm_tf import cli
from realm_tf.beam_pipelines.flex_template import launcher
from realm_tf.operations.annotate import CUTTING
from realm_tf.operations.operation import Operation
from realm_tf.operations.operation import parts_of

FOLDER = pathlib.Path(__file__).parent
# Articles to annotate would need two jobs, one after the other.
_LEFT_OUT = {"annotate": {"input", *CUTTING}}
_PATHS = {"input", "output", "vocab", "multistream_index"}


def template(kind: type[Operation]) -> dict:
    """The metadata of a command's template.

    Args:
        kind: class. An operation that goes on where it was interrupted.

    Returns:
        dict: `name`, `description` and, for each field that a word can say,
        `parameters`.
    """
    documentation = docstring_parser.parse_from_object(kind)
    helps = {each.arg_name: each.description for each in documentation.params}
    left_out = _LEFT_OUT.get(kind.command, set())
    return {
        "name": f"realm {kind.command}",
        "description": f"{documentation.short_description} When the job is "
        f"done, `realm {kind.command}` with the same arguments and no runner "
        "completes the output.",
        "parameters": [
            _parameter(field, hint, helps[field.name], bool(left_out))
            for field, hint in _fields(kind)
            if field.name not in left_out
        ],
    }


def _fields(kind):
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        # A template gives every parameter a value, which flags do not take.
        if field.name != "beam_options" and hints[field.name] is not bool:
            yield field, list(parts_of(hints[field.name]))


def _parameter(field, hint, text, has_one_source):
    found = {
        "name": field.name,
        "label": field.name.replace("_", " ").capitalize(),
        "helpText": " ".join(text.split()),
        "regexes": [_regex(field.name, hint)],
    }
    is_needed = field.default is dataclasses.MISSING
    # Of two sources, the other is left out.
    if not is_needed and not (has_one_source and field.name == "blocks"):
        found["isOptional"] = True
        if field.default is not None:
            found["helpText"] += f" (default: {field.default})"
    return found


def _regex(name, hint):
    for each in hint:
        if typing.get_origin(each) is Literal:
            return f"^({'|'.join(typing.get_args(each))})$"
        if isinstance(each, type) and hasattr(each, "metavar"):
            return "^gs://.+$"
    if name in _PATHS:
        return "^gs://.+$"
    return "^[0-9]+$" if int in hint else "^.+$"


def write() -> None:
    """Writes the file of each command."""
    for command in launcher.COMMANDS:
        text = json.dumps(template(cli.operation_class(command)), indent=2)
        path = FOLDER / f"{command}_metadata.json"
        path.write_text(f"{text}\n")


if __name__ == "__main__":
    write()
