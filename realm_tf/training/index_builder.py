"""Builds the index of a trainer's block tower while the trainer goes on.

A builder is a function of the tower's weights and of a `threading.Event`, set
when the result is not needed any more, that gives the embeddings of all blocks.
"""

import concurrent.futures
import os
import subprocess
import sys

import numpy as np

from realm_tf.artifacts import weight_files
from realm_tf.artifacts.paths import remove
from realm_tf.retrieval.block_embedder import BlockEmbedder
from realm_tf.training.callbacks import Diverged

# Blocks embedded at once (our choice): of like length, so a batch of them is
# hardly padded.
_BATCH_SIZE = 64
_SECONDS_BETWEEN_LOOKS = 0.1
# What a process of its own runs.
_PROCESS = "realm_tf.operations.rebuild_index"
_LOG = "builder.log"
# What it takes and leaves.
WEIGHTS = "weights.npz"
EMBEDDINGS = "embeddings.npz"


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


def thread_builder(loaded, blocks, *, max_block_length: int):
    """Builds in the trainer's process, with a tower of its own.

    It shares the processor's time with the trainer: for a small corpus, or
    where a step leaves the processor idle.

    Args:
        loaded: `LoadedModel`. The trainer's.
        blocks: `PackedBlocks`.
        max_block_length: int. As the trainer's.

    Returns:
        A builder.
    """
    tower = loaded.model.block_embedder.copy()
    embedder = BlockEmbedder(loaded, max_length=max_block_length, tower=tower)

    def build(weights, stopped):
        def check():
            if stopped.is_set():
                raise concurrent.futures.CancelledError

        tower.set_weights(weights)
        return embed_blocks(embedder, blocks, before_batch=check)

    return build


class ProcessBuilder:
    """Lets a process of its own build, at a low priority, on the processor.

    They meet in a directory: the trainer leaves weights there, the process
    takes them away and leaves embeddings. Its output goes to `builder.log`
    beside them. It ends when the trainer ends, however that ends.

    Args:
        directory: str. Local; what an earlier run left there is removed.
        arguments: list of str. Of `operations.rebuild_index`, less
            `--exchange`.

    Raises:
        ChildProcessError: when it is called, if the process ends; another is
            started by the next call.
        InputError: when it is called, if the embeddings are damaged.
    """

    def __init__(self, directory: str, arguments):
        remove(directory)
        os.makedirs(directory)
        self._weights = os.path.join(directory, WEIGHTS)
        self._embeddings = os.path.join(directory, EMBEDDINGS)
        self._log = os.path.join(directory, _LOG)
        self._command = [
            *(sys.executable, "-m", _PROCESS, "--exchange", directory),
            *arguments,
        ]
        self._process = None

    def __call__(self, weights, stopped):
        if self._process is None or self._process.poll() is not None:
            self._start()
        remove(self._embeddings)
        weight_files.write(self._weights, weight_files.by_number(weights))
        while not os.path.exists(self._embeddings):
            status = self._process.poll()
            if status is not None:
                raise ChildProcessError(
                    f"the builder stopped (exit status {status}; {self._log} "
                    f"ends with {self._last_line()!r})"
                )
            if stopped.wait(_SECONDS_BETWEEN_LOOKS):
                raise concurrent.futures.CancelledError
        return weight_files.read(self._embeddings)["embeddings"]

    def _start(self):
        import keras

        # What is left of one that died.
        self.close()
        remove(self._weights)
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

    def _last_line(self):
        with open(self._log, errors="replace") as log:
            return log.read().strip().rpartition("\n")[2].strip()

    def close(self) -> None:
        """Ends the process, whatever it is doing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
