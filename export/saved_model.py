"""Writes one SavedModel: raw question in, answer with its evidence out.

  realm export --model DIR --blocks DIR --index DIR --output DIR

Tokenizer, query tower, index, block texts, reader and the slicing of the
answer are inside; nothing of Python is needed to serve it. The kind of search
is that of the index: `scann` needs ScaNN's op wherever it is served,
`brute_force` and `ivf` only ops of TensorFlow and tensorflow_text, which the
stock TF Serving has. OUTPUT gets a new version directory (OUTPUT/1, OUTPUT/2,
...) as TF Serving reads them. `realm verify --saved-model OUTPUT` checks it.
"""

import contextlib
import gc
import json
import os
import shutil
import tempfile

from realm_tf.answering.predict import NUM_READER_BLOCKS
from realm_tf.artifacts import artifact
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import list_files
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError

QUANTIZATIONS = ("none", "bfloat16", "int8")
# Those that `realm verify` asks, of a file or titles of blocks.
NUM_EXPECTED = 16
# Questions and titles that the web page shows, each.
NUM_EXAMPLES = 5


def add_arguments(parser):
    """Arguments of `realm export`."""
    parser.add_argument("--model", required=True, help="model directory")
    parser.add_argument("--blocks", required=True, help="blocks directory")
    parser.add_argument("--index", required=True, help="index directory")
    parser.add_argument(
        "--output", required=True, help="base directory; gets a new version"
    )
    parser.add_argument(
        "--num-reader-blocks",
        type=int,
        default=NUM_READER_BLOCKS,
        help="blocks read for a question, fixed in the export "
        f"(default: {NUM_READER_BLOCKS})",
    )
    parser.add_argument(
        "--quantize-embeddings",
        choices=QUANTIZATIONS,
        default="none",
        help="of a brute_force or ivf index: hold the embeddings in half "
        "(bfloat16) or a quarter (int8) of the memory, at some recall; "
        "scann: `realm index --reordering int8` (default: none)",
    )
    parser.add_argument(
        "--calibration",
        metavar="DIR",
        help="an evaluation (`realm evaluate`) of this model on held-out "
        "questions: confidences are at the temperature that it fitted "
        "(default: temperature 1)",
    )
    parser.add_argument(
        "--evidence-license",
        metavar="TEXT",
        help="a line that is shown with the evidence, such as 'Wikipedia, "
        "CC BY-SA 4.0'",
    )
    parser.add_argument(
        "--questions",
        help="JSONL of questions whose answers are stored for `realm verify` "
        "(default: the titles of a few blocks)",
    )


def run(args, extra):
    """`realm export`."""
    path = export(**vars(args))
    size = sum(
        Path(os.path.join(path, name)).stat().length
        for name in list_files(path)
    )
    print(f"{path}: {size / 1e6:.0f} MB")


def next_version(output: str) -> int:
    """One more than the highest version directory of a base directory."""
    if not Path(output).exists():
        return 1
    versions = [
        int(n)
        for n in sorted(each.name for each in Path(output).iterdir())
        if n.isdigit()
    ]
    return max(versions, default=0) + 1


