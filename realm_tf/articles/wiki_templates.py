"""What templates of a wiki show.

Templates are programs of the wiki, and a dump does not run them. Those that show
words of a sentence or cell are in the table `shown` of wikipedia.toml, or
written out here. All others (navigation, citations, notices, pronunciations)
are dropped.
"""

import calendar
import pathlib
import re
import tomllib
from collections.abc import Callable

from realm_tf.articles import table_rows

_TABLES = tomllib.loads(
    pathlib.Path(__file__).with_name("wikipedia.toml").read_text("utf-8")
)


def _names(text):
    return " ".join(text.split()).split(", ")


# Names of sections, elements and templates, by the tables of wikipedia.toml.
NAMES = {
    table: dict.fromkeys(_names(names))
    for table, names in _TABLES.items()
    if isinstance(names, str)
}
# Texts of templates and units by their names.
_TEXTS = {
    table: {
        name: text for text, names in texts.items() for name in _names(names)
    }
    for table, texts in _TABLES.items()
    if isinstance(texts, dict)
}
_FILE = re.compile(r"\.(?:jpe?g|png|svg|gif|tiff?|webp|og[gv]|wav)$", re.I)
_NUMBER = re.compile(r"[-−+]?\.?\d[\d.,+/⁄ e-]*$")
# In a text of the table: the first of some arguments that is there, and after
# "=" what is shown if none is.
_ARGUMENT = re.compile(r"\{([^{}=]*)=?([^{}]*)\}")


def text_of(
    name: str,
    arguments: dict[str, object],
    render: Callable[[object], str],
    separator: str = ", ",
) -> str:
    """The text that a template shows, or `""` to drop the template.

    Args:
        name: str. The template's name, in lower case with single spaces.
        arguments: dict. Name (`"1"`, `"2"`, ... for unnamed ones) to value,
            in the order written.
        render: callable. Makes text of a value.
        separator: str. Between items of a list. Defaults to `", "`.

    Example:

    >>> text_of("convert", {"1": "2850", "2": "km", "3": "mi"}, str)
    '2850 km'
    >>> text_of("sortname", {"1": "Ada", "2": "Lovelace"}, str)
    'Ada Lovelace'
    """
    shown = _TEXTS["shown"].get(name)
    if shown is None and name.startswith(("lang-", "script/")):
        shown = "{1}"
    if shown is not None:
        return _ARGUMENT.sub(
            lambda one: _argument(one, name, arguments, render), shown
        )
    if name.startswith("formatnum:"):
        return name.removeprefix("formatnum:").strip()
    if name in ("as of", "asof"):
        return _as_of({k: render(v).strip() for k, v in arguments.items()})
    values = [
        render(value).strip()
        for key, value in arguments.items()
        if key.isdigit()
    ]
    if name in NAMES["dates"]:
        return _date(*(values + [""] * 3)[:3])
    if name in NAMES["lists"]:
        return separator.join(filter(None, values))
    if not values:
        return ""
    if name in ("convert", "cvt", "conv"):
        return _convert(values)
    if name in ("frac", "sfrac", "fraction"):
        return _fraction(values)
    if name in ("chem", "chem2", "linktext"):
        return "".join(values)
    if name in ("nihongo", "nihongo2", "korean"):
        notes = ", ".join(value for value in values[1:3] if value)
        return f"{values[0]} ({notes})" if notes else values[0]
    return ""


def _argument(match, name, arguments, render):
    for key in match[1].split("|"):
        if key == "name":
            return name.upper()
        if key in arguments:
            text = render(arguments[key])
            if text.strip():
                is_all = match[0] == match.string
                return text if is_all else text.strip()
    return match[2]


def _convert(values):
    """`{{convert|5|to|10|km|mi}}` is "5 to 10 km", as a reader sees it."""
    if not _NUMBER.match(values[0]):
        return ""
    text = values[0]
    rest = values[1:]
    while (
        len(rest) >= 2
        and rest[0] in _TEXTS["ranges"]
        and _NUMBER.match(rest[1] or " ")
    ):
        text += _TEXTS["ranges"][rest[0]] + rest[1]
        rest = rest[2:]
    if not rest or not rest[0]:
        return text
    text += f" {_TEXTS['units'].get(rest[0], rest[0])}"
    return text


def _fraction(values):
    whole = f"{values[0]} " if len(values) > 2 else ""
    return f"{whole}{'/'.join(values[-2:])}"


def _as_of(arguments):
    date = _date(*(arguments.get(key, "") for key in "123"))
    start = "as of" if arguments.get("lc") else "As of"
    return arguments.get("alt") or f"{start} {date}".rstrip()


def _date(year, month, day):
    if month.isdecimal() and 1 <= int(month) <= 12:
        month = calendar.month_name[int(month)]
    return " ".join(filter(None, (day, month, year)))


def is_infobox(name: str) -> bool:
    """Whether a template's name, in lower case, is that of a box of facts."""
    return name.startswith("infobox") or name in NAMES["infoboxes"]


def infobox_lines(arguments: dict[str, str]) -> list[str]:
    """The lines of an infobox.

    Args:
        arguments: dict. Name to text in one line, in the order written.

    Example:

    >>> infobox_lines({"birth_place": "Oslo", "image_size": "200px"})
    ['Birth place: Oslo.']
    """
    lines = []
    for name, text in arguments.items():
        label = " ".join(re.split(r"[\s_-]+", name.strip()))
        if label.isdigit():
            continue
        label = re.sub(r"\s*\d+$", "", label)
        if not text or _FILE.search(text) or _says_how_it_looks(label):
            continue
        lines += table_rows.table_lines(
            [label[:1].upper() + label[1:]], [[text]]
        )
    return lines


def _says_how_it_looks(label):
    label = label.lower()
    return label in NAMES["looks"] or any(
        word.rstrip("0123456789") in NAMES["pictures"] for word in label.split()
    )
