"""What the common inline templates of Wikipedia show in a sentence.

Templates are programs of the wiki that a dump does not run. The few that
stand for words of a sentence are written out here, with their names in
wikipedia.toml; all others (infoboxes, navigation, citations, notices,
pronunciations) are dropped.
"""

import calendar
import re
from collections.abc import Callable

from realm_tf.articles import wikipedia

_NUMBER = re.compile(r"[-−+]?\.?\d[\d.,+/⁄ e-]*$")


def template_text(
    name: str, arguments: dict[str, object], render: Callable[[object], str]
) -> str:
    """The text that a template shows, or `""` if it is to be dropped.

    Args:
        name: str. The template's name as written.
        arguments: dict. Name (`"1"`, `"2"`, ... for unnamed ones) to value,
            in the order written.
        render: callable. Makes text of a value.

    Returns:
        str.

    Example:

    >>> template_text("Convert", {"1": "2850", "2": "km", "3": "mi"}, str)
    '2850 km'
    """
    name = " ".join(name.replace("_", " ").split()).lower()
    positional = [value for key, value in arguments.items() if key.isdigit()]
    if name in wikipedia.LITERALS:
        return wikipedia.LITERALS[name]
    if name.startswith("formatnum:"):
        return name.removeprefix("formatnum:").strip()
    if name in ("as of", "asof"):
        return _as_of({k: render(v).strip() for k, v in arguments.items()})
    if not positional and "1" not in arguments:
        return "c." if name in ("circa", "c.", "ca.") else ""
    if name in wikipedia.SHOW_FIRST or name.startswith(("lang-", "script/")):
        return render(positional[0])
    if name in wikipedia.SHOW_SECOND:
        return render(positional[1]) if len(positional) > 1 else ""
    if name in wikipedia.SHOW_LAST:
        return render(positional[-1])
    if name in wikipedia.QUOTES:
        return f"\n\n{render(positional[0])}\n\n"
    if name in wikipedia.PREFIXES:
        return wikipedia.PREFIXES[name] + render(positional[0]).strip()
    values = [render(value).strip() for value in positional]
    if name in ("convert", "cvt", "conv"):
        return _convert(values)
    if name in ("frac", "sfrac", "fraction"):
        return _fraction(values)
    if name == "val":
        return _value(values, arguments, render)
    if name in ("chem", "chem2", "linktext"):
        return "".join(values)
    if name in ("nihongo", "nihongo2", "korean"):
        notes = ", ".join(value for value in values[1:3] if value)
        return f"{values[0]} ({notes})" if notes else values[0]
    if name == "angbr":
        return f"⟨{values[0]}⟩"
    if name in wikipedia.SHIPS:
        return f"{name.upper()} {values[0]}"
    if name == "ship":
        return " ".join(value for value in values[:2] if value)
    return ""


def fact_text(
    name: str, arguments: dict[str, object], render: Callable[[object], str]
) -> str | None:
    """The text of a template that stands in tables and infoboxes alone.

    Args: as of `template_text`.

    Returns:
        str, a line for each value; `None` if it is no such template.

    Example:

    >>> fact_text("Birth date", {"1": "1956", "2": "7", "3": "9"}, str)
    '9 July 1956'
    """
    name = " ".join(name.replace("_", " ").split()).lower()
    if name in wikipedia.FACT_DATES:
        values = [render(arguments.get(key, "")).strip() for key in "123"]
        return _date(*values)
    if name in wikipedia.FACT_LISTS:
        return "\n".join(
            render(value) for key, value in arguments.items() if key.isdigit()
        )
    return None


def _convert(values):
    """`{{convert|5|to|10|km|mi}}` is "5 to 10 km", as a reader sees it."""
    if not _NUMBER.match(values[0]):
        return ""
    text = values[0]
    rest = values[1:]
    while (
        len(rest) >= 2
        and rest[0] in wikipedia.RANGES
        and _NUMBER.match(rest[1] or " ")
    ):
        text += wikipedia.RANGES[rest[0]] + rest[1]
        rest = rest[2:]
    if not rest or not rest[0]:
        return text
    text += f" {wikipedia.UNITS.get(rest[0], rest[0])}"
    if len(rest) >= 3 and (rest[0], rest[2]) in wikipedia.SUBUNITS:
        text += f" {rest[1]} {rest[2]}"
    return text


def _fraction(values):
    if len(values) == 1:
        return f"1/{values[0]}"
    whole = f"{values[0]} " if len(values) > 2 else ""
    return f"{whole}{values[-2]}/{values[-1]}"


def _value(values, arguments, render):
    text = " ± ".join(value for value in values[:2] if value)
    exponent = arguments.get("e")
    if exponent is not None:
        text += f"×10^{render(exponent).strip()}"
    for key in ("u", "ul", "up"):
        if key in arguments:
            text += f" {render(arguments[key]).strip()}"
    return text


def _as_of(arguments):
    if arguments.get("alt"):
        return arguments["alt"]
    date = _date(*(arguments.get(key, "") for key in "123"))
    start = "since" if "since" in arguments else "as of"
    if not arguments.get("lc"):
        start = start.capitalize()
    return f"{start} {date}".rstrip()


def _date(year, month, day):
    if month.isdecimal() and 1 <= int(month) <= 12:
        month = calendar.month_name[int(month)]
    return " ".join(filter(None, (day, month, year)))
