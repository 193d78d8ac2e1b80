"""Recipes: by name, with `--set NAME=VALUE`, and the ranges of their numbers."""

import dataclasses

from realm_tf.errors import InputError

# What may be dropped of an encoder: not all.
DROPOUT = (0, 0.99)


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


def check_least(recipe, **least: int) -> None:
    """Whether numbers of a recipe are large enough.

    Args:
        recipe: an instance of a dataclass.
        **least: int. The least that each field may be.

    Raises:
        InputError: if one is less.
    """
    for name, number in least.items():
        if getattr(recipe, name) < number:
            raise InputError(
                f"{name} of a recipe must be at least {number}. "
                f"Received: {name}={getattr(recipe, name)}"
            )


def check_range(recipe, **ranges: tuple[float, float]) -> None:
    """Whether numbers of a recipe are within their ranges.

    Args:
        recipe: an instance of a dataclass.
        **ranges: (least, highest). What each field may be.

    Raises:
        InputError: if one is outside.
    """
    for name, (least, highest) in ranges.items():
        if not least <= getattr(recipe, name) <= highest:
            raise InputError(
                f"{name} of a recipe must be from {least} to {highest}. "
                f"Received: {name}={getattr(recipe, name)}"
            )


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
