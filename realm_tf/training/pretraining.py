"""The two stages of pre-training: masked-LM warm-up, then retrieval."""

import contextlib
import dataclasses

import numpy as np

from realm_tf.data.masked_lm_warm_up import MaskedLmExamples
from realm_tf.data.masked_queries import PretrainingExamples
from realm_tf.errors import InputError
from realm_tf.retrieval.block_embedder import BlockEmbedder
from realm_tf.training import hosts
from realm_tf.training import index_builder
from realm_tf.training import resume
from realm_tf.training import run_directory
from realm_tf.training import trainers
from realm_tf.training.index_refresh import IndexVersions
from realm_tf.training.selection import SelectBest
from realm_tf.training.training_log import LOG
from realm_tf.training.training_log import MASKED_LM_LOG

# Masked sentences that TensorBoard shows, and how often where the index is
# never refreshed (our choices).
_NUM_SAMPLES = 4
_SAMPLES_EVERY = 500
# The part of a saved state that names the embeddings in use.
_REFRESH = "index_refresh"
_LOG_LIKELIHOOD = "held_out_log_likelihood"


def check_processes(recipe, *, index) -> None:
    """Refuses a recipe that several processes cannot follow together.

    Args:
        recipe: `PretrainRecipe`.
        index: `Index` to start with, or `None`.

    Raises:
        InputError: if there are several, and they cannot.
    """
    if hosts.count() == 1:
        return
    refresh = recipe.index.refresh
    for is_wrong, message in (
        (
            refresh != "process",
            "Where several processes train, builders are processes, too: add "
            f"--set refresh=process. Received: refresh={refresh}",
        ),
        (
            recipe.num_held_out,
            "num_held_out is measured by one process: leave it at 0 where "
            "several train.",
        ),
        (
            index is None,
            "Where several processes train, `realm embed` and `realm index` "
            "make the first index: name it with --index.",
        ),
        (
            recipe.log.tensorboard,
            "tensorboard=true shows what one process computes: leave it out "
            "where several train. log.jsonl has the same numbers.",
        ),
    ):
        if is_wrong:
            raise InputError(message)