def export(
    model: str,
    blocks: str,
    index: str,
    output: str,
    *,
    num_reader_blocks: int = NUM_READER_BLOCKS,
    quantize_embeddings: str = "none",
    calibration: str | None = None,
    evidence_license: str | None = None,
    questions: str | None = None,
    expected: str | None = None,
) -> str:
    """Writes a new version of the SavedModel.

    On another Keras backend than TensorFlow's the graph is made by a process
    of its own, and `realm verify` compares its answers with those of the
    backend in use.

    Args:
        model: str. Model directory.
        blocks: str. Blocks directory.
        index: str. Index directory; its kind is the kind of search.
        output: str. Base directory.
        num_reader_blocks: int. Blocks read for a question. Defaults to `5`.
        quantize_embeddings: str. `"none"`, `"bfloat16"` or `"int8"`; see
            `index_store.load`. Defaults to `"none"`.
        calibration: str. Evaluation directory whose temperature confidences
            are computed at. Defaults to `None`: 1.
        evidence_license: str. Shown with the evidence. Defaults to `None`.
        questions: str. JSONL file whose first questions are answered here
            and stored, so that `realm verify` can compare. Defaults to
            titles of blocks.
        expected: str. JSON file of `expected.compute`, where it has been
            computed already. Defaults to `None`: it is computed here.

    Returns:
        str, the version directory.

    Raises:
        InputError: if the inputs do not belong together, or the disk is too
            full for it.
    """
    import keras

    if artifact.is_complete(output):
        raise InputError(
            f"--output {output} is itself a finished stage; expected a base "
            "directory for versions."
        )
    arguments = {
        "num_reader_blocks": num_reader_blocks,
        "quantize": quantize_embeddings,
        "temperature": _temperature(calibration),
    }
    asked = _questions(questions, blocks)
    if keras.backend.backend() == "tensorflow":
        return _export(
            model,
            blocks,
            index,
            output,
            asked=asked,
            license=evidence_license,
            expected=expected,
            **arguments,
        )
    from realm_tf.export import other_backends

    given = {
        "model": model,
        "blocks": blocks,
        "index": index,
        "output": output,
        "num_reader_blocks": num_reader_blocks,
        "quantize_embeddings": quantize_embeddings,
        "calibration": calibration,
        "evidence_license": evidence_license,
        "questions": questions,
    }
    with tempfile.TemporaryDirectory() as folder:
        kind = artifact.read(index, kind=schema.INDEX)["parameters"]["kind"]
        # ScaNN's op is TensorFlow's: only that process can search with it.
        if kind != "scann":
            given["expected"] = os.path.join(folder, "expected.json")
            _write_expected(
                given["expected"],
                model,
                blocks,
                index,
                [q.question for q in asked],
                arguments,
            )
        return other_backends.export(given)


def _temperature(evaluation: str | None) -> float:
    if evaluation is None:
        return 1.0
    from realm_tf.answering import calibration

    fitted = calibration.read(Evaluation.of(evaluation))
    if fitted.aggregate_answers:
        raise InputError(
            f"--calibration {evaluation} was fitted on answers that were "
            "added up, which an export does not: run `realm evaluate` "
            "without --aggregate-answers."
        )
    return fitted.temperature


def _questions(path: str | None, blocks: str) -> list:
    """What `realm verify` will ask, as `Question`s."""
    from realm_tf.artifacts import question_files as data

    if path:
        return data.read_questions(path, need_answers=False)[:NUM_EXPECTED]
    artifact.read(blocks, kind=schema.BLOCKS)
    titles = {}
    for block in schema.read_blocks(blocks):
        titles[block.title] = None
        if len(titles) == NUM_EXPECTED:
            break
    return [data.Question(title, answers=()) for title in titles]


def _answered_rightly(asked, expected: str) -> list[str]:
    """The first questions whose answers in expected.json are right."""
    from realm_tf.text.answers import is_correct

    rows = json.loads(Path(expected).read_text())["questions"]
    return [
        q.question
        for q, row in zip(asked, rows, strict=True)
        if row["answer"] and is_correct(row["answer"], q.answers, q.answer_type)
    ][:NUM_EXAMPLES]


