"""What all recipes have in common: groups of numbers, their types, `--set`.

A recipe is a frozen dataclass; fields that belong to one idea are a group, a
frozen dataclass of its own. The type of a field says which values it takes:
`Literal` its choices, `Range` the least and the highest number. Names of
fields are unique within a recipe, over all its groups, so `--set NAME=VALUE`
and metadata.json name a field without its group.
"""

import dataclasses
import functools
import math
import numbers
import typing
from typing import Annotated
from typing import Literal

from realm_tf.errors import InputError


@dataclasses.dataclass(frozen=True)
class Range:
    """What a number of a recipe may be.

    Args:
        least: float.
        highest: float. Defaults to infinity.
    """

    least: float
    highest: float = math.inf


Natural = Annotated[int, Range(0)]
Positive = Annotated[int, Range(1)]
# [CLS], a wordpiece, [SEP]; with a title or a body also the other [SEP].
QueryLength = Annotated[int, Range(3)]
BlockLength = Annotated[int, Range(4)]
Share = Annotated[float, Range(0, 1)]
# What may be dropped of an encoder: not all.
Dropout = Annotated[float, Range(0, 0.99)]
# AdamW changes a weight by about this much a step; above 1 nothing is learned.
LearningRate = Annotated[float, Range(0, 1)]

# Blocks embedded at once on a GPU or TPU, which is busy for milliseconds.
EMBEDDED_ON_ACCELERATORS = 256

# The values that a field of each type accepts.
_KINDS = {int: numbers.Integral, float: numbers.Real, bool: bool}
_WORDS = {"true": True, "false": False, "1": True, "0": False}


@dataclasses.dataclass(frozen=True)
class Group:
    """Fields of a recipe that belong to one idea.

    Raises:
        InputError: if a number is out of its range, or a word is none of the
            choices.
    """

    def __post_init__(self):
        for name, hint in _hints(type(self)).items():
            _check(name, getattr(self, name), hint)


@dataclasses.dataclass(frozen=True)
class Optimizer(Group):
    """How weights are changed.

    Args:
        learning_rate: float. Highest; see `training.optimizers`.
        bias_correction: bool. See `training.optimizers.BertAdamW`. BERT's
            has none; recipes for small budgets were tuned with it.
        gradient_accumulation_steps: int. Steps whose gradients are averaged
            for one change of the weights: a batch of as many times the
            examples, in the memory of one. Losses over a batch (`ict`, `dpr`)
            see no more negatives for it.
        gradient_checkpointing: bool. Keep less in memory and compute it
            again, for larger batches; see `models.transformer_encoder`.
    """

    learning_rate: LearningRate = 1e-5
    bias_correction: bool = False
    gradient_accumulation_steps: Positive = 1
    gradient_checkpointing: bool = False


@dataclasses.dataclass(frozen=True)
class Freezing(Group):
    """What of the encoders does not learn.

    Args:
        freeze_word_embeddings: bool. Keep the embedding tables.
        num_frozen_layers: int. Lowest encoder layers that do not learn.
    """

    freeze_word_embeddings: bool = False
    num_frozen_layers: Natural = 0


@dataclasses.dataclass(frozen=True)
class Encoders(Freezing):
    """How the encoders learn.

    Args:
        dropout: float. Rate in all encoders. 0 is faster to learn from where
            a run is too short to learn anything by heart.
    """

    dropout: Dropout = 0.1


@dataclasses.dataclass(frozen=True)
class Lengths(Group):
    """How much of a text is read.

    Args:
        max_query_length: int. Wordpieces with [CLS] and [SEP].
        max_block_length: int. Wordpieces with [CLS], title and both [SEP].
    """

    max_query_length: QueryLength = 64
    max_block_length: BlockLength = 288


@dataclasses.dataclass(frozen=True)
class Log(Group):
    """How a run is logged.

    Args:
        log_every: int. Steps of one line of log.jsonl, which is their mean.
        tensorboard: bool. Write curves, and samples of what pre-training
            retrieves, for TensorBoard into `tensorboard` of the output.
    """

    log_every: Positive = 10
    tensorboard: bool = False


@dataclasses.dataclass(frozen=True)
class Refresh(Group):
    """How the index is kept close to the block tower.

    Args:
        refresh: str. Who embeds all blocks again: `"process"`, one of its own,
            while training goes on; `"thread"`, so in this process;
            `"sync"`, the trainer, which waits: exact,
            for experiments.
        num_builders: int. Processes of `"process"` on this machine; others may
            join them, see `operations.rebuild_index`, and with 0 only they
            build.
        refresh_every: int. Steps after which the index is made again; 0
            never.
    """

    refresh: Literal["process", "thread", "sync"] = "process"
    num_builders: Natural = 1
    refresh_every: Natural = 500


