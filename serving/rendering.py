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
from realm_tf.text.printable import one_line

# Longer evidence is cut around the answer; our choice.
_MAX_SENTENCE_LENGTH = 400


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
        before + one_line(text[max(first, start - margin) : start].lstrip()),
        (f"[[{one_line(text[start:limit])}]]", "bold"),
        one_line(text[limit : min(last, limit + margin)].rstrip()) + after,
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
        yield Text(f"Q: {one_line(self.question)}")
        if answer.block_id == NO_BLOCK_ID:
            yield Text("A: (no answer)")
        else:
            yield Text.assemble(
                "A: " if answer.answered else "A: not sure; the likeliest is ",
                (one_line(answer.answer), "bold"),
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
                f"{one_line(answer.title)} (block {answer.block_id})  "
                f"{one_line(answer.url)}".rstrip()
            )
            if answer.fields:
                yield Text(one_line(answer.fields))
            # Not twice the same.
            if not answer.is_sentence:
                yield _evidence(answer)
            if self.evidence_license:
                terms = one_line(self.evidence_license)
                yield Text(f"Evidence: {terms}")
        if answer.candidates:
            yield Text("p(z|x)  block read, its share, and its own answer")
        # Of equal texts, the first.
        shown = {each.text: each for each in answer.candidates[::-1]}.values()
        for candidate in [*shown][::-1]:
            yield Text(
                f"{candidate.probability:6.4f}  "
                f"{one_line(candidate.title)} (block {candidate.block_id}): "
                f"{one_line(candidate.answer)}  "
                f"{one_line(candidate.url)}".rstrip()
            )
