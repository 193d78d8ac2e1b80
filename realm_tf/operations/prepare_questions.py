"""`realm questions`."""

import dataclasses
import functools
import itertools
import os
from typing import Annotated
from typing import Literal

import tyro

from realm_tf.articles import pages
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Passages
from realm_tf.artifacts.objects import QuestionSet
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.question_files import Questions
from realm_tf.data import question_sets
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation
from realm_tf.progress import Progress

_CLOZE = "cloze"
_FILE = "questions.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareQuestions(Operation):
    """Makes question files from public data sets, or from your own corpus.

      realm questions --from nq-open --input NQ-open.train.jsonl \\
          --split orqa --output nq
      realm questions --from curatedtrec --input large2180-test.tsv --output trec
      realm questions --from cloze --corpus annotated --output cloze

    Writes questions.jsonl, or train.jsonl and dev.jsonl. Their lines have question
    and answer, and answer_type "regex" where answers are patterns. Sources:

      nq-open       NQ-open
      efficientqa   the test set of EfficientQA, with the predictions that were
                    judged definitely correct as further answers
      webquestions  Berant et al.'s JSON, or brmson's
      curatedtrec   brmson's TSV or JSON, or DrQA's JSONL: regular expressions
      squad         SQuAD v1.1 and v2.0, each question with its evidence
      kilt          KILT's question answering tasks
      flashrag      FlashRAG's ("golden_answers")
      jsonl         this project's own form, or DPR's ("answers")
      cloze         passages of `realm annotate`, without any human label

    cloze: a name, date or number of a sentence is the answer. The words around
    it, with a question word in its place, are the question. The evidence is
    another passage with the answer, which BM25 finds. Question words and the
    stems of BM25 are English. All passages must fit into memory.

    With --split orqa, dev.jsonl gets the training questions whose FarmHash
    Fingerprint64 of the UTF-8 bytes is a multiple of 10, as in ORQA and REALM.
    DPR's development set of NQ is another one.

    Questions keep their bytes, because the hash depends on them. Equal
    questions become one line with the answers of all. In answers, white space
    becomes one space. The command prints how many questions it dropped.
    """

    command = "questions"
    makes = QuestionSet

    form: Annotated[
        Literal[(*question_sets.FORMS, _CLOZE)], tyro.conf.arg(name="from")
    ]
    """source of the questions; see above"""
    input: tuple[str, ...] = ()
    """files or globs, plain, gzip or bz2; read in order of their names"""
    corpus: Passages | None = None
    """cloze: directory of `realm annotate`"""
    output: str
    """directory to make"""
    split: Literal["none", "orqa"] = "none"
    """orqa writes train.jsonl and dev.jsonl, none writes questions.jsonl"""
    num_questions: int = 26_000
    """cloze: largest number of questions, drawn evenly over the passages"""
    language: str | None = None
    """language code, such as de, whose rules compare answers (if not given: that
    of each line, else English)"""
    blocks: Blocks | None = None
    """directory of `realm chunk`: count the questions whose answer a block holds"""

    @functools.cached_property
    def paths(self) -> list[str]:
        """The files of `input`, in order of their names."""
        return [] if self.form == _CLOZE else pages.find_files(self.input)

    @property
    def questions(self) -> Questions:
        """The questions.jsonl in `output`, whether it has been made or not."""
        return Questions(self.result.file(_FILE))

    def parameters(self) -> dict:
        return {
            "from": self.form,
            "inputs": [os.path.basename(path) for path in self.paths],
            "split": self.split,
            "language": self.language,
            "num_questions": self.num_questions,
        }

    def parents(self) -> dict:
        return super().parents() | {
            f"input-{number:05d}": fingerprints.sha256(path)[:16]
            for number, path in enumerate(self.paths)
        }

    def run(self) -> QuestionSet:
        """Reads, merges, divides and writes the questions.

        Returns:
            `QuestionSet`. `counts`: `read` is the sum of `kept`,
            `duplicate_question` and the reasons to drop a question.
            `metadata` has `files` with the statistics of each file.

        Raises:
            InputError: if an argument is wrong, a file is not of the form
                (file and line are named), or nothing is left to be written.
        """
        self.check_least(1, "num_questions")
        needed, others = "input", {"corpus", "num_questions"}
        if self.form == _CLOZE:
            needed, others = "corpus", {"input"}
        self.refuse_given(others, f"--from {self.form}")
        if not getattr(self, needed):
            raise InputError(f"--from {self.form} needs --{needed}.")
        with self.write() as stage:
            lines = self._lines()
            merged, counts = question_sets.merge(lines, self.language)
            if not merged:
                raise InputError(self._nothing(counts))
            files = question_sets.divide(merged, self.split)
            answered = self._find_answered(merged) if self.blocks else None
            stage.metadata.update(
                counts=counts,
                files=question_sets.report(files, answered),
            )
            contents = {
                name: question_sets.lines(each.line for each in part)
                for name, part in files.items()
            }
            for name, content in contents.items():
                write_text(stage.path(name), content)
            stage.metadata["fingerprint"] = fingerprints.fingerprint_all(
                text for item in contents.items() for text in item
            )
        return self.result

    def _lines(self):
        """Yields the place and the content of each line."""
        progress = Progress("questions", "questions")
        found = (question_sets.read(path, self.form) for path in self.paths)
        if self.corpus:
            found = [self._clozes()]
        for place, line in itertools.chain.from_iterable(found):
            yield place, line
            progress.add(1)

    def _clozes(self):
        from realm_tf.data import cloze
        from realm_tf.retrieval.bm25 import Bm25

        made = cloze.make_cloze_questions(
            self.corpus.read(),
            make_retriever=Bm25,
            num_questions=self.num_questions,
        )
        for number, line in enumerate(made, start=1):
            yield f"cloze question {number}", line

    def _nothing(self, counts):
        if self.corpus:
            return (
                f"{self.corpus} makes no question: no salient span of a passage "
                "occurs in another one about the same. Annotate more passages."
            )
        return (
            f"{', '.join(self.paths)} holds no question with an answer "
            f"({question_sets.shown(counts)}): is it of another form than --from "
            "names, or a test set without answers?"
        )

    def _find_answered(self, questions):
        from realm_tf.answering.answer_search import find_answered

        found = find_answered(
            questions,
            (block.text for block in self.blocks.read()),
            progress=Progress("questions", "blocks", self.blocks.num_blocks),
        )
        return set(itertools.compress(questions, found))

    def report(self, result: QuestionSet) -> str:
        found = result.metadata
        lines = [f"{self.output}: {question_sets.shown(found['counts'])}"]
        for name, counts in found["files"].items():
            lines.append(f"  {name}: {question_sets.shown(counts)}")
        return "\n".join(lines)
