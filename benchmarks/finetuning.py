"""Rates of fine-tuning: batches against single questions, answer matching.

    python benchmarks/finetuning.py --model DIR --blocks DIR --index DIR \\
        --questions FILE

`step`: questions a second of a training step of 8 questions of like length,
padded to its longest row, beside the same questions one at a time, each padded
to the longest that question and block may be (as the original trains, whose
batch size is 1). Both compiled and warm, over the same questions, blocks and
candidates; the median of the rounds.

`matching`: milliseconds to find which of 5,000 blocks hold an answer to one
question, inside a graph, on pre-tokenised blocks as long as blocks may be,
beside Python's search for a raw substring in the blocks' texts, which tells no
words apart.
"""

import dataclasses
import itertools
import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tyro

from realm_tf.answering.corpus import Corpus
from realm_tf.artifacts import question_files as data
from realm_tf.artifacts.objects import Index
from realm_tf.configs.finetune import RECIPES
from realm_tf.data.question_batches import QuestionBatches
from realm_tf.models import answer_matching
from realm_tf.models import model_directory
from realm_tf.models import packing
from realm_tf.training import fine_tuning
from realm_tf.training import trainers

_BATCH_SIZE = 8
_NUM_BATCHES, _ROUNDS = 4, 3
_NUM_MATCHED = 5000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What is measured."""

    model: str
    blocks: str
    index: str
    questions: str


def main(args):
    corpus = Corpus.load(args.model, args.blocks, args.index)
    asked = data.read_questions(args.questions)
    return {
        "step": _steps(args, corpus, asked),
        "matching": _matching(args, corpus, asked),
        "longest_block": corpus.records.longest,
        "mean_block": float(corpus.records.lengths.mean()),
    }


def _steps(args, corpus, asked):
    recipe = RECIPES["laptop"].replace(
        batch_size=_BATCH_SIZE, bias_correction=True
    )
    batches = QuestionBatches(
        asked, corpus.loaded.tokenizer, batch_size=_BATCH_SIZE
    )
    full = [b for b in batches.epoch(0) if len(b["token_ids"]) == _BATCH_SIZE]
    chosen = full[:_NUM_BATCHES]
    singles = [
        _padded({name: rows[row : row + 1] for name, rows in batch.items()})
        for batch in chosen
        for row in range(_BATCH_SIZE)
    ]
    embeddings = Index(args.index).embeddings
    ours = _rate(args, corpus, embeddings, recipe, chosen)
    trim = packing.trim
    packing.trim = lambda joined: joined
    try:
        single = recipe.replace(batch_size=1)
        peer = _rate(args, corpus, embeddings, single, singles)
    finally:
        packing.trim = trim
    return {
        "questions_per_second": ours,
        "one_padded_question_per_second": peer,
        "ratio": ours / peer,
    }


def _padded(batch):
    """A question padded to the longest that there may be."""
    width = data.MAX_QUERY_LENGTH - batch["token_ids"].shape[1]
    return {
        name: np.pad(rows, [(0, 0), (0, width)])
        if name in ("token_ids", "padding_mask")
        else rows
        for name, rows in batch.items()
    }


def _rate(args, corpus, embeddings, recipe, batches):
    loaded = model_directory.load(
        args.model, precision="auto", for_training=True
    )
    corpus = dataclasses.replace(corpus, loaded=loaded)
    loaded.model = loaded.model.without_masked_lm_head()
    trainer = fine_tuning.make_trainer(corpus, embeddings, recipe)
    trainers.compile_trainer(trainer, recipe.optimizer, 1000)
    rates = []
    for number in itertools.count():
        started = time.perf_counter()
        for batch in batches:
            trainer.train_on_batch(batch)
        seconds = time.perf_counter() - started
        # The first round compiles.
        if number:
            rates.append(sum(len(b["token_ids"]) for b in batches) / seconds)
        if number == _ROUNDS:
            return statistics.median(rates)


def _matching(args, corpus, asked):
    records = corpus.records
    tokenizer = corpus.loaded.tokenizer
    rows = np.arange(_NUM_MATCHED) % len(records)
    position = np.arange(records.longest)
    token_ids = tf.constant(
        np.where(
            position < records.lengths[rows, None],
            records.token_ids()[rows].astype("int32"),
            -2,
        )[None]
    )
    is_continuation = tf.constant(
        [piece.startswith("##") for piece in tokenizer.vocabulary]
    )

    @tf.function(input_signature=[tf.TensorSpec([1, None, None], tf.int32)])
    def contains(answer_ids):
        return answer_matching.contains_answer(
            token_ids,
            tf.ensure_shape(answer_ids, [1, None, 24]),
            is_continuation,
        )

    texts = [records.texts[row] for row in rows]
    found = {"graph": [], "substring": []}
    batches = QuestionBatches(asked[:64], tokenizer, batch_size=1)
    contains(next(iter(batches.epoch(0)))["answer_ids"])
    for batch in batches.epoch(0):
        started = time.perf_counter()
        contains(batch["answer_ids"]).numpy()
        found["graph"].append(time.perf_counter() - started)
    for question in asked[:64]:
        started = time.perf_counter()
        for text in texts:
            any(answer in text for answer in question.answers)
        found["substring"].append(time.perf_counter() - started)
    return {
        "blocks": _NUM_MATCHED,
        **{
            f"{name}_milliseconds_{at}": 1e3 * float(np.percentile(times, q))
            for name, times in found.items()
            for at, q in (("median", 50), ("p95", 95))
        },
        "answers_per_question": float(
            np.mean([len(q.answers) for q in asked[:64]])
        ),
    }


if __name__ == "__main__":
    found = main(tyro.cli(Arguments, description=__doc__))
    print(json.dumps(found, indent=2))
