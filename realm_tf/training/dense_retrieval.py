"""Trains the retriever alone on questions with answers, as DPR does.

BM25 finds blocks for every question: the best that holds an answer is what
the towers shall find, some of the best that hold none are what they shall not
mistake for it.
"""

import dataclasses
import sys

import numpy as np

from realm_tf.answering.recall import gold_blocks
from realm_tf.data import feeding
from realm_tf.data import hard_negatives as data
from realm_tf.errors import InputError
from realm_tf.models.in_batch_retriever import DprModel
from realm_tf.progress import Progress
from realm_tf.retrieval.bm25 import Bm25
from realm_tf.text.answers import AnswerFinder
from realm_tf.training import resume
from realm_tf.training import run_directory
from realm_tf.training import trainers
from realm_tf.training.selection import SelectBest
from realm_tf.training.training_log import LOG

# Questions searched for between two looks at the clock.
_PART = 256


def train(
    loaded, blocks, asked: dict, recipe, stage, *, callbacks=(), **fit
) -> None:
    """Trains the towers, and leaves the weights of the epoch to keep.

    Both towers learn; shared ones stay shared. The reader stays as it is. On
    JAX, all devices of the machine share each batch.

    Args:
        loaded: `LoadedModel`. It is trained.
        blocks: `Blocks`.
        asked: dict. `"questions"` and perhaps `"dev"` to lists of `Question`.
            The epoch that finds most of the blocks of dev is kept, each
            looked for in its batch as in training; without, the last one.
        recipe: `DprRecipe`.
        stage: `artifact.Stage`. Its metadata get what the run measures.
        callbacks: list of `keras.callbacks.Callback`.
        **fit: more arguments of `resume.fit`.

    Raises:
        InputError: if no question has a block that answers it.

    References:
        [Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906).
    """
    examples = _make_examples(blocks, asked, loaded, recipe, stage)
    steps_per_epoch = examples["questions"].steps_per_epoch
    num_steps = recipe.num_epochs * steps_per_epoch
    epoch_ends = examples["questions"].epoch_ends(num_steps)
    trainer = trainers.make_towers_trainer(
        DprModel, loaded.model, recipe, num_steps
    )
    parts = {}
    if "dev" in examples:
        parts["selection"] = SelectBest(
            _measuring(trainer, examples["dev"]),
            loaded.model,
            stage.path(run_directory.SELECTION),
            at=epoch_ends,
            metric="dev_accuracy",
        )
    stage.metadata["history"] = resume.fit(
        trainer,
        examples["questions"].batches,
        epoch_ends=epoch_ends,
        directory=stage.path(run_directory.CHECKPOINT),
        parts=parts,
        callbacks=callbacks,
        **run_directory.logs(recipe, stage, LOG),
        **fit,
    )
    for each in parts.values():
        stage.metadata.update(each.restore_best())
    stage.metadata["counts"].update(
        questions_an_epoch=steps_per_epoch * recipe.batch_size, steps=num_steps
    )


def _make_examples(blocks, asked, loaded, recipe, stage):
    """`DprExamples` of each list of questions, by its name."""
    records = blocks.records
    retrieved = _retrieve(
        [question for of_name in asked.values() for question in of_name],
        records,
        recipe.negatives.num_retrieved,
    )
    finder = AnswerFinder(records.texts)
    packed = run_directory.open_blocks(blocks, recipe.lengths.max_block_length)
    examples = {}
    for name, questions in asked.items():
        found, retrieved = np.split(retrieved, [len(questions)])
        chosen, counts = data.choose_blocks(
            questions,
            found,
            gold_blocks(questions, records),
            finder,
            num_negatives=recipe.negatives.num_negative_candidates,
        )
        _report(name, len(chosen), counts, blocks)
        examples[name] = data.DprExamples(
            chosen,
            packed,
            finder,
            loaded.tokenizer,
            batch_size=recipe.batch_size,
            seed=recipe.seed,
            drop_remainder=name != "dev",
            num_hard_negatives=recipe.negatives.num_hard_negatives,
            block_segment_ids=loaded.block_segment_ids,
            **dataclasses.asdict(recipe.lengths),
        )
        key = "dev_counts" if name == "dev" else "counts"
        stage.metadata[key] = counts
    return examples


def _retrieve(questions, records, num_retrieved):
    """BM25's best blocks of each question that share a word with it."""
    bm25 = Bm25(records.titles, records.texts)
    parts = []
    with Progress("bm25", "questions", len(questions)) as progress:
        for first in range(0, len(questions), _PART):
            part = [q.question for q in questions[first : first + _PART]]
            scores, block_ids = bm25.search(part, num_retrieved)
            parts.append(np.where(scores > 0, block_ids, data.NO_BLOCK))
            progress.add(len(part))
    return np.concatenate(parts)


def _report(name, num_left, counts, blocks):
    """Says on stderr how many questions are dropped, and why."""
    which = "of --dev" if name == "dev" else "to learn from"
    told = (
        f"{counts['questions'] - num_left:,} of {counts['questions']:,} "
        f"questions {which} are dropped: "
        f"{counts['dropped_no_answer_retrieved']:,} have no answer in BM25's "
        f"best blocks, {counts['dropped_evidence_in_no_block']:,} name "
        "evidence that no block holds."
    )
    if not num_left:
        raise InputError(f"{told} Give questions that {blocks} answers.")
    if num_left < counts["questions"]:
        print(told, file=sys.stderr, flush=True)


def _measuring(trainer, examples):
    """A function that gives the metrics over all examples, as `dev_...`."""
    # The same for every epoch, so that these can be compared.
    batches = [
        examples.batch(0, step) for step in range(examples.steps_per_epoch)
    ]

    def measure():
        found = trainer.evaluate(
            feeding.ahead(lambda: iter(batches)),
            steps=len(batches),
            verbose=0,
            return_dict=True,
        )
        return {f"dev_{name}": value for name, value in found.items()}

    return measure
