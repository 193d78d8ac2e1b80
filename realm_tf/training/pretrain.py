"""Pre-trains retriever and encoder: retrieve, then predict what is masked.

  realm pretrain --recipe wiki-small --model DIR --blocks DIR --corpus DIR \\
      --output DIR [--set num_steps=1000]

--corpus is what `realm annotate` or `realm pack --annotated` wrote: sentences
with salient spans to mask, of these blocks or of another corpus. A new model
directory is written when the last step is done; its reader starts from the
pre-trained encoder. A run that was stopped goes on where it was with the same
command.
"""

import contextlib
import dataclasses
import functools

import numpy as np

from realm_tf.artifacts import packed_blocks
from realm_tf.artifacts import packed_passages
from realm_tf.artifacts import schema
from realm_tf.configs import pretrain as configs
from realm_tf.configs import recipes
from realm_tf.data.masked_lm_warm_up import ReadingExamples
from realm_tf.data.masked_queries import PretrainingExamples
from realm_tf.errors import InputError
from realm_tf.training import run_directory
from realm_tf.training import trainers

# Masked sentences that TensorBoard shows, and how often where the index is
# never refreshed.
_NUM_SAMPLES = 4
_SAMPLES_EVERY = 500
# Before the names of what it shows of the warm-up.
_MASKED_LM = "masked_lm/"
# Blocks that each of several devices embeds at once.
_EMBEDDED_AT_ONCE = 8
# For Beam, with refresh=pipeline.
ACCEPTS_EXTRA = True


def add_arguments(parser):
    """Arguments of `realm pretrain`."""
    recipes.add_arguments(parser, configs.RECIPES, default="wiki-small")
    parser.add_argument("--model", required=True, help="model directory")
    parser.add_argument(
        "--blocks",
        required=True,
        help="what is retrieved: directory of `realm chunk`, or of `realm "
        "pack`",
    )
    parser.add_argument(
        "--corpus",
        required=True,
        help="what is masked: directory of `realm annotate`, or of `realm "
        "pack --annotated`",
    )
    parser.add_argument("--output", required=True, help="directory to make")
    parser.add_argument(
        "--index",
        help="index directory of this model and these blocks, to start with "
        "(default: the blocks are embedded first)",
    )
    parser.add_argument(
        "--tensorboard",
        metavar="DIR",
        help="write curves and samples for TensorBoard there",
    )


def run(args, extra):
    """`realm pretrain`."""
    recipe = configs.get_recipe(args.recipe, args.overrides)
    if extra and recipe.refresh != "pipeline":
        raise InputError(
            f"unknown options: {' '.join(extra)} (only refresh=pipeline has "
            "Beam options). See `realm pretrain --help`."
        )
    history = pretrain(
        args.model,
        args.blocks,
        args.corpus,
        args.output,
        index=args.index,
        recipe=recipe,
        tensorboard=args.tensorboard,
        beam_options=extra,
    )
    last = history[-1] if history else {}
    print(args.output, *(f"{name} {v:.3f}" for name, v in last.items()))


