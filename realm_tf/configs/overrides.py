"""Recipes by name, with `--set NAME=VALUE`."""

import dataclasses

from realm_tf.errors import InputError


def add_arguments(parser, recipes: dict, *, default: str) -> None:
    """Adds `--recipe` and `--set` (as `overrides`) to a command.

    Args:
        parser: `argparse.ArgumentParser`.
        recipes: dict. As `get_recipe`.
        default: str. A key of `recipes`.
    """
    parser.add_argument(
        "--recipe",
        default=default,
        help=f"one of {', '.join(recipes)} (default: {default})",
    )
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="change a number of the recipe; may be given several times",
    )


def get_recipe(recipes: dict, name: str, overrides: list[str] = ()):
    """A recipe by name, with `name=value` changes.

    Args:
        recipes: dict. Name to an instance of a frozen dataclass whose fields
            are int, float, bool or str.
        name: str. A key of `recipes`.
        overrides: list of str, such as `"num_epochs=1"`.

    Returns:
        An instance of the same dataclass.

    Raises:
        InputError: if a name is unknown or a value of the wrong type.
    """
    if name not in recipes:
        raise InputError(
            f"--recipe must be one of {', '.join(recipes)}. Received: {name}"
        )
    fields = {f.name: f.type for f in dataclasses.fields(recipes[name])}
    changes = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or key not in fields:
            raise InputError(
                f"--set {override}: expected NAME=VALUE with a name of "
                f"{', '.join(fields)}."
            )
        changes[key] = _parse(key, value, fields[key])
    return dataclasses.replace(recipes[name], **changes)


def _parse(key, value, kind):
    reason = InputError(f"--set {key}={value}: expected type {kind.__name__}.")
    if kind is bool:
        choices = {"true": True, "false": False, "1": True, "0": False}
        if value.lower() not in choices:
            raise reason
        return choices[value.lower()]
    try:
        return kind(value)
    except ValueError as error:
        raise reason from error
