"""Lists of English words for the rules of dates, numbers and names.

english_words.toml explains each list.
"""

import pathlib
import tomllib

_LISTS = tomllib.loads(
    pathlib.Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
# The words of each list by its name.
WORDS = {
    name: frozenset(words.split())
    for name, words in _LISTS.items()
    if isinstance(words, str)
}
# Countries and regions of two names.
PAIRS = frozenset(map(tuple, _LISTS["pairs"]))


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
