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
        kinds = self._artifact_fields()
        for field in dataclasses.fields(self):
            hint = _hints(type(self))[field.name]
            value = getattr(self, field.name)
            # One of what there may be several of.
            if isinstance(value, str | os.PathLike) and any(
                typing.get_origin(part) is tuple for part in parts_of(hint)
            ):
                value = (value,)
            kind = kinds.get(field.name)
            convert = kind.of if kind else _without_path_type
            if isinstance(value, list | tuple):
                value = tuple(map(convert, value))
            else:
                value = convert(value)
            object.__setattr__(self, field.name, value)
            self._check_choice(field.name)

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
        for name in self._artifact_fields():
            value = getattr(self, name)
            if isinstance(value, tuple):
                found.update(
                    {f"{name} {i}": each for i, each in enumerate(value)}
                )
            elif value is not None:
                found[name] = value
        return found

    def parameters(self) -> dict:
        """JSON values that decide the content of `output`."""
        left_out = {"output", "beam_options", *self.manner}
        left_out |= set(self._artifact_fields())
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in left_out
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
        for name in self._artifact_fields():
            value = getattr(self, name)
            if isinstance(value, tuple):
                paths[name] = tuple(map(str, value))
            elif value is not None:
                paths[name] = str(value)
        return dataclasses.replace(self, **paths)

    def write(self, output: str | None = None, *, resumable: bool = False):
        """Opens `output` to be written; see `artifact.write`."""
        return artifact.write(
            output or self.output,
            kind=self.makes.kinds[0],
            parameters=self.parameters(),
            parents=self.parents(),
            resumable=resumable,
        )

    def check_least(self, least: int, *names: str) -> None:
        """Refuses numbers that are too small; `None` is no number.

        Args:
            least: int. The smallest value allowed.
            *names: str. Fields.
        """
        for name in names:
            value = getattr(self, name)
            if value is not None and value < least:
                flag = _flag(name, _hints(type(self))[name])
                raise InputError(f"{flag} {value}: expected {least} or more.")

    def refuse_given(self, names: Iterable[str], what: str) -> None:
        """Refuses options that would not be heeded.

        Args:
            names: iterable of str. Fields.
            what: str. The case that ignores them, in the user's words.
        """
        for field in dataclasses.fields(self):
            if field.name not in names:
                continue
            if getattr(self, field.name) != field.default:
                flag = _flag(field.name, _hints(type(self))[field.name])
                raise InputError(f"{flag} is not for {what}: leave it out.")

    def command_line(self) -> str:
        """The same operation as a command of `realm`, quoted for a shell.

        Without a command it is the Python call.
        """
        if self.command is None:
            return self._python_call()
        words = ["realm", self.command]
        hints = _hints(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value == field.default or field.name == "beam_options":
                continue
            hint = hints[field.name]
            name = _flag(field.name, hint)
            given = map(str, value if isinstance(value, tuple) else (value,))
            if isinstance(value, bool):
                words.append(name if value else f"--no-{name[2:]}")
            elif _POSITIONAL in _extras(hint):
                words += given
            elif hint == Repeated:
                for each in given:
                    words += [name, each]
            else:
                words += [name, *given]
        words += getattr(self, "beam_options", ())
        return shlex.join(words)

    def _python_call(self):
        arguments = [
            f"{field.name}={_python(value)}"
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        ]
        name = type(self).__name__
        return f"realm_tf.{name}({', '.join(arguments)}).run()"

    def _check_choice(self, name):
        """Refuses a word that the field's type does not name."""
        hint, value = _hints(type(self))[name], getattr(self, name)
        choices = [
            choice
            for part in parts_of(hint)
            if typing.get_origin(part) is Literal
            for choice in typing.get_args(part)
        ]
        # `int | Literal["none"]` takes numbers, too.
        others = tuple(each for each in parts_of(hint) if type(each) is type)
        for each in value if isinstance(value, tuple) else [value]:
            if each is None or isinstance(each, others):
                continue
            if choices and each not in choices:
                raise InputError(
                    f"{_flag(name, hint)} must be one of {', '.join(choices)}."
                    f" Received: {each!r}"
                )

    @classmethod
    @functools.cache
    def _artifact_fields(cls):
        """Name to class of the fields that hold objects."""
        return {
            field.name: part
            for field in dataclasses.fields(cls)
            for part in parts_of(_hints(cls)[field.name])
            if isinstance(part, type) and issubclass(part, Artifact | File)
        }


def count_lines(counts: dict[str, int]) -> str:
    """Counts, one a line."""
    width = max(map(len, counts))
    return "\n".join(f"{n:<{width}}  {v:>14,}" for n, v in counts.items())


@functools.cache
def _hints(cls):
    return typing.get_type_hints(cls, include_extras=True)


def _without_path_type(value):
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def parts_of(hint):
    """A type and those it is made of: `X` of `X | None`, `tuple[X, ...]`."""
    yield hint
    origin = typing.get_origin(hint)
    if origin in (Annotated, tuple, typing.Union, types.UnionType):
        for each in typing.get_args(hint):
            yield from parts_of(each)


def _extras(hint):
    return hint.__metadata__ if typing.get_origin(hint) is Annotated else ()


def _flag(name, hint):
    for extra in _extras(hint):
        name = getattr(extra, "name", None) or name
    return f"--{name.strip('_').replace('_', '-')}"


_POSITIONAL = _extras(tyro.conf.Positional[str])[0]


def _python(value):
    """A field's value as Python source; objects are given by their paths."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_python, value))}]"
    if isinstance(value, Artifact | File):
        value = value.path
    return repr(value)
