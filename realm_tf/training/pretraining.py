"""The two stages of pre-training: masked-LM warm-up, then retrieval."""

import contextlib
import dataclasses

from realm_tf.data.masked_lm_warm_up import MaskedLmExamples
from realm_tf.data.masked_queries import PretrainingExamples
from realm_tf.errors import InputError
from realm_tf.retrieval.block_embedder import BlockEmbedder
from realm_tf.training import hosts
from realm_tf.training import index_builder
from realm_tf.training import resume
from realm_tf.training import run_directory
from realm_tf.training import trainers
from realm_tf.training.held_out import HeldOut
from realm_tf.training.index_refresh import IndexRefresh
from realm_tf.training.index_versions import IndexVersions
from realm_tf.training.training_log import LOG
from realm_tf.training.training_log import MASKED_LM_LOG
from realm_tf.training.training_log import log_of

# Masked sentences that TensorBoard shows, and how often where the index is
# never refreshed.
_NUM_SAMPLES = 4
_SAMPLES_EVERY = 500
# The part of a saved state that says which embeddings were searched.
_REFRESH = "index_refresh"
_HELD_OUT = "held_out"
# Before the names of what it shows of the masked-LM warm-up.
_MASKED_LM = "masked_lm/"


def check_processes(recipe, *, index, writer) -> None:
    """Refuses what several processes cannot do together.

    Args:
        recipe: `PretrainRecipe`.
        index: `Index` to start with, or `None`.
        writer: `TensorBoardWriter`, or `None`.

    Raises:
        InputError: if there are several, and they cannot.
    """
    if hosts.count() == 1:
        return
    refresh = recipe.index.refresh
    if refresh != "process":
        raise InputError(
            "Where several processes train, builders are processes, too: add "
            f"--set refresh=process. Received: refresh={refresh}"
        )
    if recipe.num_held_out:
        raise InputError(
            "num_held_out is measured by one process: leave it at 0 where several "
            "train."
        )
    if index is None:
        raise InputError(
            "Where several processes train, `realm embed` and `realm index` "
            "make the first index: name it with --index."
        )
    if recipe.candidates.search == "partitions":
        raise InputError(
            "Where several processes train, each would make the partitions of "
            "every index anew: add --set search=exact, which spreads the rows "
            "over all devices."
        )
    if writer:
        raise InputError(
            "--tensorboard shows what one process computes: leave it out "
            "where several train. log.jsonl has the same numbers."
        )


