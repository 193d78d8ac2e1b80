"""`realm cloze`."""

import dataclasses
import json
from typing import Literal

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import matching
from realm_tf.artifacts.objects import Passages
from realm_tf.artifacts.objects import QuestionSet
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.question_files import Questions
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation

FILE = "questions.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MakeClozeQuestions(Operation):
    """Makes questions of passages alone: what a reader learns on first.

      realm annotate --blocks blocks --tagger rules --output annotated
      realm cloze --corpus annotated --output cloze
      realm finetune --questions cloze/questions.jsonl --set gold=only \\
          --set read_an_answer=true --set num_reader_blocks=1 ...

    A name, date or number of a sentence is the answer, and the words around
    it, with a question word in its place, are the question. The evidence is
    another passage that BM25 finds for it and that holds the answer. A reader
    that has learned from thousands of these learns more from real questions,
    and needs fewer of them.

    With --ask-for rows, rows of tables that blocks tell ("City: Oslo; Stay: 160
    EUR.") are asked about: a cell is the answer, another cell and the header
    the question, and no other passage is needed.

    Question words and the stems of BM25 are English. All passages are held in
    memory.
    """

    command = "cloze"
    makes = QuestionSet

    corpus: Passages
    """what `realm annotate` wrote"""
    output: str
    """directory to make; the questions are its questions.jsonl"""
    num_questions: int = 26_000
    """questions at most, drawn evenly over the passages"""
    ask_for: Literal["spans", "rows"] = "spans"
    """what is the answer: a salient span of a sentence, or a cell of a row"""
    seed: int = 0
    """of the draw"""

    @property
    def questions(self) -> Questions:
        """The file in `output`, whether it has been made or not."""
        return Questions(self.result.file(FILE))

    def run(self) -> QuestionSet:
        """Writes the questions.

        Returns:
            `QuestionSet`.

        Raises:
            InputError: if the passages are packed, or make no question.
        """
        self.check_least(1, "num_questions")
        matching.check_has_texts(self.corpus)
        with self.write() as stage:
            lines = [
                json.dumps(each, ensure_ascii=False) + "\n"
                for each in self._make()
            ]
            if not lines:
                missing = (
                    "no passage tells a row of a table with its headers. Run "
                    "`realm chunk --keep-tables`."
                    if self.ask_for == "rows"
                    else "no salient span of a passage stands in another one "
                    "that is about the same. Annotate more passages."
                )
                raise InputError(f"{self.corpus} makes no question: {missing}")
            write_text(stage.path(FILE), "".join(lines))
            stage.metadata["counts"] = {"questions": len(lines)}
            stage.metadata["fingerprint"] = fingerprints.fingerprint(*lines)
        return self.result

    def _make(self):
        from realm_tf.data import cloze
        from realm_tf.data import row_questions
        from realm_tf.retrieval.bm25 import Bm25

        drawn = {"num_questions": self.num_questions, "seed": self.seed}
        passages = self.corpus.read()
        if self.ask_for == "rows":
            return row_questions.make_row_questions(passages, **drawn)
        return cloze.make_cloze_questions(
            passages, make_retriever=Bm25, **drawn
        )

    def report(self, result: QuestionSet) -> str:
        return f"{result.file(FILE)}: {result.counts['questions']:,} questions"
