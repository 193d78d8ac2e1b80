"""Docstrings as Markdown: examples and commands become blocks of code."""

import re

import griffe

_SESSION = re.compile(r"^>>> .*(?:\n.*\S.*)*", re.MULTILINE)
# Two spaces before it, for `--help`; more lines of it are further in.
_COMMANDS = re.compile(r"^  realm .*(?:\n  .*)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Changes the docstring of each object before it is parsed."""

    def on_object(self, *, obj, **kwargs):
        if obj.docstring:
            text = _SESSION.sub(_fence("pycon"), obj.docstring.value)
            obj.docstring.value = _COMMANDS.sub(_fence("text"), text)


def _fence(language):
    return lambda match: f"\n```{language}\n{match[0]}\n```\n"
