"""Cloze questions of a corpus, as a file of questions."""

import dataclasses
import json

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import QuestionSet
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.question_files import Questions
from realm_tf.operations.operation import Operation

FILE = "questions.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MakeClozeQuestions(Operation):
    """Makes cloze questions of blocks, which a reader learns on first.

    See `realm_tf.data.cloze`.
    """

    makes = QuestionSet

    blocks: Blocks
    """blocks directory"""
    output: str
    """the directory to make"""
    num_questions: int = 1000
    """questions, drawn evenly from all"""
    seed: int = 0
    """of the draw"""

    @property
    def questions(self) -> Questions:
        """The file in `output`, whether it has been made or not."""
        return Questions(self.result.file(FILE))

    def run(self) -> QuestionSet:
        """Writes the file of questions."""
        from realm_tf.data import cloze

        with self.write() as stage:
            questions = cloze.make_cloze_questions(
                self.blocks.read(),
                num_questions=self.num_questions,
                seed=self.seed,
            )
            lines = (json.dumps(each, ensure_ascii=False) for each in questions)
            write_text(stage.path(FILE), "".join(f"{each}\n" for each in lines))
            stage.metadata["counts"] = {"questions": len(questions)}
        return self.result
