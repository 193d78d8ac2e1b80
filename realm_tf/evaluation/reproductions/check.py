"""Whether reproductions.yaml fits the commands and the published texts."""

import pathlib

from realm_tf.artifacts.paths import Path
from realm_tf.evaluation.reproductions import command_arguments
from realm_tf.evaluation.reproductions import entries as reproductions


def check(entries: dict[str, reproductions.Entry], root: str) -> list[str]:
    """What is out of step; nothing is run.

    Every command must be one of `realm`'s, or a script below `root`, and take
    its options as its own parser does; every quote must stand in the file it
    is published in, and every number in its quotes.

    Args:
        entries: dict. As `read_entries` gives them.
        root: str. The directory of reproductions.yaml.

    Returns:
        list of str. A sentence for each; empty if all is well.
    """
    return [*_check_commands(entries, root), *_check_quotes(entries, root)]


def _check_commands(entries, root):
    # A name stands for itself: parsers open nothing.
    values = {name: name for name in reproductions.PLACEHOLDERS}
    places = [(e, line) for e in entries.values() for line in e.commands]
    complaints = command_arguments.find_complaints(
        [reproductions.split_command(line, values) for _, line in places],
        root=root,
    )
    for (entry, line), complaint in zip(places, complaints, strict=True):
        if complaint is not None:
            yield f"entry {entry.name}, `{line}`: {complaint}."


def _check_quotes(entries, root):
    texts = {}
    for entry in entries.values():
        for figure in entry.figures:
            for name, quote in figure.published.items():
                where = f"entry {entry.name}, {figure.name}: {name}"
                path = pathlib.Path(root, name)
                if not path.is_file():
                    yield f"{where} does not exist."
                    continue
                if name not in texts:
                    texts[name] = _one_line(Path(str(path)).read_text())
                if _one_line(quote) not in texts[name]:
                    yield f"{where} does not say {quote!r}."
                elif figure.value not in reproductions.numbers(quote):
                    yield (
                        f"{where} says {quote!r}, where {figure.value:g} of "
                        f"{figure.path} is not among the numbers."
                    )


def _one_line(text):
    return " ".join(text.split())