@dataclasses.dataclass(frozen=True)
class Recipe(Group):
    """Numbers of one training run: a subclass for each kind of training."""

    def flat(self) -> dict:
        """Name to value of all fields, without their groups."""
        found = {}
        for name in _hints(type(self)):
            value = getattr(self, name)
            if isinstance(value, Group):
                found.update(dataclasses.asdict(value))
            else:
                found[name] = value
        return found

    def replace(self, **changes):
        """This recipe with other values.

        Args:
            **changes: by the name of a field, without its group.

        Raises:
            InputError: if a name is unknown, or the field does not accept the
                value.
        """
        own, of_groups = {}, {}
        places = _places(type(self))
        for name, value in changes.items():
            if name not in places:
                raise InputError(
                    f"{name} is no number of this recipe: expected one of "
                    f"{', '.join(places)}."
                )
            group, _ = places[name]
            of_groups.setdefault(group, {})[name] = value
        own = of_groups.pop(None, {})
        for group, values in of_groups.items():
            own[group] = dataclasses.replace(getattr(self, group), **values)
        return dataclasses.replace(self, **own)

    def parse(self, overrides) -> "Recipe":
        """This recipe with the values of `--set`; the last one counts.

        Args:
            overrides: list of str, such as `"num_epochs=1"`.

        Raises:
            InputError: if a name is unknown, or a value is none that the
                field takes.
        """
        places = _places(type(self))
        changes = {}
        for override in overrides:
            name, equals, text = override.partition("=")
            if not equals or name not in places:
                raise InputError(
                    f"--set {override}: expected NAME=VALUE with a name of "
                    f"{', '.join(places)}."
                )
            _, hint = places[name]
            changes[name] = _parse(override, text, hint)
        return self.replace(**changes)


def nearest(recipes: dict, recipe: Recipe) -> tuple[str, tuple[str, ...]]:
    """The options of a command that make a recipe: `--recipe` and `--set`.

    Args:
        recipes: dict. Name to `Recipe`.
        recipe: `Recipe`. Of the kind of one of them.

    Returns:
        The name that needs the fewest changes, and these.

    Raises:
        ValueError: if it is of another kind.
    """
    found = {
        name: tuple(
            f"{key}={value}"
            for key, value in recipe.flat().items()
            if value != each.flat()[key]
        )
        for name, each in recipes.items()
        if type(each) is type(recipe)
    }
    if not found:
        kinds = {type(each).__name__ for each in recipes.values()}
        raise ValueError(
            f"`recipe` must be of {kinds}. Received: recipe={recipe}"
        )
    name = min(found, key=lambda each: len(found[each]))
    return name, found[name]


@functools.cache
def _hints(cls):
    """Name to type of the fields, in order, with what is annotated."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


@functools.cache
def _places(cls):
    """Name to (group, type) of all fields; the recipe's own have no group."""
    found = {}
    for name, hint in _hints(cls).items():
        if isinstance(hint, type) and issubclass(hint, Group):
            for each, kind in _hints(hint).items():
                found[each] = (name, kind)
        else:
            found[name] = (None, hint)
    return found


def _check(name, value, hint):
    limits = None
    if typing.get_origin(hint) is Annotated:
        (limits,), hint = hint.__metadata__, hint.__origin__
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise InputError(
                f"{name} of a recipe must be one of {', '.join(choices)}. "
                f"Received: {name}={value}"
            )
    elif hint in _KINDS:
        is_bool = isinstance(value, bool)
        if not isinstance(value, _KINDS[hint]) or is_bool != (hint is bool):
            raise InputError(
                f"{name} of a recipe must be of type {hint.__name__}. "
                f"Received: {name}={value!r}"
            )
    # Not a number is within no range.
    if limits and not limits.least <= value <= limits.highest:
        raise InputError(
            f"{name} of a recipe must be from {limits.least} to "
            f"{limits.highest}. Received: {name}={value}"
        )


def _parse(override, text, hint):
    """The value that a word of the command line says."""
    if typing.get_origin(hint) is Literal:
        return text
    kind = hint.__origin__ if typing.get_origin(hint) is Annotated else hint
    try:
        return _WORDS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError) as error:
        raise InputError(
            f"--set {override}: expected type {kind.__name__}."
        ) from error
