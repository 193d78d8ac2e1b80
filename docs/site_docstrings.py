"""Docstrings as Markdown: examples and commands become code blocks."""

import re

import griffe

_SESSION = re.compile(r"^>>> .*(?:\n.*\S.*)*", re.MULTILINE)
# `--help` shows commands that begin with two spaces; continuations have more.
_COMMANDS = re.compile(r"^  realm .*(?:\n  .*)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Changes the docstring of each object before it is parsed."""

    def on_object(self, *, obj, **kwargs):
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text):
    """A docstring whose examples and commands are fenced."""
    text = _SESSION.sub(_fence("pycon"), text)
    return _COMMANDS.sub(_fence("text"), text)


def _fence(language):
    return lambda match: f"\n```{language}\n{match[0]}\n```\n"
