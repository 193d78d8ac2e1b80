"""Makes questions files of public question sets as their authors publish them.

  realm questions --from nq --input 'v1.0/train/nq-train-*.jsonl.gz' \\
      --split orqa --output nq
  realm questions --from curatedtrec --input large2180-test.tsv --output trec

Writes lines {"question": ..., "answer": [...]}, with "answer_type": "regex" for
patterns: questions.jsonl, or train.jsonl and dev.jsonl. Forms:

  nq            Natural Questions in full, v1.0 or simplified: becomes NQ-open
  nq-open       NQ-open and EfficientQA
  webquestions  Berant et al.'s JSON, or brmson's
  curatedtrec   brmson's TSV or JSON, or DrQA's JSONL: regular expressions
  squad         SQuAD v1.1 and v2.0, each question with its evidence
  jsonl         this project's own form, or DPR's ("answers")

--split orqa is that of ORQA and REALM for the three sets without a published
development set: a training question is in it if the FarmHash Fingerprint64 of
its UTF-8 bytes is a multiple of 10. (DPR's development set of NQ, of the same
size, is another one.)

Questions stay exactly as they are, for the hash is of these bytes. Those that
are the same become one line with the answers of all. In answers, white space
becomes one space. What is dropped is counted.
"""

import json
import os
import time
from collections.abc import Callable
from collections.abc import Sequence

from realm_tf.articles import pages
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import write_text
from realm_tf.data.question_sets import forms as question_forms
from realm_tf.data.question_sets import natural_questions
from realm_tf.data.question_sets import statistics as question_statistics
from realm_tf.data.question_sets.merging import MergedQuestions
from realm_tf.errors import InputError

QUESTIONS = "questions"
SPLITS = ("none", "orqa")
FORMS = ("nq", "nq-open", "webquestions", "curatedtrec", "squad", "jsonl")

# google-research/language, orqa/preprocessing/create_data_splits.py: the hash
# modulo 100,000, and that modulo 10.
_ORQA_BUCKETS = 10

_READERS = {
    "webquestions": question_forms.read_webquestions,
    "curatedtrec": question_forms.read_curatedtrec,
    "squad": question_forms.read_squad,
    "jsonl": question_forms.read_jsonl,
}


def add_arguments(parser):
    """Arguments of `realm questions`."""
    parser.add_argument(
        "--from",
        dest="form",
        required=True,
        choices=FORMS,
        help="the form of the files; see above",
    )
    parser.add_argument(
        "--input",
        required=True,
        nargs="+",
        metavar="FILE",
        help="files or globs, plain, gzip or bz2; read in order of their names",
    )
    parser.add_argument("--output", required=True, help="directory to make")
    parser.add_argument(
        "--split",
        choices=SPLITS,
        default="none",
        help="orqa: train.jsonl and dev.jsonl; none: questions.jsonl "
        "(default: none)",
    )
    parser.add_argument(
        "--max-answer-tokens",
        type=int,
        help="nq: of a short answer, longer ones are left out (default: 5, as "
        "NQ-open)",
    )
    parser.add_argument(
        "--answer-field",
        choices=question_forms.ANSWER_FIELDS,
        help="nq-open: the second also accepts predictions that were judged "
        "definitely correct, in the test set of EfficientQA (default: answer)",
    )
    parser.add_argument(
        "--blocks",
        metavar="DIR",
        help="of `realm chunk`: tell for how many questions some block holds "
        "an answer",
    )


def run(args, extra):
    """`realm questions`."""
    report = prepare(
        args.input,
        args.output,
        form=args.form,
        split=args.split,
        max_answer_tokens=args.max_answer_tokens,
        answer_field=args.answer_field,
        blocks=args.blocks,
        progress=_Progress(),
    )
    print(question_statistics.describe(args.output, report))