def pretrain(
    model: str,
    blocks: str,
    corpus: str,
    output: str,
    *,
    recipe: configs.PretrainRecipe,
    index: str | None = None,
    tensorboard: str | None = None,
    beam_options=(),
    verbose: int | str = "auto",
    callbacks=(),
    save_every_seconds: float = 300.0,
    save_every_steps: int | None = None,
) -> list[dict]:
    """Pre-trains a model directory and writes a new one.

    Shared towers stay shared. All blocks are embedded before the first step,
    and again about every `refresh_every` steps; see `PretrainRecipe`.

    Args:
        model: str. Model directory to start from; one without masked-LM head
            gets a new one.
        blocks: str. Blocks directory, or one that `realm pack` made of it.
        corpus: str. Annotated directory, or one that `realm pack` made of it.
        output: str. Model directory to make, on a local disk.
        recipe: `PretrainRecipe`.
        index: str. Index directory to start with. Defaults to `None`: the
            blocks are embedded first.
        tensorboard: str. Directory for TensorBoard: the curves of the log,
            and masked sentences with their blocks. Defaults to `None`.
        beam_options: list of str. Of the builder, with
            `refresh="pipeline"`.
        verbose: int or str. As `training.resume.fit`. Defaults to `"auto"`.
        callbacks: list of `keras.callbacks.Callback`.
        save_every_seconds: float. See `training.resume.fit`. Defaults to
            `300.0`.
        save_every_steps: int. See there. Defaults to `None`.

    Returns:
        list of dict, the metrics of each epoch.

    Raises:
        InputError: if the inputs do not belong together.
    """

    from realm_tf.artifacts import model_directory
    from realm_tf.training import devices
    from realm_tf.training.training_log import TensorBoardWriter

    # First: a mistake here must cost no run that waits to go on.
    writer = TensorBoardWriter(tensorboard) if tensorboard else None
    with devices.of_recipe(recipe):
        loaded = model_directory.load(model)
        parents = _check(loaded, model, blocks, corpus, recipe)
        embeddings = _read_index(index, loaded, parents)
        with run_directory.write_model(
            output, parameters=dataclasses.asdict(recipe), parents=parents
        ) as stage:
            run = _Run(
                loaded,
                recipe,
                stage,
                blocks=run_directory.open_blocks(
                    blocks, stage, max_length=recipe.max_block_length
                ),
                passages=run_directory.open_passages(
                    corpus, loaded.tokenizer, stage
                ),
                fit_arguments={
                    "every_seconds": save_every_seconds,
                    "every_steps": save_every_steps,
                    "verbose": verbose,
                },
            )
            history = run.train_masked_lm(writer)
            if recipe.num_steps:
                history = run.train(
                    embeddings,
                    writer=writer,
                    worker_arguments={
                        "model": model,
                        "blocks": blocks,
                        "beam_options": beam_options,
                    },
                    callbacks=callbacks,
                )
            model_directory.write_files(loaded, stage)
    return history


def _check(loaded, model, blocks, corpus, recipe):
    """The parents of the run, if all belongs together."""
    metadata = run_directory.check_blocks(
        blocks, loaded, model=model, recipe=recipe
    )
    if recipe.refresh == "pipeline" and metadata["kind"] != schema.BLOCKS:
        raise InputError(
            f"{blocks} is packed; refresh=pipeline embeds what `realm chunk` "
            "wrote: give that directory as --blocks."
        )
    fingerprint = packed_blocks.blocks_fingerprint(metadata)
    corpus_metadata = packed_passages.read_metadata(corpus)
    # Else the block a sentence is from could not be told.
    if packed_passages.blocks_fingerprint(corpus_metadata) not in (
        None,
        fingerprint,
    ):
        raise InputError(
            f"{corpus} was annotated from other blocks than {blocks}: "
            "annotate these, or the articles of another corpus with `realm "
            "annotate --input`."
        )
    return {
        "model": loaded.metadata["fingerprint"],
        "blocks": fingerprint,
        "corpus": corpus_metadata["fingerprint"],
    }


def _read_index(index, loaded, parents):
    """The embeddings of an index of this model, if there is one."""
    if index is None:
        return None
    from realm_tf.artifacts import index_files

    index_files.check_parents(
        index,
        block_tower=loaded.block_tower_fingerprint(),
        blocks=parents["blocks"],
    )
    return index_files.load_embeddings(index)


