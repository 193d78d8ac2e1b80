"""What this project publishes and how it was measured: reproductions.yaml.

One file that both prints and checks, after the idea of pyserini's two-click
reproductions (castorini/pyserini, pyserini/2cr). An entry:

    tagger-rules:
      commands:                     # one after the other, without a shell
        - python benchmarks/tagger_quality.py
      minutes: 0.2
      hardware: two cores of a 2.5 GHz Xeon
      needs: []                     # data_dir, wheel, peer PACKAGE
      expect:
        - figure: dates, precision and recall
          published:                # file, and a quote that has the numbers
            README.md: "dates, `rules` | 0.981 | 1.000"
          from: stdout              # of the last command; command-1.stdout of
                                    # the first; or a file (JSON, JSONL)
          values:                   # path into the JSON: number as published
            rules.dates.precision: 0.981
            rules.dates.recall: 1.0
                                    # or, where the quote has no others, only
                                    # the paths of its numbers in their order:
          # values: rules.dates.{precision,recall}
          tolerance: 0.0005         # or "5 %", or machine: shown, not judged
          divide_by: 1000           # or a path; what the unit asks for

Commands begin with `realm` or `python SCRIPT.py` and are run at the root, that
is the directory of the file. `{output}` is a directory of the entry's own,
`{data_dir}` and `{wheel}` are given by whoever reproduces.
"""

import dataclasses
import math
import pathlib
import re
import shlex

import yaml

from realm_tf.errors import InputError

FILE = "reproductions.yaml"
STDOUT = "stdout"
# What differs from machine to machine, and is not judged.
MACHINE = "machine"
PLACEHOLDERS = ("output", "data_dir", "wheel")
PEER = "peer"

_ENTRY_KEYS = ("commands", "minutes", "hardware", "needs", "expect")
_FIGURE_KEYS = ("figure", "published", "from", "values", "tolerance")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_SHARE = re.compile(r"(\d+(?:\.\d+)?) ?%")
_ALTERNATIVES = re.compile(r"\{([^{}]*)\}")
_NUMBER = re.compile(
    r"(?<![\w.@])(?P<number>[-+]?\d[\d,]*(?:\.\d+)?)(?P<percent> ?%)?"
)
_REQUIRED = object()


@dataclasses.dataclass(frozen=True)
class Figure:
    """One published number.

    Args:
        name: str. What it is of.
        published: dict. File (relative to the root) to a quote with the
            number.
        source: str. `"stdout"`, or a file below the entry's directory, such
            as `"command-1.stdout"`.
        path: str. Keys and positions in its JSON, joined by dots.
        value: float. As published.
        tolerance: float or `None`. The largest difference, in the unit of
            `value`; `None` if it is the machine's and not judged.
        tolerance_text: str. As it stands in the file.
        divide_by: float or str. What the number in the JSON is divided by;
            a str is a path.
    """

    name: str
    published: dict[str, str]
    source: str
    path: str
    value: float
    tolerance: float | None
    tolerance_text: str
    divide_by: float | str = 1.0

    @property
    def tolerance_mark(self) -> str:
        """The tolerance as it is read behind a number."""
        if self.tolerance is None:
            return "(the machine's)"
        return f"± {self.tolerance_text}"

    def accepts(self, got: float) -> bool:
        """Whether a number is near enough to the published one."""
        # What float64 makes of decimals must not decide.
        slack = 1e-9 * max(1.0, abs(self.value))
        return abs(got - self.value) <= self.tolerance + slack


@dataclasses.dataclass(frozen=True)
class Entry:
    """Figures that the same commands produce.

    Args:
        name: str.
        commands: tuple of str. With placeholders.
        figures: tuple of `Figure`.
        minutes: float. All commands together, on `hardware`.
        hardware: str. What the figures were measured on.
        needs: tuple of str. `"data_dir"`, `"wheel"`, `"peer PACKAGE"`.
    """

    name: str
    commands: tuple[str, ...]
    figures: tuple[Figure, ...]
    minutes: float
    hardware: str
    needs: tuple[str, ...]

    @property
    def peers(self) -> tuple[str, ...]:
        """Packages that are measured beside ours."""
        return tuple(
            need.removeprefix(f"{PEER} ")
            for need in self.needs
            if need.startswith(f"{PEER} ")
        )