def prepare(
    input: str | Sequence[str],
    output: str,
    *,
    form: str,
    split: str = "none",
    max_answer_tokens: int | None = None,
    answer_field: str | None = None,
    blocks: str | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> dict:
    """Writes a directory of questions in the project's form.

    Args:
        input: str or sequence of str. Paths or globs.
        output: str. The directory to make.
        form: str. One of `FORMS`.
        split: str. `"orqa"` or `"none"`. Defaults to `"none"`.
        max_answer_tokens: int. With `"nq"`, of a short answer. Defaults to
            `5`.
        answer_field: str. With `"nq-open"`, one of
            `question_forms.ANSWER_FIELDS`. Defaults to `"answer"`.
        blocks: str. A directory that `realm chunk` wrote, to be searched for
            the answers.
        progress: function called with what is counted and its number.

    Returns:
        dict, as in metadata.json: `counts`, where `read` is the sum of
        `kept`, `duplicate_question` and the reasons to drop a question;
        `answer_counts` of what was found in answers; `files` with the
        statistics of each file; with a split `in_train_and_dev`, questions
        of dev that train has, too, but for case and white space.

    Raises:
        InputError: if an argument is wrong, a file is not of the form (file
            and line are named), or nothing is left to be written.
    """
    read = _reader(form, max_answer_tokens, answer_field)
    if split not in SPLITS:
        raise InputError(
            f"--split must be one of {SPLITS}. Received: {split!r}"
        )
    parents = {}
    if blocks is not None:
        blocks_metadata = artifact.read(blocks, kind=schema.BLOCKS)
        parents["blocks"] = blocks_metadata["fingerprint"]
    paths = pages.find_files([input] if isinstance(input, str) else input)
    for number, path in enumerate(paths):
        parents[f"input-{number:05d}"] = fingerprints.sha256(path)[:16]
    parameters = {
        "from": form,
        "inputs": [os.path.basename(path) for path in paths],
        "split": split,
        "max_answer_tokens": max_answer_tokens,
        "answer_field": answer_field,
    }
    with artifact.write(
        output, kind=QUESTIONS, parameters=parameters, parents=parents
    ) as stage:
        merged = MergedQuestions()
        for path in paths:
            for entry in read(path):
                merged.add(entry)
                if progress is not None:
                    progress("questions", merged.counts["read"])
        parts = _divide(merged.questions(paths), split)
        report = {
            "counts": dict(merged.counts),
            "answer_counts": dict(merged.answer_counts),
            **question_statistics.of_files(parts),
        }
        if blocks is not None:
            _search(report, parts, blocks, progress)
        contents = {name: _lines(part) for name, part in parts.items()}
        for name, content in contents.items():
            write_text(stage.path(name), content)
        stage.metadata.update(report)
        stage.metadata["fingerprint"] = fingerprints.fingerprint_all(
            text for item in contents.items() for text in item
        )
    return report


def _reader(form, max_answer_tokens, answer_field):
    """The reader of a form, with the options that it alone takes."""
    if form not in FORMS:
        raise InputError(f"--from must be one of {FORMS}. Received: {form!r}")
    if max_answer_tokens is not None and form != "nq":
        raise InputError("--max-answer-tokens goes with --from nq alone.")
    if answer_field is not None and form != "nq-open":
        raise InputError("--answer-field goes with --from nq-open alone.")
    if form == "nq":
        limit = max_answer_tokens
        if limit is None:
            limit = natural_questions.MAX_ANSWER_TOKENS
        if limit < 1:
            raise InputError(
                f"--max-answer-tokens must be at least 1. Received: {limit}"
            )
        return lambda path: natural_questions.read_natural_questions(
            path, max_answer_tokens=limit
        )
    if form == "nq-open":
        field = answer_field or "answer"
        return lambda path: question_forms.read_nq_open(
            path, answer_field=field
        )
    return _READERS[form]


def _divide(questions, split):
    """The questions of each file."""
    if split == "none":
        return {"questions.jsonl": questions}
    parts = {"train.jsonl": [], "dev.jsonl": []}
    dev = is_orqa_dev([question.question for question in questions])
    for question, in_dev in zip(questions, dev, strict=True):
        parts["dev.jsonl" if in_dev else "train.jsonl"].append(question)
    for name, part in parts.items():
        if not part:
            raise InputError(
                f"--split orqa leaves {name} without a question: of "
                f"{len(questions)} in all. Use --split none."
            )
    return parts


def is_orqa_dev(questions: list[str]) -> list[bool]:
    """Whether ORQA puts a training question into its development set.

    Args:
        questions: list of str. As published, to the byte.

    Returns:
        list of bool: FarmHash Fingerprint64 of the UTF-8 bytes, modulo 10,
        is 0.

    References:
        google-research/language, orqa/preprocessing/create_data_splits.py.
        TensorFlow's `to_hash_bucket_fast` is that fingerprint modulo a number.
    """
    import tensorflow as tf

    buckets = tf.strings.to_hash_bucket_fast(questions, _ORQA_BUCKETS)
    return (buckets.numpy() == 0).tolist()


def _search(report, parts, blocks, progress):
    """Adds to each file's statistics how many blocks answer."""
    from realm_tf.data.question_sets.answer_search import find_answered

    answered = find_answered(
        [question for part in parts.values() for question in part],
        (block.text for block in schema.read_blocks(blocks)),
        progress=progress and (lambda number: progress("blocks", number)),
    )
    for name, part in parts.items():
        here, answered = answered[: len(part)], answered[len(part) :]
        report["files"][name]["answer_in_blocks"] = sum(here)


def _lines(questions):
    return "".join(
        json.dumps(question.line, ensure_ascii=False) + "\n"
        for question in questions
    )


class _Progress:
    """Prints now and then how many of something are done."""

    def __init__(self, *, every_seconds=15.0):
        self._every_seconds = every_seconds
        self._last = time.monotonic()

    def __call__(self, what, number):
        now = time.monotonic()
        if now - self._last >= self._every_seconds:
            self._last = now
            print(f"      {number:,} {what}", flush=True)