class _Run:
    """The parts of one run, put together."""

    def __init__(
        self, loaded, recipe, stage, *, blocks, passages, fit_arguments
    ):
        import keras

        from realm_tf.retrieval.block_embedder import BlockEmbedder
        from realm_tf.training import devices

        self._loaded = loaded
        self._recipe = recipe
        self._stage = stage
        self._blocks = blocks
        self._passages = passages
        self._fit_arguments = fit_arguments
        trainers.prepare(loaded.model, recipe)
        self._embedder = BlockEmbedder(
            loaded,
            max_length=recipe.max_block_length,
            # Of every batch, each device takes its part.
            predict=functools.partial(
                devices.predict,
                batch_size=_EMBEDDED_AT_ONCE
                * len(keras.distribution.list_devices()),
            )
            if keras.distribution.distribution()
            else None,
        )

    def train_masked_lm(self, writer):
        """Trains the encoder alone, if the recipe says so."""
        from realm_tf.training.training_log import MASKED_LM_LOG
        from realm_tf.training.training_log import TrainingLog

        recipe = self._recipe
        if not recipe.masked_lm_steps:
            return []
        examples = ReadingExamples(
            self._passages,
            self._blocks,
            own_share=recipe.masked_lm_own_block,
            answer_share=recipe.masked_lm_answer_block,
            other_share=recipe.masked_lm_other_block,
            window=recipe.masked_lm_window,
            **self._masking(recipe.masked_lm_batch_size),
        )
        trainer = trainers.make_masked_lm_trainer(self._loaded, recipe)
        log = TrainingLog(
            self._stage.path(MASKED_LM_LOG),
            every_steps=recipe.log_every,
            num_steps=recipe.masked_lm_steps,
            on_line=[functools.partial(writer.scalars, prefix=_MASKED_LM)]
            if writer
            else [],
        )
        history = self._fit(
            trainer,
            examples,
            num_steps=recipe.masked_lm_steps,
            directory=run_directory.MASKED_LM_CHECKPOINT,
            callbacks=[log],
            parts={"training_log": log},
        )
        self._stage.metadata["masked_lm_history"] = history
        return history

    def train(self, embeddings, *, writer, worker_arguments, callbacks):
        """Trains `RealmModel`; `embeddings` as `_read_index` gives them."""
        from realm_tf.training import resume
        from realm_tf.training.duty_cycle import measure_duty_cycle
        from realm_tf.training.retrieval_age import RetrievalAge
        from realm_tf.training.training_log import LOG
        from realm_tf.training.training_log import TrainingLog

        recipe = self._recipe
        examples = PretrainingExamples(
            self._passages, **self._masking(recipe.batch_size)
        )
        if resume.has_state(self._stage.path(run_directory.CHECKPOINT)):
            # It holds the index.
            shape = len(self._blocks), self._embedder.embedding_dim
            embeddings = np.zeros(shape, "float32")
        elif embeddings is None:
            embeddings = self._embed()
        trainer = trainers.make_realm_trainer(
            self._loaded, self._blocks, recipe, embeddings=embeddings
        )
        log = TrainingLog(
            self._stage.path(LOG),
            every_steps=recipe.log_every,
            num_steps=recipe.num_steps,
            on_line=[writer.scalars] if writer else [],
        )
        parts = {"training_log": log}
        batch = examples.batch(0, 0)
        with contextlib.ExitStack() as stack:
            retriever = None
            if recipe.retrieval == "host":
                retriever = stack.enter_context(
                    contextlib.closing(self._retriever(trainer, embeddings))
                )
                parts["host_retriever"] = retriever
            parts["index_refresh"] = refresh = stack.enter_context(
                self._refresh(retriever or trainer.index, **worker_arguments)
            )
            if writer:
                samples = self._samples(batch, writer, retriever)
                callbacks = [samples, *callbacks]
            history = self._fit(
                trainer,
                examples,
                num_steps=recipe.num_steps,
                directory=run_directory.CHECKPOINT,
                callbacks=[
                    refresh,
                    *([RetrievalAge(retriever)] if retriever else []),
                    log,
                    *callbacks,
                ],
                parts=parts,
                retriever=retriever,
            )
            if retriever:
                batch = retriever.add_candidates(batch)
        self._stage.metadata.update(
            history=history,
            counts={
                **examples.counts,
                "examples_an_epoch": examples.num_examples,
                "steps": recipe.num_steps,
            },
        )
        if recipe.measure_duty_cycle:
            share = measure_duty_cycle(trainer, batch)
            self._stage.metadata["duty_cycle"] = share
        return history

    def _retriever(self, trainer, embeddings):
        from realm_tf.retrieval.host_retrieval import HostRetriever
        from realm_tf.retrieval.numpy_index import NumpyIndex
        from realm_tf.retrieval.scann import Scann

        make = {"exact": NumpyIndex, "scann": Scann.build}
        open_qa = self._loaded.model
        return HostRetriever(
            self._blocks,
            embeddings,
            query_tower=open_qa.query_embedder,
            num_searched=trainer.num_searched,
            max_block_length=self._recipe.max_block_length,
            score_scale=open_qa.score_scale,
            make_index=make[self._recipe.search],
            directory=self._stage.path(run_directory.RETRIEVAL),
        )

    def _samples(self, batch, writer, retriever):
        from realm_tf.training.retrieval_samples import RetrievalSamples

        return RetrievalSamples(
            {name: value[:_NUM_SAMPLES] for name, value in batch.items()},
            self._loaded.tokenizer,
            writer.text,
            every_steps=self._recipe.refresh_every or _SAMPLES_EVERY,
            num_steps=self._recipe.num_steps,
            retriever=retriever,
        )

    def _masking(self, batch_size):
        recipe = self._recipe
        return {
            "batch_size": batch_size,
            "seed": recipe.seed,
            "mode": recipe.mode,
            "max_query_length": recipe.max_query_length,
            "max_masked": recipe.max_masked,
        }

    def _embed(self):
        from realm_tf.training import index_builder

        return index_builder.embed_blocks(self._embedder, self._blocks)

    @contextlib.contextmanager
    def _refresh(self, index, *, model, blocks, beam_options):
        from realm_tf.training import index_refresh
        from realm_tf.training.index_exchange import IndexExchange

        recipe = self._recipe
        every_steps = recipe.refresh_every * recipe.stale_factor
        if recipe.refresh == "sync" or not every_steps:
            yield index_refresh.SyncIndexRefresh(
                index, self._embed, every_steps=every_steps
            )
            return
        exchange = IndexExchange(self._stage.path(run_directory.EXCHANGE))
        refresh = index_refresh.IndexRefresh(
            index,
            self._loaded.model.block_embedder,
            exchange,
            self._worker(exchange, model, blocks, beam_options),
            every_steps=every_steps,
        )
        with contextlib.closing(refresh):
            yield refresh
        self._stage.metadata["index_swaps"] = refresh.swaps

    def _worker(self, exchange, model, blocks, beam_options):
        from realm_tf.training import index_builder

        length = self._recipe.max_block_length
        if self._recipe.refresh == "thread":
            return index_builder.ThreadWorker(
                exchange, self._loaded, self._blocks, max_block_length=length
            )
        pipeline = self._recipe.refresh == "pipeline"
        arguments = [
            *("--model", model, "--max-block-length", str(length)),
            *("--blocks", blocks if pipeline else self._blocks.directory),
        ]
        if pipeline:
            arguments += ["--pipeline", *beam_options]
        return index_builder.ProcessWorker(exchange, arguments)

    def _fit(
        self, trainer, examples, *, directory, retriever=None, **arguments
    ):
        from realm_tf.data import feeding
        from realm_tf.training import resume

        batches = examples.batches
        if retriever:
            prefetch = self._recipe.retrieval_prefetch
            batches = retriever.batches(batches, prefetch=prefetch)
            if not prefetch:
                arguments["feed"] = feeding.on_demand
        return resume.fit(
            trainer,
            batches,
            steps_per_epoch=examples.steps_per_epoch,
            directory=self._stage.path(directory),
            **self._fit_arguments,
            **arguments,
        )
