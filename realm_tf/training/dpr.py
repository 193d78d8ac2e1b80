"""Trains the retriever alone on questions with answers, as DPR does.

BM25 finds blocks for every question: the best that holds an answer is what
the towers shall find, some of the best that hold none are what they shall not
mistake for it. See `realm finetune --retriever-loss dpr`.
"""

import dataclasses
import os
import sys
import time

import numpy as np

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import packed_blocks
from realm_tf.artifacts import question_files
from realm_tf.artifacts.paths import Path
from realm_tf.configs.dpr import DprRecipe
from realm_tf.data import hard_negatives as data
from realm_tf.errors import InputError
from realm_tf.training import run_directory

# What BM25 found, and the weights of the best epochs.
_RETRIEVED = "retrieved.npy"
_SELECTION = "selection"
# Questions searched for between two looks at the clock.
_PART = 256
_EVERY_SECONDS = 15.0


def train_dpr(
    model: str,
    blocks: str,
    questions: str | list[str],
    output: str,
    *,
    recipe: DprRecipe,
    dev: str | None = None,
    verbose: int | str = "auto",
    callbacks=(),
    save_every_seconds: float = 300.0,
    save_every_steps: int | None = None,
) -> list[dict]:
    """Trains the towers of a model directory and writes a new one.

    Both towers learn; shared ones stay shared. As the block tower moves, the
    blocks must be embedded and indexed anew with the new model. The reader
    stays as it is. On JAX, all devices of the machine share each batch.

    Args:
        model: str. Model directory to start from.
        blocks: str. Blocks directory.
        questions: str or list of str. JSONL files with answers, mixed.
        output: str. Model directory to make, on a local disk.
        recipe: `DprRecipe`.
        dev: str. JSONL file with answers, none of them learned from: the
            epoch that finds most of their blocks is kept, each looked for in
            its batch as in training. Defaults to `None`: the last epoch.
        verbose: int or str. As `training.resume.fit`. Defaults to `"auto"`.
        callbacks: list of `keras.callbacks.Callback`.
        save_every_seconds: float. See `training.resume.fit`. Defaults to
            `300.0`.
        save_every_steps: int. See there. Defaults to `None`.

    Returns:
        list of dict, the metrics of each epoch; those on dev as `dev_...`.

    Raises:
        InputError: if the inputs do not belong together, or no question has
            a block that answers it.

    References:
        [Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906).
    """
    from realm_tf.artifacts import model_directory
    from realm_tf.training import devices

    paths = [questions] if isinstance(questions, str) else list(questions)
    asked = {
        "questions": [
            q for p in paths for q in question_files.read_questions(p)
        ]
    }
    parents = {"questions": _fingerprint(paths)}
    if dev:
        asked["dev"] = question_files.read_questions(dev)
        parents["dev"] = _fingerprint([dev])
    with devices.of_recipe(recipe):
        loaded = model_directory.load(model)
        metadata = run_directory.check_blocks(
            blocks, loaded, model=model, recipe=recipe
        )
        with run_directory.write_model(
            output,
            parameters={**dataclasses.asdict(recipe), "retriever_loss": "dpr"},
            parents={
                **parents,
                "model": loaded.metadata["fingerprint"],
                "blocks": packed_blocks.blocks_fingerprint(metadata),
            },
            own_files=(_RETRIEVED, _SELECTION),
        ) as stage:
            examples = _make_examples(blocks, asked, loaded, recipe, stage)
            history = _fit(
                loaded.model,
                examples,
                recipe,
                stage,
                every_seconds=save_every_seconds,
                every_steps=save_every_steps,
                callbacks=callbacks,
                verbose=verbose,
            )
            model_directory.write_files(loaded, stage)
            stage.metadata["history"] = history
    return history


def _fingerprint(paths):
    return fingerprints.fingerprint(
        *(Path(path).read_bytes() for path in paths)
    )


def _make_examples(blocks, asked, loaded, recipe, stage):
    """`DprExamples` of each list of questions, by its name."""
    from realm_tf.answering.recall import gold_blocks
    from realm_tf.artifacts.block_records import BlockRecords
    from realm_tf.text.answers import AnswerFinder

    records = BlockRecords(blocks)
    retrieved = _retrieve(
        [question for of_name in asked.values() for question in of_name],
        records,
        recipe.num_retrieved,
        stage.path(_RETRIEVED),
    )
    finder = AnswerFinder(records.texts)
    packed = run_directory.open_blocks(
        blocks, stage, max_length=recipe.max_block_length
    )
    examples = {}
    for name, questions in asked.items():
        found, retrieved = np.split(retrieved, [len(questions)])
        chosen, counts = data.choose_blocks(
            questions,
            found,
            gold_blocks(questions, records),
            finder,
            num_negatives=recipe.num_negative_candidates,
        )
        _report(name, len(chosen), counts, recipe, blocks)
        examples[name] = data.DprExamples(
            chosen,
            packed,
            finder,
            loaded.tokenizer,
            batch_size=recipe.batch_size,
            seed=recipe.seed,
            drop_remainder=name != "dev",
            num_hard_negatives=recipe.num_hard_negatives,
            max_query_length=recipe.max_query_length,
            max_block_length=recipe.max_block_length,
            block_segment_ids=loaded.block_segment_ids,
        )
        key = "dev_counts" if name == "dev" else "counts"
        stage.metadata[key] = counts
    return examples