class Pretraining:
    """One run of pre-training.

    Args:
        recipe: `PretrainRecipe`.
        loaded: `LoadedModel`. It is trained.
        stage: `artifact.Stage`. Its metadata get what the run measures.
        blocks: `Blocks`. What is retrieved.
        passages: `Passages`. What is masked.
        writer: `TensorBoardWriter`. Defaults to `None`.
        fit: dict. More arguments of `resume.fit`.
    """

    def __init__(
        self, recipe, loaded, stage, *, blocks, passages, writer=None, fit
    ):
        self._recipe = recipe
        self._loaded = loaded
        self._stage = stage
        self._blocks = run_directory.open_blocks(
            blocks, recipe.lengths.max_block_length
        )
        self._passages = run_directory.open_passages(
            passages, loaded.tokenizer, stage
        )
        self._writer = writer
        self._fit_arguments = fit
        self._versions = IndexVersions(stage.path(run_directory.INDEX))
        trainers.prepare(loaded.model, recipe)
        self._embedder = BlockEmbedder(
            loaded,
            max_length=recipe.lengths.max_block_length,
        )

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
        parts = self._log(
            MASKED_LM_LOG, recipe.masked_lm_steps, prefix=_MASKED_LM
        )
        self._stage.metadata["masked_lm_history"] = resume.fit(
            trainers.make_masked_lm_trainer(self._loaded, self._recipe),
            examples.batches,
            num_steps=recipe.masked_lm_steps,
            steps_per_epoch=examples.steps_per_epoch,
            directory=self._stage.path(run_directory.MASKED_LM_CHECKPOINT),
            parts=parts,
            **self._fit_arguments,
        )

    def train(self, model, index, *, callbacks=()) -> None:
        """Trains `RealmModel`.

        Args:
            model: `Model`. What `loaded` was loaded from.
            index: `Index` to start with, or `None`: the blocks are embedded.
            callbacks: list of `keras.callbacks.Callback`.
        """
        recipe = self._recipe
        examples = PretrainingExamples(
            self._passages, **self._masking(recipe.batch_size)
        )
        embeddings = self._first_embeddings(index)
        trainer = trainers.make_realm_trainer(
            self._loaded, self._blocks, recipe, embeddings=embeddings
        )
        with contextlib.ExitStack() as stack:
            refresh = self._refresh(trainer.index, model, stack)
            parts = {_REFRESH: refresh}
            if recipe.num_held_out:
                parts[_HELD_OUT] = self._held_out()
            parts |= self._log(LOG, recipe.num_steps)
            if self._writer:
                samples = self._samples(examples.batch(0, 0))
                callbacks = [samples, *callbacks]
            history = resume.fit(
                trainer,
                examples.batches,
                num_steps=recipe.num_steps,
                steps_per_epoch=examples.steps_per_epoch,
                directory=self._stage.path(run_directory.CHECKPOINT),
                parts=parts,
                callbacks=callbacks,
                **self._fit_arguments,
            )
        if recipe.num_held_out:
            self._stage.metadata.update(
                held_out=parts[_HELD_OUT].measured,
                best_step=parts[_HELD_OUT].restore_best(),
            )
        if recipe.index.refresh != "sync" and recipe.index.num_steps:
            self._stage.metadata["index_swaps"] = refresh.swaps
        self._stage.metadata.update(
            history=history,
            counts={
                **examples.counts,
                "examples_an_epoch": examples.num_examples,
                "steps": recipe.num_steps,
            },
        )

    def _first_embeddings(self, index):
        """What the next step searches, float32 `(num_blocks, dim)`."""
        directory = self._stage.path(run_directory.CHECKPOINT)
        state = resume.state_of(directory, _REFRESH)
        if state is not None:
            return self._versions.read(state["index_step"])
        if hosts.is_first():
            self._versions.write(
                0, self._embed() if index is None else index.embeddings
            )
        hosts.meet("blocks are embedded")
        return self._versions.read(0)

    def _log(self, name, num_steps, *, prefix=""):
        return log_of(
            self._stage.path(name),
            every_steps=self._recipe.log_every,
            num_steps=num_steps,
            writer=self._writer,
            prefix=prefix,
        )

    def _held_out(self):
        recipe = self._recipe
        size = min(recipe.batch_size, recipe.num_held_out)
        examples = PretrainingExamples(
            self._passages, of_held_out=True, **self._masking(size)
        )
        return HeldOut(
            [
                examples.batch(0, step)
                for step in range(examples.steps_per_epoch)
            ],
            self._loaded.model,
            self._stage.path(run_directory.SELECTION),
            every_steps=recipe.index.num_steps,
            num_steps=recipe.num_steps,
        )

    def _samples(self, batch):
        from realm_tf.training.retrieval_samples import RetrievalSamples

        return RetrievalSamples(
            {name: value[:_NUM_SAMPLES] for name, value in batch.items()},
            self._loaded.tokenizer.vocabulary,
            self._writer.text,
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

    def _embed(self, *_):
        return index_builder.embed_blocks(self._embedder, self._blocks)

    def _refresh(self, index, model, stack):
        settings = self._recipe.index
        wait = settings.refresh == "sync" or not settings.num_steps
        if wait:
            build = self._embed
        elif not hosts.is_first():
            build = None
        else:
            build = index_builder.builder(
                settings,
                self._loaded,
                self._blocks,
                max_block_length=self._recipe.lengths.max_block_length,
                model=model,
                stage=self._stage,
                stack=stack,
            )
        refresh = IndexRefresh(
            index,
            self._loaded.model.block_embedder,
            build,
            versions=self._versions,
            every_steps=settings.num_steps,
            wait=wait,
        )
        stack.callback(refresh.close)
        return refresh
