"""`realm questions`."""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Annotated
from typing import Literal

import tyro

from realm_tf.articles import pages
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import QuestionSet
from realm_tf.artifacts.paths import write_text
from realm_tf.data.question_sets import forms
from realm_tf.data.question_sets import prepare
from realm_tf.data.question_sets.merging import merge
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation
from realm_tf.progress import Progress

_READERS = {
    "nq": forms.read_natural_questions,
    "nq-open": forms.read_nq_open,
    "webquestions": forms.read_webquestions,
    "curatedtrec": forms.read_curatedtrec,
    "squad": forms.read_squad,
    "kilt": forms.read_kilt,
    "flashrag": forms.read_flashrag,
    "jsonl": forms.read_jsonl,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareQuestions(Operation):
    """Makes questions files of public question sets as they are published.

      realm questions --from nq --input 'v1.0/train/nq-train-*.jsonl.gz' \\
          --split orqa --output nq
      realm questions --from curatedtrec --input large2180-test.tsv --output trec

    Writes lines {"question": ..., "answer": [...]}, with "answer_type":
    "regex" for patterns: questions.jsonl, or train.jsonl and dev.jsonl. Forms:

      nq            Natural Questions in full, v1.0 or simplified: becomes
                    NQ-open
      nq-open       NQ-open and EfficientQA
      webquestions  Berant et al.'s JSON, or brmson's
      curatedtrec   brmson's TSV or JSON, or DrQA's JSONL: regular expressions
      squad         SQuAD v1.1 and v2.0, each question with its evidence
      kilt          KILT's question answering tasks
      flashrag      FlashRAG's ("golden_answers")
      jsonl         this project's own form, or DPR's ("answers")

    --split orqa is that of ORQA and REALM for the three sets without a
    published development set: a training question is in it if the FarmHash
    Fingerprint64 of its UTF-8 bytes is a multiple of 10. (DPR's development
    set of NQ, of the same size, is another one.)

    Questions stay exactly as they are, for the hash is of these bytes. Those
    that are the same become one line with the answers of all. In answers,
    white space becomes one space. What is dropped is counted.
    """

    command = "questions"
    makes = QuestionSet

    form: Annotated[Literal[tuple(_READERS)], tyro.conf.arg(name="from")]
    """the form of the files; see above"""
    input: tuple[str, ...]
    """files or globs, plain, gzip or bz2; read in order of their names"""
    output: str
    """directory to make"""
    split: Literal["none", "orqa"] = "none"
    """orqa: train.jsonl and dev.jsonl; none: questions.jsonl"""
    max_answer_tokens: int | None = None
    """nq: of a short answer, longer ones are left out (if not given: 5, as
    NQ-open)"""
    answer_field: Literal[forms.ANSWER_FIELDS] | None = None
    """nq-open: the second also accepts predictions that were judged definitely
    correct, in the test set of EfficientQA (if not given: answer)"""
    language: str | None = None
    """code of their language, such as de, whose rules compare answers (if not
    given: what a line says, or English)"""
    blocks: Blocks | None = None
    """of `realm chunk`: count the questions that some block answers"""

    @functools.cached_property
    def paths(self) -> list[str]:
        """The files of `input`, in order of their names."""
        return pages.find_files(self.input)

    def parameters(self) -> dict:
        return {
            "from": self.form,
            "inputs": [os.path.basename(path) for path in self.paths],
            "split": self.split,
            "max_answer_tokens": self.max_answer_tokens,
            "answer_field": self.answer_field,
            "language": self.language,
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
            `metadata` has `answer_counts` of what was found in answers,
            `files` with the statistics of each file and, with a split,
            `in_train_and_dev`, questions of dev that train has, too, but for
            case and white space.

        Raises:
            InputError: if an argument is wrong, a file is not of the form
                (file and line are named), or nothing is left to be written.
        """
        read = self._reader()
        with self.write() as stage:
            merged, counts, answer_counts = merge(self._entries(read))
            if not merged:
                raise InputError(
                    f"{', '.join(self.paths)} holds no question with an answer "
                    f"({prepare.shown(counts)}): is it of another form than "
                    "--from says, or a test set without answers?"
                )
            files = prepare.divide(merged, self.split)
            stage.metadata.update(
                counts=counts,
                answer_counts=answer_counts,
                **prepare.report(
                    files, self._find_answered if self.blocks else None
                ),
            )
            contents = {
                name: prepare.lines(each) for name, each in files.items()
            }
            for name, content in contents.items():
                write_text(stage.path(name), content)
            stage.metadata["fingerprint"] = fingerprints.fingerprint_all(
                text for item in contents.items() for text in item
            )
        return self.result

    def _entries(self, read):
        with Progress("questions", "questions") as progress:
            for path in self.paths:
                for entry in read(path):
                    if self.language:
                        entry.extra["language"] = self.language
                    yield entry
                    progress.add(1)

    def _reader(self) -> Callable:
        """The reader of the form, with the options that it alone takes."""
        owners = {"max_answer_tokens": "nq", "answer_field": "nq-open"}
        given = {}
        for name, form in owners.items():
            value = getattr(self, name)
            if value is None:
                continue
            if self.form != form:
                raise InputError(
                    f"--{name.replace('_', '-')} goes with --from {form} alone."
                )
            given[name] = value
        self.check_least(1, "max_answer_tokens")
        return functools.partial(_READERS[self.form], **given)

    def _find_answered(self, questions):
        from realm_tf.data.question_sets.answer_search import find_answered

        total = self.blocks.num_blocks
        with Progress("questions", "blocks", total) as progress:
            return find_answered(
                questions,
                (block.text for block in self.blocks.read()),
                progress=progress,
            )

    def report(self, result: QuestionSet) -> str:
        found = result.metadata
        lines = [f"{self.output}: {prepare.shown(found['counts'])}"]
        if found["answer_counts"]:
            lines.append(f"  answers: {prepare.shown(found['answer_counts'])}")
        for name, counts in found["files"].items():
            lines.append(f"  {name}: {prepare.shown(counts)}")
        if "in_train_and_dev" in found:
            lines.append(
                f"  {found['in_train_and_dev']:,} of dev are in train but for "
                "case and white space"
            )
        return "\n".join(lines)
