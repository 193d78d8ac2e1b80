"""An answer with its evidence, as text for people."""

import dataclasses

from rich.console import Console
from rich.console import ConsoleOptions
from rich.console import RenderResult
from rich.padding import Padding
from rich.text import Text

from realm_tf.answering.answer import Answer
from realm_tf.serving.answers import NO_BLOCK_ID
from realm_tf.text import sentences

# Longer evidence is cut around the answer; our choice.
_MAX_SENTENCE_LENGTH = 400
# Question and answer are at the margin, what follows is indented.
_NUM_HEADLINES = 2
_INDENT = (0, 0, 0, 3)
# Control characters of a block must not steer the terminal. One character
# for one, so that offsets stay.
_CONTROLS = {
    code: " " for code in (*range(0x20), 0x7F, *range(0x80, 0xA0), 0x2028)
}


def _printable(text: str) -> str:
    return text.translate(_CONTROLS)


def _indented(line: Text) -> Text:
    return Text(" " * _INDENT[-1]) + line


def sentence_around(text: str, start: int, limit: int) -> tuple[int, int]:
    """The sentence that holds a span.

    Args:
        text: str. A block.
        start: int. The span's first code point.
        limit: int. One past its last.

    Returns:
        start and limit of the sentence in code points, at most 400 longer
        than the span.
    """
    found = sentences.split(text)
    first = max((s for s, _ in found if s <= start), default=0)
    last = min((end for _, end in found if end >= limit), default=len(text))
    margin = _MAX_SENTENCE_LENGTH // 2
    return max(first, start - margin), min(last, limit + margin)


def _evidence(answer: Answer, *, bold: bool) -> Text:
    """The sentence with the answer marked in it."""
    text = _printable(answer.text)
    start, limit = answer.start, answer.limit
    if not 0 <= start < limit <= len(text):
        cut = text[:_MAX_SENTENCE_LENGTH]
        return Text(cut + ("…" if len(cut) < len(text) else ""))
    first, last = sentence_around(text, start, limit)
    # Cut inside a sentence, and not at its end?
    before = "…" if first and not text[first - 1].isspace() else ""
    after = "…" if last < len(text) and text[last - 1].isalnum() else ""
    marked = text[start:limit]
    return Text.assemble(
        before + text[first:start].lstrip(),
        (marked, "bold") if bold else f"[[{marked}]]",
        text[limit:last].rstrip() + after,
    )


def _lines(
    answer: Answer, question: str, evidence_license: str | None, *, bold: bool
) -> list[Text]:
    """Everything there is to say about one answer, question first."""
    lines = [Text(f"Q: {_printable(question)}")]
    if answer.block_id == NO_BLOCK_ID:
        lines.append(Text("A: (no answer)"))
    else:
        lines += [
            Text.assemble(
                "A: ",
                (_printable(answer.answer), "bold" if bold else ""),
                f"   (score {answer.score:.2f}, confidence "
                f"{answer.confidence:.2f})",
            ),
            Text(
                f"{_printable(answer.title)} (block {answer.block_id})  "
                f"{_printable(answer.url)}".rstrip()
            ),
            _evidence(answer, bold=bold),
        ]
        if evidence_license:
            lines.append(Text(f"Evidence: {_printable(evidence_license)}"))
    if answer.candidates:
        lines.append(Text("p(z|x)  block read: its own answer"))
    for candidate in answer.candidates:
        lines.append(
            Text(
                f"{candidate.probability:6.4f}  "
                f"{_printable(candidate.title)} (block {candidate.block_id}): "
                f"{_printable(candidate.answer)}  "
                f"{_printable(candidate.url)}".rstrip()
            )
        )
    return lines


@dataclasses.dataclass(frozen=True)
class AnswerView:
    """An answer that rich can print, and whose `str` is plain text.

    On a terminal the answer is bold in its sentence, elsewhere it is in
    `[[...]]`. `console.print(view, soft_wrap=True)` does not wrap it at the
    width that rich assumes for a file.

    Args:
        answer: `Answer`.
        question: str. What was asked.
        evidence_license: str. The terms the evidence is under; not shown if
            `None`.
    """

    answer: Answer
    question: str
    evidence_license: str | None = None

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        bold = console.is_terminal
        lines = _lines(
            self.answer, self.question, self.evidence_license, bold=bold
        )
        yield from lines[:_NUM_HEADLINES]
        for line in lines[_NUM_HEADLINES:]:
            # Padding keeps wrapped lines indented, but fills them up.
            yield Padding(line, _INDENT) if bold else _indented(line)

    def __str__(self) -> str:
        lines = _lines(
            self.answer, self.question, self.evidence_license, bold=False
        )
        lines[_NUM_HEADLINES:] = map(_indented, lines[_NUM_HEADLINES:])
        return "\n".join(line.plain for line in lines)