def _retrieve(questions, records, num_retrieved, path):
    """BM25's best blocks of each question, kept in a file.

    A block that shares no word with a question is none of them.
    """
    from realm_tf.retrieval.bm25 import Bm25

    if os.path.exists(path):
        return np.load(path)
    print(
        f"      BM25: {len(questions):,} questions, {len(records):,} blocks",
        flush=True,
    )
    bm25 = Bm25(records.titles, records.texts)
    parts = []
    started = last = time.monotonic()
    for first in range(0, len(questions), _PART):
        part = [q.question for q in questions[first : first + _PART]]
        scores, block_ids = bm25.search(part, num_retrieved)
        parts.append(np.where(scores > 0, block_ids, data.NO_BLOCK))
        done, now = first + len(part), time.monotonic()
        if now - last >= _EVERY_SECONDS:
            last = now
            left = (now - started) / done * (len(questions) - done)
            print(
                f"      {done:,}/{len(questions):,} questions, {left:.0f} s "
                "left",
                flush=True,
            )
    retrieved = np.concatenate(parts)
    temporary = f"{path}.tmp"
    with open(temporary, "wb") as file:
        np.save(file, retrieved)
    os.replace(temporary, path)
    return retrieved


def _report(name, num_left, counts, recipe, blocks):
    """Says on stderr how many questions are dropped, and why."""
    if num_left == counts["questions"]:
        return
    reasons = (
        f"{counts['dropped_no_answer_retrieved']:,} have no answer in BM25's "
        f"{recipe.num_retrieved} best blocks, "
        f"{counts['dropped_evidence_in_no_block']:,} name evidence that no "
        "block holds"
    )
    which = "of --dev" if name == "dev" else "to learn from"
    if not num_left:
        raise InputError(
            f"None of the {counts['questions']:,} questions {which} has a "
            f"block that answers it in {blocks} ({reasons}): expected "
            "questions about these blocks; give others."
        )
    print(
        f"{counts['questions'] - num_left:,} of {counts['questions']:,} "
        f"questions {which} are dropped: {reasons}.",
        file=sys.stderr,
        flush=True,
    )


def _fit(open_qa_model, examples, recipe, stage, *, callbacks, **arguments):
    """Trains, and leaves the weights of the epoch to keep."""
    from realm_tf.training import resume
    from realm_tf.training import trainers

    steps_per_epoch = examples["questions"].steps_per_epoch
    num_steps = recipe.num_epochs * steps_per_epoch
    trainer = trainers.make_dpr_trainer(open_qa_model, recipe, num_steps)
    parts = {}
    if "dev" in examples:
        parts["selection"] = _selection(
            trainer, open_qa_model, examples["dev"], stage
        )
    history = resume.fit(
        trainer,
        examples["questions"].batches,
        num_steps=num_steps,
        steps_per_epoch=steps_per_epoch,
        directory=stage.path(run_directory.CHECKPOINT),
        parts=parts,
        callbacks=[*parts.values(), *callbacks],
        **arguments,
    )
    for selection in parts.values():
        selection.restore_best()
        stage.metadata["best_epoch"] = selection.best_epochs[-1] + 1
        stage.metadata["best"] = selection.best
    stage.metadata["counts"].update(
        questions_an_epoch=steps_per_epoch * recipe.batch_size, steps=num_steps
    )
    return history


def _selection(trainer, open_qa_model, examples, stage):
    from realm_tf.data import feeding
    from realm_tf.training.selection import SelectBest

    # The same for every epoch, so that these can be compared.
    batches = [
        examples.batch(0, step) for step in range(examples.steps_per_epoch)
    ]

    def evaluate():
        return trainer.evaluate(
            feeding.ahead(lambda: iter(batches)),
            steps=len(batches),
            verbose=0,
            return_dict=True,
        )

    return SelectBest(
        evaluate,
        open_qa_model,
        stage.path(_SELECTION),
        metric="accuracy",
    )