def _spread(titles) -> list[str]:
    """A few distinct titles from the whole corpus."""
    step = max(1, len(titles) // NUM_EXAMPLES)
    chosen = (titles[i] for i in range(0, len(titles), step))
    return list(dict.fromkeys(filter(None, chosen)))[:NUM_EXAMPLES]


def _export(
    model,
    blocks,
    index,
    output,
    *,
    asked,
    license,
    expected,
    num_reader_blocks,
    quantize,
    temperature,
):
    from realm_tf.answering.corpus import Corpus
    from realm_tf.export import card
    from realm_tf.export import warmup
    from realm_tf.export.expected import FILE as EXPECTED

    corpus = Corpus.load(
        model, blocks, index, for_export=True, quantize=quantize
    )
    Path(output).mkdir(parents=True, exist_ok=True)
    path = os.path.join(output, str(next_version(output)))
    index_metadata = artifact.read(index, kind=schema.INDEX)
    parameters = {
        "num_reader_blocks": num_reader_blocks,
        "quantize": quantize,
        "temperature": temperature,
    }
    parents = {
        "model": corpus.loaded.metadata["fingerprint"],
        "blocks": corpus.records.fingerprint,
        "index": index_metadata["fingerprint"],
    }
    described = {
        "num_blocks": len(corpus.records),
        "index": index_metadata["parameters"]["kind"],
        **parameters,
        "evidence_license": license,
        "example_titles": _spread(corpus.records.titles),
        "parents": parents,
        "model_card": corpus.loaded.card.to_json(),
    }
    with artifact.write(
        path, kind=schema.SAVED_MODEL, parameters=parameters, parents=parents
    ) as stage:
        described["parts"] = _save(
            corpus,
            stage.directory,
            described["index"],
            num_reader_blocks=num_reader_blocks,
            temperature=temperature,
        )
        # What follows loads it again: both at once are twice the memory.
        del corpus
        gc.collect()
        Path(stage.path("assets.extra")).mkdir(parents=True, exist_ok=True)
        # Not embed_block: few who ask questions embed blocks, and its first
        # request takes half a second.
        warmup.write(
            stage.path(warmup.FILE),
            dict.fromkeys(
                ("serving_default", "retrieve", "embed_query"),
                {
                    "question": next(
                        (q.question for q in asked if q.question), ""
                    )
                },
            ),
        )
        if expected:
            write_text(stage.path(EXPECTED), Path(expected).read_text())
        else:
            _write_expected(
                stage.path(EXPECTED),
                model,
                blocks,
                index,
                [q.question for q in asked],
                parameters,
            )
        described["example_questions"] = _answered_rightly(
            asked, stage.path(EXPECTED)
        )
        stage.metadata["num_blocks"] = described["num_blocks"]
        card.write(stage.directory, described)
    return path


def _save(corpus, directory, kind, **arguments):
    """Writes the graph and its variables; returns what takes how many bytes."""
    import tensorflow as tf

    from realm_tf.export.realm_module import RealmModule

    module = RealmModule(corpus, **arguments)
    parts = module.parts()
    _announce(directory, parts, kind)
    # ScaNN's ops are of a namespace that TensorFlow does not know.
    options = tf.saved_model.SaveOptions(namespace_whitelist=["Scann"])
    with _without_grappler():
        tf.saved_model.save(
            module, directory, signatures=module.signatures(), options=options
        )
    return parts


@contextlib.contextmanager
def _without_grappler():
    """Functions made within are not optimised by whoever loads them.

    That takes more than half of the time to load and warm up a version, on
    processors that meanwhile serve, and answers are 2 % faster for it.
    """
    import tensorflow as tf

    name = "disable_meta_optimizer"
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({name: True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options(
            {name: before.get(name, False)}
        )


def _write_expected(path, model, blocks, index, asked, arguments):
    from realm_tf.export import expected
    from realm_tf.export.realm_module import NUM_RETRIEVED

    found = expected.compute(
        model,
        blocks,
        index,
        asked,
        num_retrieved=max(NUM_RETRIEVED, arguments["num_reader_blocks"]),
        **arguments,
    )
    write_text(path, json.dumps(found, ensure_ascii=False, indent=1))


# ScaNN copies its state into a searcher of its own when it is first asked: a
# server of a million blocks held 2.8 times the state (benchmarks/scale.py).
_SCANN_COPIES = 3


def _announce(directory, parts, kind):
    """Says what will be written, and refuses a disk that is too full."""
    import sys

    total = sum(parts.values())
    memory = total + (_SCANN_COPIES - 1) * parts["index"] * (kind == "scann")
    lines = [f"  {size / 1e6:10.1f} MB  {name}" for name, size in parts.items()]
    print(
        "\n".join(
            [
                *lines,
                f"  {total / 1e6:10.1f} MB  to write",
                f"  {memory / 1e6:10.1f} MB  of memory when served, and "
                "TensorFlow itself",
            ]
        ),
        file=sys.stderr,
    )
    if is_remote(directory):
        return
    free = shutil.disk_usage(os.path.dirname(directory)).free
    if free < total:
        raise InputError(
            f"The export takes {total / 1e6:.0f} MB, but only "
            f"{free / 1e6:.0f} MB are free where {directory} is written. Make "
            "room or choose another --output."
        )
