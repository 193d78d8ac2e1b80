"""Builds the index of a trainer's block tower while the trainer goes on.

A builder is a function of the tower's weights and of a `threading.Event`, set
when the result is not needed any more, that gives the embeddings of all blocks.
"""

import concurrent.futures
import contextlib
import os
import subprocess
import sys

import keras
import numpy as np

from realm_tf.artifacts.paths import absolute
from realm_tf.configs.recipes import EMBEDDED_ON_ACCELERATORS
from realm_tf.models.precision import FLOAT32
from realm_tf.models.precision import accelerator
from realm_tf.retrieval.block_embedder import BlockEmbedder
from realm_tf.training import exchange
from realm_tf.training import hosts
from realm_tf.training import run_directory
from realm_tf.training.index_refresh import IndexRefresh
from realm_tf.training.resume import Diverged

# Blocks embedded at once (our choice): of like length, so a batch of them is
# hardly padded.
_BATCH_SIZE = 64
_SECONDS_BETWEEN_LOOKS = 0.1
# What a process of its own runs.
_PROCESS = "realm_tf.operations.rebuild_index"


def embed_blocks(
    embedder, blocks, *, numbers=None, after_batch=lambda: None
) -> np.ndarray:
    """The embeddings of blocks, with the tower as it is.

    Args:
        embedder: `BlockEmbedder`.
        blocks: `BlockRecords`.
        numbers: range. Which of them. Defaults to `None`: all.
        after_batch: function without arguments. What it raises ends this.

    Returns:
        float32 array `(num_blocks, embedding_dim)`.

    Raises:
        Diverged: if one is not finite.
    """
    numbers = range(len(blocks)) if numbers is None else numbers

    def read(places):
        rows = [blocks[numbers[place]] for place in places.tolist()]
        return (
            [block.title_ids for block in rows],
            [block.token_ids for block in rows],
        )

    lengths = blocks.count_wordpieces()[numbers.start : numbers.stop]
    found = embedder.embed_all(
        lengths,
        read,
        batch_size=EMBEDDED_ON_ACCELERATORS if accelerator() else _BATCH_SIZE,
        after_batch=lambda _: after_batch(),
    )
    if not np.isfinite(found).all():
        raise Diverged(
            "Embeddings of blocks are not finite: the block tower's weights "
            "are lost. Train again with a lower learning rate, such as --set "
            "learning_rate=1e-5."
        )
    return found


def keep_index(
    settings,
    index,
    loaded,
    blocks,
    *,
    versions,
    max_block_length: int,
    model,
    stage,
    stack,
) -> IndexRefresh:
    """The callback that refreshes an index, with the recipe's builder.

    Args:
        settings: `configs.recipes.Refresh`.
        index: see `IndexRefresh`.
        loaded: `LoadedModel`. The trainer's, whose block tower learns.
        blocks: `BlockRecords`.
        versions: `IndexVersions`.
        max_block_length: int. As the trainer's.
        model: `Model`. What `loaded` was loaded from.
        stage: `artifact.Stage`. The trainer's output.
        stack: `contextlib.ExitStack`. It ends what is started.
    """
    build = None
    if settings.refresh_every and hosts.is_first():
        if settings.refresh == "process":
            # Its processor may be another one than the trainer's.
            is_float32 = keras.config.dtype_policy().compute_dtype == FLOAT32
            build = ProcessBuilders(
                absolute(stage.path(run_directory.EXCHANGE)),
                {
                    "model": absolute(model.directory),
                    "blocks": absolute(blocks.directory),
                    "max_block_length": max_block_length,
                    "precision": FLOAT32 if is_float32 else "auto",
                },
                num_blocks=len(blocks),
                num_processes=settings.num_builders,
            )
            stack.callback(build.close)
        else:
            build = builder_in_process(
                loaded, blocks, max_block_length=max_block_length
            )
    refresh = IndexRefresh(
        index,
        loaded.model.block_embedder,
        build,
        versions=versions,
        every_steps=settings.refresh_every,
        wait=settings.refresh == "sync" or not settings.refresh_every,
    )
    stack.callback(refresh.close)
    return refresh