def split_command(command: str, values: dict[str, str]) -> list[str]:
    """The words of a command, with what the placeholders stand for.

    Args:
        command: str. Of an entry.
        values: dict. Placeholder, without braces, to text.

    Returns:
        list of str. A value is one word with what it is written together
        with, whatever spaces it holds.
    """
    return [
        _PLACEHOLDER.sub(lambda match: values[match[1]], word)
        for word in shlex.split(command)
    ]


def read_entries(path: str) -> dict[str, Entry]:
    """Reads reproductions.yaml.

    Args:
        path: str.

    Returns:
        dict of name to `Entry`, in the order of the file.

    Raises:
        InputError: if it is not what it should be; it names entry and key.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.load(file, _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path} is no YAML: {error}.") from error
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path} must map names to entries; it holds none.")
    return {
        str(name): _read_entry(name, body, path)
        for name, body in content.items()
    }


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, of which PyYAML keeps the last."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None,
                    None,
                    f"the key {key.value!r} stands twice",
                    key.start_mark,
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Part:
    """A mapping of the file, which knows where it stands."""

    def __init__(self, content, where, known):
        self._where = where
        if not isinstance(content, dict):
            raise self.error("", f"must be a mapping, not {content!r}")
        self._content = content
        for key in content:
            if key not in known:
                raise self.error(
                    key, f"is unknown; there are {', '.join(known)}"
                )

    def error(self, key, text):
        """An `InputError` that says where."""
        key = f", key {key}" if key else ""
        return InputError(f"{self._where}{key}: {text}.")

    def take(self, key, is_right, expected, default=_REQUIRED):
        """The value of a key, if it is right."""
        value = self._content.get(key, default)
        if value is _REQUIRED:
            raise self.error(key, f"is missing; expected {expected}")
        if not is_right(value):
            raise self.error(key, f"expected {expected}, not {value!r}")
        return value

    def take_text(self, key):
        """A text that is not empty."""
        return self.take(key, _is_text, "a text")


def _read_entry(name, body, path):
    where = f"{path}, entry {name}"
    part = _Part(body, where, _ENTRY_KEYS)
    if not _NAME.fullmatch(str(name)):
        raise part.error("", "a name has small letters, digits and hyphens")
    needs = part.take(
        "needs",
        lambda found: isinstance(found, list) and all(map(_is_need, found)),
        f"a list of data_dir, wheel, {PEER} PACKAGE",
    )
    commands = part.take(
        "commands", _is_texts, "a list of commands, each a text"
    )
    _check_commands(commands, needs, part)
    groups = part.take(
        "expect",
        lambda found: isinstance(found, list) and found,
        "a list of figures",
    )
    figures = [
        figure
        for number, group in enumerate(groups, start=1)
        for figure in _read_figures(group, f"{where}, figure {number}")
    ]
    if all(figure.tolerance is None for figure in figures):
        raise part.error("expect", "has no figure that can be judged")
    return Entry(
        name=str(name),
        commands=tuple(commands),
        figures=tuple(figures),
        minutes=part.take(
            "minutes", lambda found: _is_number(found) and found > 0, "minutes"
        ),
        hardware=part.take_text("hardware"),
        needs=tuple(needs),
    )


def _check_commands(commands, needs, part):
    used = set()
    for command in commands:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise part.error("commands", f"{command!r}: {error}") from error
        is_script = words[0] == "python" and words[1:2] != []
        if words[0] != "realm" and not (is_script and words[1].endswith(".py")):
            raise part.error(
                "commands",
                f"{command!r} must begin with `realm` or `python SCRIPT.py`",
            )
        used.update(_PLACEHOLDER.findall(command))
    for name in sorted(used - set(PLACEHOLDERS)):
        raise part.error(
            "commands",
            f"{{{name}}} is unknown; there are {', '.join(PLACEHOLDERS)}",
        )
    for name in PLACEHOLDERS[1:]:
        if (name in used) != (name in needs):
            raise part.error(
                "needs",
                f"{name} belongs there if and only if a command has {{{name}}}",
            )


def _read_figures(group, where):
    part = _Part(group, where, (*_FIGURE_KEYS, "divide_by"))
    name, tolerance = part.take_text("figure"), _tolerance(part)
    published = part.take(
        "published",
        lambda found: (
            isinstance(found, dict)
            and bool(found)
            and all(map(_is_text, [*found, *found.values()]))
        ),
        "a mapping of files to quotes",
    )
    source = part.take_text("from")
    if source != STDOUT and ".." in pathlib.PurePath("/x", source).parts:
        raise part.error("from", f"{source} is not below the output")
    values = part.take(
        "values",
        lambda found: _is_text(found) or _is_numbers_by_path(found),
        "a mapping of paths to numbers, or paths of the quote's numbers",
    )
    if isinstance(values, str):
        values = _in_order(values, published, part)
    divide_by = part.take(
        "divide_by",
        lambda found: _is_text(found) or (_is_number(found) and found != 0),
        "a number other than 0, or a path",
        default=1.0,
    )
    for path, value in values.items():
        share = _SHARE.fullmatch(str(tolerance))
        if tolerance == MACHINE:
            allowed = None
        elif share:
            allowed = abs(value) * float(share[1]) / 100
        else:
            allowed = float(tolerance)
        yield Figure(
            name=name,
            published=published,
            source=source,
            path=path,
            value=float(value),
            tolerance=allowed,
            tolerance_text=str(tolerance),
            divide_by=divide_by,
        )


def _in_order(pattern, published, part):
    """Paths that `{a,b}` stands for, and the numbers of each quote."""
    paths = _expand(pattern)
    for name, quote in published.items():
        found = numbers(quote)
        if len(found) != len(paths):
            raise part.error(
                "values",
                f"{len(paths)} paths for the {len(found)} numbers of "
                f"{quote!r} in {name}",
            )
    return dict(zip(paths, found, strict=True))


def _expand(pattern):
    match = _ALTERNATIVES.search(pattern)
    if not match:
        return [pattern]
    before, after = pattern[: match.start()], _expand(pattern[match.end() :])
    return [
        f"{before}{one}{rest}" for one in match[1].split(",") for rest in after
    ]


def numbers(text: str) -> list[float]:
    """The numbers in a text, those of "F1" and "recall@5" aside.

    A percentage is there twice, as it is written and as a share.

    Example:
        >>> numbers("F1 0.887, @5 -0.25, 1,293 blocks, 14 %")
        [0.887, -0.25, 1293.0, 14.0, 0.14]
    """
    found = []
    for match in _NUMBER.finditer(text):
        found.append(float(match["number"].replace(",", "")))
        if match["percent"]:
            found.append(found[-1] / 100)
    return found


def _tolerance(part):
    return part.take(
        "tolerance",
        lambda found: (
            (_is_number(found) and found >= 0)
            or found == MACHINE
            or (isinstance(found, str) and _SHARE.fullmatch(found))
        ),
        f"a number of at least 0, a share such as '5 %', or {MACHINE!r}",
    )


def _is_text(value):
    return isinstance(value, str) and bool(value.strip())


def _is_texts(value):
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


def _is_numbers_by_path(value):
    return (
        isinstance(value, dict)
        and bool(value)
        and all(map(_is_text, value))
        and all(map(_is_number, value.values()))
    )


def _is_number(value):
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def _is_need(value):
    return value in PLACEHOLDERS[1:] or (
        isinstance(value, str)
        and re.fullmatch(rf"{PEER} [A-Za-z_][\w.]*", value) is not None
    )
