"""Operations as values: one frozen dataclass each.

The fields and the docstring of an operation give the flags and the help of its
command, the arguments of its Python call, the parameters by which its output
resumes, and the command line that is shown.
"""

import dataclasses
import functools
import os
import shlex
import types
import typing
from collections.abc import Iterable
from typing import Annotated
from typing import ClassVar
from typing import Literal
from typing import NamedTuple

import tyro

from realm_tf.artifacts import artifact
from realm_tf.artifacts.directory import Artifact
from realm_tf.artifacts.directory import File
from realm_tf.errors import InputError

# A flag that may be given several times, such as `--set`.
Repeated = tyro.conf.UseAppendAction[tuple[str, ...]]
# Options of a pipeline's runner: what the command line has beyond the flags.
BeamOptions = Annotated[tuple[str, ...], tyro.conf.Suppress]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation with all arguments that decide its output.

    A subclass states `command`, `makes` and its fields, each with a docstring
    below it, and implements `run`. A field of an `Artifact` class takes a path
    as well; a field of a `Literal` type only the words that it names. The
    output directory is the field `output`.

    Attributes:
        command: str. The subcommand of `realm`; `None` for what only Python
            and other operations do.
        makes: class. The `Artifact` that `output` is, or `None`.
    """

    command: ClassVar[str | None] = None
    makes: ClassVar[type[Artifact] | None] = None
    # Fields that change how the work is done, and nothing that comes out, or
    # of which other parameters or parents say all that does.
    manner: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self):
        for field, value in self._values():
            if field.is_many and isinstance(value, str | os.PathLike):
                value = (value,)
            convert = field.kind.of if field.kind else _without_path_type
            if isinstance(value, list | tuple):
                value = tuple(map(convert, value))
            else:
                value = convert(value)
            object.__setattr__(self, field.name, value)
            for each in _items(value):
                # `int | Literal["none"]` takes numbers, too.
                is_word = field.choices and not isinstance(each, int)
                if is_word and each not in (*field.choices, None):
                    raise InputError(
                        f"{field.flag} must be one of "
                        f"{', '.join(field.choices)}. Received: {each!r}"
                    )

    def _values(self):
        """Each `_Field` and its value."""
        for field in _fields(type(self)):
            yield field, getattr(self, field.name)

    def run(self):
        """Does it; returns the object that was made, or what was found."""
        raise NotImplementedError

    def report(self, result) -> str:
        """The text that the command prints after `run` returned `result`."""
        return repr(result)

    def status(self, result) -> int:
        """The command's exit status: 0, or 1 if a check failed."""
        return 0

    @property
    def result(self):
        """The object at `output`, whether it has been made or not."""
        return self.makes(self.output)

    def inputs(self) -> dict[str, Artifact | File]:
        """Name to each directory and file of questions that is read."""
        found = {}
        for field, value in self._values():
            if field.kind and isinstance(value, tuple):
                for number, each in enumerate(value):
                    found[f"{field.name} {number}"] = each
            elif field.kind and value is not None:
                found[field.name] = value
        return found

    def parameters(self) -> dict:
        """JSON values that decide the content of `output`."""
        left_out = {"output", "beam_options", *self.manner}
        return {
            field.name: value
            for field, value in self._values()
            if field.name not in left_out and not field.kind
        }

    def parents(self) -> dict:
        """Name to fingerprint of what `output` is made from."""
        return {
            name: each.fingerprint
            for name, each in self.inputs().items()
            if name not in self.manner
        }

    def contents(self) -> str | None:
        """Digest of input files that `parameters` only name, or `None`."""
        return None

    def reopened(self) -> "Operation":
        """The same operation, whose inputs are read again from the disk."""
        paths = {}
        for field, value in self._values():
            if field.kind and isinstance(value, tuple):
                paths[field.name] = tuple(map(str, value))
            elif field.kind and value is not None:
                paths[field.name] = str(value)
        return dataclasses.replace(self, **paths)

    def write(self, output: str | None = None, **manner: bool):
        """Opens `output` to be written; see `artifact.write`."""
        return artifact.write(
            output or self.output,
            kind=self.makes.kind,
            parameters=self.parameters(),
            parents=self.parents(),
            **manner,
        )

    def check_least(self, least: int, *names: str) -> None:
        """Refuses numbers that are too small; `None` is no number.

        Args:
            least: int. The smallest value allowed.
            *names: str. Fields.
        """
        for field, value in self._values():
            if field.name in names and value is not None and value < least:
                raise InputError(
                    f"{field.flag} {value}: expected {least} or more."
                )

    def refuse_given(self, names: Iterable[str], what: str) -> None:
        """Refuses options that would have no effect.

        Args:
            names: iterable of str. Fields.
            what: str. The case that ignores them, in the user's words.
        """
        for field, value in self._values():
            if field.name in names and value != field.default:
                raise InputError(
                    f"{field.flag} is not for {what}: leave it out."
                )

    def command_line(self) -> str:
        """The same operation as a command of `realm`, quoted for a shell.

        Without a command it is the Python value.
        """
        if self.command is None:
            return repr(self)
        words = ["realm", self.command]
        for field, value in self._values():
            if value == field.default or field.name == "beam_options":
                continue
            given = list(map(str, _items(value)))
            if isinstance(value, bool):
                words.append(field.flag if value else f"--no-{field.flag[2:]}")
            elif _POSITIONAL in field.marks:
                words += given
            elif field.marks == Repeated.__metadata__:
                for each in given:
                    words += [field.flag, each]
            else:
                words += [field.flag, *given]
        words += getattr(self, "beam_options", ())
        return shlex.join(words)


