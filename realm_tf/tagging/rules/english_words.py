"""Lists of English words for the rules of dates, numbers and names.

english_words.toml explains each list.
"""

import pathlib
import tomllib

_LISTS = tomllib.loads(
    pathlib.Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)


def _words(name):
    return frozenset(_LISTS[name].split())


def pattern(name: str) -> str:
    """A regular expression for any word of a list, in the list's order."""
    return "|".join(_LISTS[name].split())


def lines(name: str) -> str:
    """A regular expression for any line of a list, spaces included."""
    return "|".join(_LISTS[name].split("\n")[:-1])


def any_of(name: str) -> str:
    """A regular expression for any word of a list, capitalised or not."""
    words = _LISTS[name].split()
    return "|".join([*words, *map(str.capitalize, words)])


FUNCTION_WORDS = _words("function_words")
COMMON_OPENERS = _words("common_openers")
VERBS = _words("verbs")
TITLES = _words("titles")
PEERS = _words("peers")
HEADS = _words("heads")
BODIES = _words("bodies")
EPITHETS = _words("epithets")
NO_PEOPLE = _words("no_people")
SMALL_IN_TITLES = _words("small_in_titles")
# Countries and regions of two names.
PAIRS = frozenset(map(tuple, _LISTS["pairs"]))
