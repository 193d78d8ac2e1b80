"""The files of a SavedModel: graph, warm-up requests, expected answers, card."""

import json
import os
import shutil
import sys

import tensorflow as tf

from realm_tf.answering import calibration
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.export import card
from realm_tf.export import expected as expected_answers
from realm_tf.export import signatures
from realm_tf.export.corpus_part import CorpusPart
from realm_tf.export.merging import merge_nodes
from realm_tf.export.realm_module import RealmModule
from realm_tf.text.answers import is_correct

UNTRAINED_READER = (
    "The reader was never trained: answers are spans of random scores. Run "
    "`realm finetune` first."
)


def write(
    stage,
    corpus,
    search: str,
    *,
    part: CorpusPart | None = None,
    asked=(),
    write_more=None,
    **facts,
) -> None:
    """Writes a version of the SavedModel.

    Args:
        stage: `artifact.Stage`, the version directory, with its parameters
            `num_reader_blocks`, `quantize`, `precision` and, where there is
            one, `calibration` and `lexical_weight`.
        corpus: `Corpus`.
        search: str. The kind of the corpus's index.
        part: `CorpusPart`. Defaults to `None`: made of the corpus.
        asked: list of `Question`. Their answers are stored, so that `realm
            verify` can compare; the first that are right are examples.
            Defaults to none.
        write_more: function of `stage` and `part`. Writes further files.
            Defaults to `None`.
        **facts: of the card: `parents`, name to fingerprint; perhaps
            `evidence_license`, which is shown with the evidence; others.

    Raises:
        InputError: if the disk is too full for it.
    """
    parts = _write_graph(stage, corpus, part)
    Path(stage.path("assets.extra")).mkdir(parents=True, exist_ok=True)
    if write_more is not None:
        write_more(stage, part)
    _write_warm_up(
        stage.path(card.WARM_UP_FILE),
        next(iter(card.spread(corpus.records.titles)), ""),
        with_filter=part is not None and part.fields is not None,
    )
    examples = []
    if asked:
        texts = [question.question for question in asked]
        expected = expected_answers.compute(corpus, texts, **reading(stage))
        write_text(
            stage.path(expected_answers.FILE),
            json.dumps(expected, ensure_ascii=False, indent=1),
        )
        examples = _answered_rightly(asked, expected)
    stage.metadata["num_blocks"] = len(corpus.records)
    facts = {
        **_of_corpus(corpus),
        **facts,
        "index": search,
        **stage.parameters,
        "parts": parts,
        "example_questions": examples,
    }
    card.write(stage.directory, facts)


def _write_warm_up(path: str, question: str, *, with_filter: bool) -> None:
    """Writes a request of one row for each signature that users wait for.

    TF Serving and our server replay these requests when they load a version: the
    first run of a signature optimises its graph and builds ScaNN's searcher. One
    row is enough, as one graph serves batches of any size. The signatures that
    embed are left out: few who ask questions need them, and each takes a second
    or two.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    with tf.io.TFRecordWriter(path) as writer:
        for name in (signatures.DEFAULT, signatures.RETRIEVE):
            requests = {name: {"question": question}}
            if with_filter:
                requests[f"{name}{signatures.FILTERED}"] = {
                    "question": question,
                    signatures.FILTER: "",
                }
            for signature, strings in requests.items():
                log = prediction_log_pb2.PredictionLog()
                request = log.predict_log.request
                request.model_spec.signature_name = signature
                for key, string in strings.items():
                    request.inputs[key].CopyFrom(
                        tf.make_tensor_proto([string], tf.string)
                    )
                writer.write(log.SerializeToString())


def _of_corpus(corpus) -> dict:
    """What the card says of model and blocks."""
    is_trained = corpus.loaded.model.reader.is_trained
    return {
        "num_blocks": len(corpus.records),
        "example_titles": card.spread(corpus.records.titles),
        "model_card": corpus.loaded.card.to_json(),
        "warnings": [] if is_trained else [UNTRAINED_READER],
    }


def reading(stage) -> dict:
    """How blocks are read, by the parameters of a stage."""
    fitted = stage.parameters.get("calibration")
    return {
        "num_reader_blocks": stage.parameters["num_reader_blocks"],
        "fitted": fitted and calibration.from_json(fitted, stage.directory),
        "lexical_weight": stage.parameters.get("lexical_weight"),
    }


def _write_graph(stage, corpus, part):
    """Writes graph and variables; returns what takes how many bytes."""
    options = reading(stage)
    is_hybrid = options["lexical_weight"] is not None
    part = part or CorpusPart(
        corpus.records,
        index=corpus.index,
        block_table=corpus.block_table,
        lexical=corpus.lexical if is_hybrid else None,
    )
    module = RealmModule(
        corpus.loaded,
        part,
        max_block_length=corpus.records.metadata["max_block_length"],
        **options,
    )
    directory, sizes = stage.directory, module.sizes()
    _announce(directory, sizes)
    # ScaNN's ops are of a namespace that TensorFlow does not know.
    options = tf.saved_model.SaveOptions(namespace_whitelist=["Scann"])
    # Whoever loads the graph does not optimise it: that takes more than half
    # of the time to load and warm up a version, on processors that meanwhile
    # serve, and answers are 2 % faster for it.
    name = "disable_meta_optimizer"
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({name: True})
    try:
        tf.saved_model.save(
            module, directory, signatures=module.signatures(), options=options
        )
    finally:
        tf.config.optimizer.set_experimental_options(
            {name: before.get(name, False)}
        )
    merge_nodes(directory)
    return sizes


def _answered_rightly(asked, expected) -> list[str]:
    """The first questions whose expected answers are right."""
    return [
        q.question
        for q, row in zip(asked, expected, strict=True)
        if row["answer"] and is_correct(row["answer"], *q.accepted)
    ][: card.NUM_EXAMPLES]


def _announce(directory, parts):
    """Says what will be written, and refuses a disk that is too full."""
    total = sum(parts.values())
    for name, size in {**parts, "to write": total}.items():
        print(f"  {size / 1e6:10.1f} MB  {name}", file=sys.stderr)
    if is_remote(directory):
        return
    free = shutil.disk_usage(os.path.dirname(directory)).free
    if free < total:
        raise InputError(
            f"The export takes {total / 1e6:.0f} MB, but only "
            f"{free / 1e6:.0f} MB are free where {directory} is written. Make "
            "room or choose another --output."
        )