def count_lines(counts: dict[str, int]) -> str:
    """Counts, one a line."""
    width = max(map(len, counts))
    return "\n".join(f"{n:<{width}}  {v:>14,}" for n, v in counts.items())


class _Field(NamedTuple):
    """A field of an operation.

    Args:
        name: str.
        default: its value if it is not given.
        flag: str. The option of the command.
        kind: class. Of the `Artifact` or `File` that it holds, or `None`.
        choices: tuple of str. The words that it may be, or none.
        is_many: bool. Whether it is a tuple.
        marks: tuple. What its type is annotated with.
    """

    name: str
    default: object
    flag: str
    kind: type | None
    choices: tuple[str, ...]
    is_many: bool
    marks: tuple


@functools.cache
def _fields(cls):
    """The `_Field` of each field of a class."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for field in dataclasses.fields(cls):
        parts = list(parts_of(hints[field.name]))
        marks = getattr(hints[field.name], "__metadata__", ())
        names = [getattr(mark, "name", None) for mark in marks]
        flag = next(filter(None, names), field.name)
        kinds = [
            part
            for part in parts
            if isinstance(part, type) and issubclass(part, Artifact | File)
        ]
        words = [
            typing.get_args(part)
            for part in parts
            if typing.get_origin(part) is Literal
        ]
        found.append(
            _Field(
                field.name,
                field.default,
                flag=f"--{flag.strip('_').replace('_', '-')}",
                kind=next(iter(kinds), None),
                choices=next(iter(words), ()),
                is_many=any(typing.get_origin(part) is tuple for part in parts),
                marks=marks,
            )
        )
    return found


def flags_of_many(cls: type[Operation]) -> set[str]:
    """The options of a class that take several values."""
    return {field.flag for field in _fields(cls) if field.is_many}


def _items(value):
    return value if isinstance(value, tuple) else (value,)


def _without_path_type(value):
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def parts_of(hint):
    """A type and those it is made of: `X` of `X | None`, `tuple[X, ...]`."""
    yield hint
    origin = typing.get_origin(hint)
    if origin in (Annotated, tuple, typing.Union, types.UnionType):
        for each in typing.get_args(hint):
            yield from parts_of(each)


_POSITIONAL = tyro.conf.Positional[str].__metadata__[0]
