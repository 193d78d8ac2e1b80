"""Names in the markup of Wikipedia: sections, elements, templates, units.

They are in wikipedia.toml, which says what each is for.
"""

import pathlib
import tomllib

_TABLES = tomllib.loads(
    pathlib.Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)


def _names(text):
    return " ".join(text.split()).split(", ")


def _by_name(table):
    """Name to text, of a table of text to names."""
    return {
        name: text
        for text, names in _TABLES[table].items()
        for name in _names(names)
    }


DROPPED_SECTIONS = _names(_TABLES["dropped_sections"])
# Of regular expressions: any of these.
DROPPED_ELEMENTS = "|".join(_names(_TABLES["dropped_elements"]))
TAGS = "|".join(_names(_TABLES["tags"]))
SHOW_FIRST = frozenset(_names(_TABLES["show_first"]))
SHOW_SECOND = frozenset(_names(_TABLES["show_second"]))
SHOW_LAST = frozenset(_names(_TABLES["show_last"]))
QUOTES = frozenset(_names(_TABLES["quotes"]))
SHIPS = frozenset(_names(_TABLES["ships"]))
INFOBOXES = frozenset(_names(_TABLES["infoboxes"]))
PICTURES = frozenset(_names(_TABLES["pictures"]))
LOOKS = frozenset(_names(_TABLES["looks"]))
FACT_DATES = frozenset(_names(_TABLES["fact_dates"]))
FACT_LISTS = frozenset(_names(_TABLES["fact_lists"]))
LITERALS = _by_name("literals")
PREFIXES = _by_name("prefixes")
RANGES = _by_name("ranges")
UNITS = _by_name("units")
SUBUNITS = frozenset(map(tuple, _TABLES["subunits"]))