def builder_in_process(loaded, blocks, *, max_block_length: int):
    """Builds in the trainer's process, with a tower of its own.

    In a thread, it shares the devices' time with the trainer.

    Args:
        loaded: `LoadedModel`. The trainer's.
        blocks: `BlockRecords`.
        max_block_length: int. As the trainer's.

    Returns:
        A builder.
    """
    # A thread has none of its own: it would let each device compute all.
    scope = contextlib.nullcontext
    if distribution := keras.distribution.distribution():
        scope = distribution.scope
    tower = loaded.model.block_embedder.copy()
    embedder = BlockEmbedder(loaded, max_length=max_block_length, tower=tower)

    def build(weights, stopped):
        def check():
            if stopped.is_set():
                raise concurrent.futures.CancelledError

        with scope():
            tower.set_weights(weights)
            return embed_blocks(embedder, blocks, after_batch=check)

    return build


class ProcessBuilders:
    """Lets processes of their own build, at a low priority, on the processor.

    They meet in a directory, see `training.exchange`; others may join them
    there, from any machine that mounts it. Those that were started here end
    when the trainer ends, however that ends; what one printed is in
    `builder-N.log` beside the rest.

    Args:
        directory: str. What an earlier run left there is removed.
        task: dict. What builders open, see `operations.rebuild_index`.
        num_blocks: int.
        num_processes: int. Builders to start here; 0: only others build.
            Defaults to `1`.

    Raises:
        ChildProcessError: when it is called, if all processes end; others are
            started by the next call.
    """

    def __init__(
        self,
        directory: str,
        task: dict,
        *,
        num_blocks: int,
        num_processes: int = 1,
    ):
        rows = exchange.rows_of_ranges(num_blocks)
        self._exchange = exchange.Exchange(directory)
        self._exchange.begin(
            {**task, "num_blocks": num_blocks, "rows_per_range": rows}
        )
        self._processes = [None] * num_processes

    def __call__(self, weights, stopped):
        name = self._exchange.offer(weights)
        self._start()
        while True:
            found = self._exchange.collect(name)
            if found is not None:
                return found
            self._check()
            if stopped.wait(_SECONDS_BETWEEN_LOOKS):
                raise concurrent.futures.CancelledError

    def _start(self):
        for number, process in enumerate(self._processes):
            if process is None or process.poll() is not None:
                _end(process)
                self._processes[number] = self._started(number)

    def _check(self):
        if self._processes and all(
            p.poll() is not None for p in self._processes
        ):
            with open(self._log(0), errors="replace") as log:
                last_line = log.read().strip().rpartition("\n")[2]
            raise ChildProcessError(
                f"the builder stopped (exit status "
                f"{self._processes[0].returncode}; {self._log(0)} ends with "
                f"{last_line!r})"
            )

    def _started(self, number):
        environment = dict(
            os.environ,
            KERAS_BACKEND=keras.backend.backend(),
            # The accelerator is the trainer's.
            JAX_PLATFORMS="cpu",
            CUDA_VISIBLE_DEVICES="",
        )
        for name in hosts.VARIABLES:
            environment.pop(name, None)
        with open(self._log(number), "ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", _PROCESS, "--with-trainer"),
                    *("--exchange", self._exchange.directory),
                ],
                # Closed by the system when the trainer is gone.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def _log(self, number):
        name = f"builder-{number}{exchange.LOG}"
        return os.path.join(self._exchange.directory, name)

    def close(self) -> None:
        """Ends the processes, whatever they are doing."""
        for process in self._processes:
            _end(process)


def _end(process):
    if process is not None:
        process.kill()
        process.wait()
        process.stdin.close()
