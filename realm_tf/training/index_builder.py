"""Builds the index of a trainer's block tower while the trainer goes on.

A builder has `start()`, `build(step, weights, stopped)`, which gives the
embeddings of all blocks, and `stop()`.
"""

import concurrent.futures
import dataclasses
import os
import subprocess
import sys

import numpy as np

from realm_tf.retrieval.block_embedder import BlockEmbedder
from realm_tf.training.callbacks import Diverged

# Blocks embedded at once (our choice): of like length, so a batch of them is
# hardly padded.
_BATCH_SIZE = 64
_SECONDS_BETWEEN_LOOKS = 0.1
# What a process of its own runs.
_PROCESS = "realm_tf.operations.rebuild_index"
_LOG = "builder.log"
# Of the log's end, in a message.
_SHOWN_BYTES = 2000


def embed_blocks(embedder, blocks, *, before_batch=lambda: None) -> np.ndarray:
    """The embeddings of all blocks, with the tower as it is.

    Args:
        embedder: `BlockEmbedder`.
        blocks: `PackedBlocks`.
        before_batch: function without arguments. What it raises ends this.

    Returns:
        float32 array `(num_blocks, embedding_dim)`.

    Raises:
        Diverged: if one is not finite.
    """
    found = np.empty((len(blocks), embedder.embedding_dim), "float32")
    order = np.argsort(blocks.count_wordpieces(), kind="stable")
    for first in range(0, len(order), _BATCH_SIZE):
        before_batch()
        places = order[first : first + _BATCH_SIZE]
        rows = [blocks[place] for place in places.tolist()]
        found[places], _ = embedder.embed_ids(
            [block.title_ids for block in rows],
            [block.token_ids for block in rows],
        )
    if not np.isfinite(found).all():
        raise Diverged(
            "Embeddings of blocks are not finite: the block tower's weights "
            "are lost. Train again with a lower learning rate, such as --set "
            "learning_rate=1e-5."
        )
    return found


class ThreadBuilder:
    """Builds in a thread of the trainer's process, with a tower of its own.

    It shares the processor's time with the trainer: for a small corpus, or
    where a step leaves the processor idle.

    Args:
        loaded: `LoadedModel`. The trainer's.
        blocks: `PackedBlocks`.
        max_block_length: int. As the trainer's.
    """

    def __init__(self, loaded, blocks, *, max_block_length: int):
        from realm_tf.models.open_qa import OpenQa

        self._tower = loaded.model.block_embedder.copy()
        own = OpenQa(self._tower, self._tower, loaded.model.reader)
        self._embedder = BlockEmbedder(
            dataclasses.replace(loaded, model=own), max_length=max_block_length
        )
        self._blocks = blocks

    def start(self):
        """Nothing: the thread is `IndexRefresh`'s."""

    def build(self, step, weights, stopped):
        """The embeddings of all blocks, with these weights of the tower."""

        def check():
            if stopped.is_set():
                raise concurrent.futures.CancelledError

        self._tower.set_weights(weights)
        return embed_blocks(self._embedder, self._blocks, before_batch=check)

    def stop(self):
        """Nothing; see `start`."""


class ProcessBuilder:
    """Lets a process of its own build, at a low priority, on the processor.

    Its output goes to `builder.log` in the exchange's directory. It ends when
    the trainer ends, however that ends.

    Args:
        exchange: `IndexExchange`.
        arguments: list of str. Of `operations.rebuild_index`, less
            `--exchange`.
    """

    def __init__(self, exchange, arguments):
        self._exchange = exchange
        self._command = [
            *(sys.executable, "-m", _PROCESS),
            *("--exchange", exchange.directory),
            *arguments,
        ]
        self._log = os.path.join(exchange.directory, _LOG)
        self._process = None

    @property
    def process_id(self) -> int:
        """Of the process that was started last."""
        return self._process.pid

    def start(self):
        """Begins, or begins again after it died."""
        import keras

        # What is left of one that died, and of another run.
        self.stop()
        self._exchange.clear()
        environment = dict(
            os.environ,
            KERAS_BACKEND=keras.backend.backend(),
            # The accelerator is the trainer's.
            JAX_PLATFORMS="cpu",
            CUDA_VISIBLE_DEVICES="",
        )
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                # Closed by the system when the trainer is gone.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def build(self, step, weights, stopped):
        """As `ThreadBuilder`'s.

        Raises:
            ChildProcessError: if the process ended.
            InputError: if its index is damaged.
        """
        if self._process.poll() is not None:
            self.start()
        self._exchange.write_snapshot(step, weights)
        while self._exchange.newest_index() != step:
            status = self._process.poll()
            if status is not None:
                raise ChildProcessError(
                    f"the builder stopped (exit status {status}; {self._log} "
                    f"ends with {self._last_line()!r})"
                )
            if stopped.wait(_SECONDS_BETWEEN_LOOKS):
                raise concurrent.futures.CancelledError
        return self._exchange.read_index(step)

    def _last_line(self):
        with open(self._log, "rb") as log:
            log.seek(max(0, os.path.getsize(self._log) - _SHOWN_BYTES))
            text = log.read().decode("utf-8", "replace")
        return text.strip().rpartition("\n")[2].strip()

    def stop(self):
        """Ends it, whatever it is doing."""
        if self._process is not None:
            # Versions appear whole or not at all: nothing can be torn.
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
