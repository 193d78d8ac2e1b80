"""An answer with its evidence, as text for people."""

import dataclasses
from collections.abc import Iterator

from rich.console import Console
from rich.console import ConsoleOptions
from rich.console import RenderResult
from rich.padding import Padding
from rich.text import Text

from realm_tf.answering.answer import Answer
from realm_tf.serving.client import NO_BLOCK_ID

# Longer evidence is cut around the answer; our choice.
_MAX_SENTENCE_LENGTH = 400
# Control characters of a document must not steer the terminal, and marks of
# direction must not turn text around.
_CONTROLS = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (
        *range(0x20),
        *range(0x7F, 0xA0),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    )
} | dict.fromkeys(map(ord, "\t\n\r\x0c\u2028\u2029"), " ")


def _printable(text: str) -> str:
    return text.translate(_CONTROLS)


def _evidence(answer: Answer) -> Text:
    """The sentence with the answer marked in it."""
    text, start, limit = answer.text, answer.start, answer.limit
    # An earlier export has no sentence.
    sentence = answer.answer_sentence or text
    first = text.rfind(sentence, 0, start + len(sentence))
    last = first + len(sentence)
    margin = _MAX_SENTENCE_LENGTH // 2
    before = "…" if first < start - margin else ""
    after = "…" if last > limit + margin else ""
    return Text.assemble(
        before + _printable(text[max(first, start - margin) : start].lstrip()),
        (f"[[{_printable(text[start:limit])}]]", "bold"),
        _printable(text[limit : min(last, limit + margin)].rstrip()) + after,
    )


@dataclasses.dataclass(frozen=True)
class AnswerView:
    """An answer that rich can print.

    The answer is in `[[...]]` in its sentence. `console.print(view,
    soft_wrap=True)` does not wrap it at the width that rich assumes for a file.

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
        answer = self.answer
        yield Text(f"Q: {_printable(self.question)}")
        if answer.block_id == NO_BLOCK_ID:
            yield Text("A: (no answer)")
        else:
            yield Text.assemble(
                "A: " if answer.answered else "A: not sure; the likeliest is ",
                (_printable(answer.answer), "bold"),
                f"   (score {answer.score:.2f}, confidence "
                f"{answer.confidence:.2f})",
            )
        for line in self._details():
            # Padding keeps wrapped lines indented, but fills them up.
            if console.is_terminal:
                yield Padding(line, (0, 0, 0, 3))
            else:
                yield Text("   ") + line

    def _details(self) -> Iterator[Text]:
        """The lines below question and answer."""
        answer = self.answer
        if answer.block_id != NO_BLOCK_ID:
            yield Text(
                f"{_printable(answer.title)} (block {answer.block_id})  "
                f"{_printable(answer.url)}".rstrip()
            )
            if answer.fields:
                yield Text(_printable(answer.fields))
            # Not twice the same.
            if not answer.is_sentence:
                yield _evidence(answer)
            if self.evidence_license:
                terms = _printable(self.evidence_license)
                yield Text(f"Evidence: {terms}")
        if answer.candidates:
            yield Text("p(z|x)  block read, its share, and its own answer")
        # Of equal texts, the first.
        shown = {each.text: each for each in answer.candidates[::-1]}.values()
        for candidate in [*shown][::-1]:
            yield Text(
                f"{candidate.probability:6.4f}  "
                f"{_printable(candidate.title)} (block {candidate.block_id}): "
                f"{_printable(candidate.answer)}  "
                f"{_printable(candidate.url)}".rstrip()
            )
