"""A probe as a table for people."""

import math
import sys

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from realm_tf.evaluation.probing.probed import Probed
from realm_tf.text.tokenizer import to_text

# Code points of a block and predictions of a mask that are shown, and columns
# where the output is no terminal (our choice).
_NUM_SHOWN = 160
_NUM_PREDICTIONS = 3
_WIDTH = 120


def render(found: Probed) -> str:
    """A probe as text, as wide as the terminal if the output is one."""
    width = None if sys.stdout.isatty() else _WIDTH
    console = Console(highlight=False, width=width)
    with console.capture() as capture:
        for line in _headlines(found):
            console.print(Text(line), soft_wrap=True)
        console.print(_table(found))
        for line in _summary(found):
            console.print(Text(line), soft_wrap=True)
    return capture.get().removesuffix("\n")


def _headlines(found):
    yield f"x = {_printable(found.text)}"
    for wordpieces in found.answers:
        pieces = " ".join(wordpieces)
        yield f"y = {to_text(wordpieces)}   (wordpieces: {pieces})"
    if not found.answers:
        yield "no --answer: each [MASK] is a single wordpiece"


def _table(found):
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("z", "p(z|x)"):
        table.add_column(name, justify="right", no_wrap=True)
    if found.answers:
        for name in ("p(y|z,x)", "r(z)"):
            table.add_column(name, justify="right", no_wrap=True)
    table.add_column("predicted", max_width=28 if found.answers else 48)
    table.add_column("title and text", ratio=1)
    for block in found.blocks:
        name = "null" if block.block_id is None else str(block.block_id)
        cells = [
            name + (" +" if block.is_added else ""),
            _number(math.exp(block.retrieval_log_prob)),
        ]
        if found.answers:
            cells += [
                _number(math.exp(block.answer_log_prob)),
                f"{block.gradient:+.4f}",
            ]
        cells += [_predicted(block, found), _evidence(block, found)]
        table.add_row(*map(Text, cells))
    return table


def _summary(found):
    num_added = sum(block.is_added for block in found.blocks)
    num_retrieved = len(found.blocks) - 1 - num_added
    if found.answers:
        rows = [
            ("without retrieval", found.blocks[0].answer_log_prob),
            (
                f"over the null block and {num_retrieved} retrieved",
                found.retrieved_log_prob,
            ),
        ]
        if num_added:
            rows.append((f"and {num_added} added (+)", found.marginal_log_prob))
        for name, log_prob in rows:
            yield (
                f"p(y|x) {name}: {_number(math.exp(log_prob))}   "
                f"({log_prob:.2f} nats)"
            )
    yield f"predicted over all: {_predicted(found, found)}"
    if found.left_out:
        left_out = ", ".join(map(str, found.left_out))
        yield (
            f"left out, as in pre-training: {left_out} (the "
            "sentence itself, or the same as a better block; --block-id N "
            "reads one)"
        )


def _predicted(source, found):
    """With answers, the best wordpieces of each as one text."""
    if not found.answers:
        return "\n".join(
            ", ".join(
                f"{each.wordpiece} {_number(each.probability)}"
                for each in best[:_NUM_PREDICTIONS]
            )
            for best in source.predictions
        )
    best = [wordpieces[0].wordpiece for wordpieces in source.predictions]
    said = []
    for answer in found.answers:
        said.append(to_text(best[: len(answer)]))
        best = best[len(answer) :]
    return " | ".join(said)


def _evidence(block, found):
    """The title, and the text around the first answer that it holds."""
    if block.block_id is None:
        return "(nothing is read)"
    text = _printable(block.text)
    lowered = text.lower()
    places = [lowered.find(to_text(answer)) for answer in found.answers]
    place = min((place for place in places if place >= 0), default=0)
    start = max(0, place - _NUM_SHOWN // 2)
    # To the beginning of a word.
    start = text.find(" ", start) + 1 if start else 0
    limit = start + _NUM_SHOWN
    before = "…" if start else ""
    after = "…" if limit < len(text) else ""
    return f"{_printable(block.title)}: {before}{text[start:limit]}{after}"


def _number(probability):
    if probability < 0.001:
        return f"{probability:.1e}"
    return f"{probability:.4f}"


def _printable(text):
    # Control characters of a block must not steer the terminal.
    return "".join(c if c.isprintable() else " " for c in text)