class Pretraining:
    """One run of pre-training.

    Args:
        recipe: `PretrainRecipe`.
        loaded: `LoadedModel`. It is trained.
        stage: `artifact.Stage`. Its metadata get what the run measures.
        blocks: `Blocks`. What is retrieved.
        passages: `Passages`. What is masked.
        fit: dict. More arguments of `resume.fit`.
    """

    def __init__(self, recipe, loaded, stage, *, blocks, passages, fit):
        self._recipe = recipe
        self._loaded = loaded
        self._stage = stage
        self._blocks = run_directory.open_blocks(
            blocks, recipe.lengths.max_block_length
        )
        self._passages = run_directory.open_passages(
            passages, loaded.tokenizer, stage
        )
        self._fit_arguments = fit
        self._versions = IndexVersions(stage.path(run_directory.INDEX))
        trainers.prepare(loaded.model, recipe)

    def train_masked_lm(self) -> None:
        """Trains the encoder alone, if the recipe says so."""
        recipe = self._recipe.masked_lm
        if not recipe.masked_lm_steps:
            return
        examples = MaskedLmExamples(
            self._passages,
            self._blocks,
            own_share=recipe.masked_lm_own_block,
            answer_share=recipe.masked_lm_answer_block,
            other_share=recipe.masked_lm_other_block,
            window=recipe.masked_lm_window,
            **self._masking(recipe.masked_lm_batch_size),
        )
        self._stage.metadata["masked_lm_history"] = resume.fit(
            trainers.make_masked_lm_trainer(self._loaded, self._recipe),
            examples.batches,
            epoch_ends=examples.epoch_ends(recipe.masked_lm_steps),
            directory=self._stage.path(run_directory.MASKED_LM_CHECKPOINT),
            **run_directory.logs(self._recipe, self._stage, MASKED_LM_LOG),
            **self._fit_arguments,
        )

    def train(self, model, index, *, callbacks=()) -> None:
        """Trains `RealmModel`.

        Args:
            model: `Model`. What `loaded` was loaded from.
            index: `Index` to start with, or `None`: the blocks are embedded.
            callbacks: list of `keras.callbacks.Callback`.
        """
        recipe, metadata = self._recipe, self._stage.metadata
        examples = PretrainingExamples(
            self._passages, **self._masking(recipe.batch_size)
        )
        trainer = trainers.make_realm_trainer(
            self._loaded,
            self._blocks,
            recipe,
            embeddings=self._first_embeddings(index),
        )
        with contextlib.ExitStack() as stack:
            refresh = index_builder.keep_index(
                recipe.index,
                trainer.index,
                self._loaded,
                self._blocks,
                versions=self._versions,
                max_block_length=recipe.lengths.max_block_length,
                model=model,
                stage=self._stage,
                stack=stack,
            )
            parts = {_REFRESH: refresh}
            if recipe.num_held_out:
                parts["held_out"] = self._held_out(trainer)
            if recipe.log.tensorboard:
                samples = self._samples(examples.batch(0, 0))
                callbacks = [samples, *callbacks]
            metadata["history"] = resume.fit(
                trainer,
                examples.batches,
                epoch_ends=examples.epoch_ends(recipe.num_steps),
                directory=self._stage.path(run_directory.CHECKPOINT),
                parts=parts,
                callbacks=callbacks,
                **run_directory.logs(recipe, self._stage, LOG),
                **self._fit_arguments,
            )
        if recipe.num_held_out:
            metadata["held_out"] = parts["held_out"].measured
            metadata.update(parts["held_out"].restore_best())
        metadata["index_swaps"] = refresh.swaps
        metadata["counts"] = {
            **examples.counts,
            "examples_an_epoch": examples.num_examples,
            "steps": recipe.num_steps,
        }

    def _first_embeddings(self, index):
        """What the next step searches, float32 `(num_blocks, dim)`."""
        directory = self._stage.path(run_directory.CHECKPOINT)
        state = resume.state_of(directory, _REFRESH)
        if state is not None:
            return self._versions.read(state["index_step"])
        if hosts.is_first():
            if index is None:
                embedder = BlockEmbedder(
                    self._loaded,
                    max_length=self._recipe.lengths.max_block_length,
                )
                found = index_builder.embed_blocks(embedder, self._blocks)
            else:
                found = index.embeddings
            self._versions.write(0, found)
        hosts.meet("blocks are embedded")
        return self._versions.read(0)

    def _held_out(self, trainer):
        recipe = self._recipe
        every = recipe.index.refresh_every or recipe.num_steps or 1
        batches = self._held_out_batches()
        return SelectBest(
            lambda: measure(trainer, batches),
            self._loaded.model,
            self._stage.path(run_directory.SELECTION),
            at=[*range(0, recipe.num_steps, every), recipe.num_steps],
            metric=_LOG_LIKELIHOOD,
        )

    def _held_out_batches(self):
        """Batches of one size; the last is filled with rows without a mask."""
        num_rows = self._recipe.num_held_out
        size = min(self._recipe.batch_size, num_rows)
        examples = PretrainingExamples(
            self._passages, of_held_out=True, **self._masking(size)
        )
        batches = [
            examples.batch(0, step) for step in range(examples.steps_per_epoch)
        ]
        last = batches[-1]
        num_left = len(last["block_id"])
        for name, rows in last.items():
            last[name] = np.resize(rows, (size, *rows.shape[1:]))
        last["mask_weights"][num_left:] = 0
        return batches

    def _samples(self, batch):
        from realm_tf.training import retrieval_samples

        return retrieval_samples.RetrievalSamples(
            {name: value[:_NUM_SAMPLES] for name, value in batch.items()},
            self._loaded.tokenizer.vocabulary,
            self._stage.path(f"{run_directory.TENSORBOARD}/samples"),
            every_steps=self._recipe.index.refresh_every or _SAMPLES_EVERY,
        )

    def _masking(self, batch_size):
        return {
            "batch_size": batch_size,
            "share": (hosts.number(), hosts.count()),
            "seed": self._recipe.seed,
            "num_held_out": self._recipe.num_held_out,
            "max_query_length": self._recipe.lengths.max_query_length,
            **dataclasses.asdict(self._recipe.masking),
        }


def measure(trainer, batches: list[dict]) -> dict:
    """How well masked wordpieces are predicted, without training.

    Metrics and random generators stay as they are.

    Args:
        trainer: `RealmModel`.
        batches: list of dict. Of masked queries, as `PretrainingExamples`.

    Returns:
        dict of float, means over the masked wordpieces, in nats:
        `held_out_log_likelihood`, log sum_z p(z | x) p(y | z, x), and
        `held_out_retrieval_utility`, its gain over log p(y | null, x).
    """
    likelihoods, utilities = [], []
    for batch in batches:
        outputs = trainer.predict_on_batch(batch)
        is_masked = batch["mask_weights"] > 0
        utility = np.asarray(outputs["retrieval_utility"])
        alone = np.asarray(outputs["log_probs"], "float32")[:, 0]
        likelihoods.append((utility + alone)[is_masked])
        utilities.append(utility[is_masked])
    return {
        _LOG_LIKELIHOOD: np.concatenate(likelihoods).mean(),
        "held_out_retrieval_utility": np.concatenate(utilities).mean(),
    }
