"""Builds indices while a trainer goes on: a thread, a process, a pipeline.

A worker takes the newest snapshot of the trainer's block tower, embeds all
blocks, publishes an index, and begins again (`IndexExchange`). As a process
of its own it has a low priority and ends with the trainer:

  python -m realm_tf.training.index_builder --model DIR --blocks DIR
      --exchange DIR --max-block-length N [--pipeline [Beam options]]
"""

import abc
import argparse
import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import index_files
from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError
from realm_tf.operations.build_index import BuildIndex
from realm_tf.training.callbacks import Diverged
from realm_tf.training.index_exchange import IndexExchange

# Blocks embedded at once (our choice): of like length, so a batch of them is
# hardly padded.
_BATCH_SIZE = 64
_SECONDS_BETWEEN_LOOKS = 0.2
# The trainer reads the newest while the one before may still be in use.
_KEPT_INDICES = 2
# A tenth of the trainer's share of a busy core (our choice).
_NICENESS = 10
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


class TowerBuild:
    """Makes the index of a snapshot in this process.

    Args:
        exchange: `IndexExchange`.
        loaded: `LoadedModel`. Its block tower takes the snapshot's weights.
        blocks: `PackedBlocks`.
        max_block_length: int. As the trainer's.
    """

    def __init__(self, exchange, loaded, blocks, *, max_block_length: int):
        from realm_tf.retrieval.block_embedder import BlockEmbedder

        self._exchange = exchange
        self._loaded = loaded
        self._blocks = blocks
        # What it raises ends the making of an index.
        self.before_batch = lambda: None
        self._embedder = BlockEmbedder(loaded, max_length=max_block_length)

    def __call__(self, step: int) -> None:
        """Publishes the index of a snapshot, unless it is gone."""
        snapshot = self._exchange.read_snapshot(step)
        self._loaded.model.block_embedder.set_weights(snapshot.weights)
        index_files.write_exact(
            embed_blocks(
                self._embedder, self._blocks, before_batch=self.before_batch
            ),
            self._exchange.index_path(step),
            parents={
                "block_tower": self._loaded.block_tower_fingerprint(),
                "blocks": self._blocks.fingerprint,
            },
        )


class PipelineBuild:
    """Makes the index of a snapshot with the pipelines of `realm`.

    Blocks are embedded whole, as `realm embed` does. What a killed run left
    is used again.

    Args:
        exchange: `IndexExchange`.
        loaded: `LoadedModel`. Its block tower takes the snapshot's weights.
        blocks: str. Directory that `realm chunk` wrote.
        beam_options: list of str.
    """

    def __init__(self, exchange, loaded, blocks: str, *, beam_options=()):
        self._exchange = exchange
        self._loaded = loaded
        self._blocks = blocks
        self._beam_options = list(beam_options)

    def __call__(self, step: int) -> None:
        """Publishes the index of a snapshot, unless it is gone."""
        from realm_tf.artifacts import model_directory
        from realm_tf.beam_pipelines import embed_blocks as pipeline

        snapshot = self._exchange.read_snapshot(step)
        model, embeddings = (
            os.path.join(self._exchange.directory, f"{name}-{step:08d}")
            for name in ("model", "embeddings")
        )
        if not artifact.is_complete(model):
            self._loaded.model.block_embedder.set_weights(snapshot.weights)
            model_directory.save(self._loaded, model)
        if not artifact.is_complete(embeddings):
            pipeline.embed(
                model,
                self._blocks,
                embeddings,
                beam_options=self._beam_options,
            )
        BuildIndex(
            embeddings=embeddings,
            output=self._exchange.index_path(step),
            kind="brute_force",
            beam_options=self._beam_options,
        ).run()
        for directory in (model, embeddings):
            remove(directory)


def build_indices(
    exchange: IndexExchange,
    build: Callable[[int], None],
    *,
    should_stop: Callable[[], bool],
) -> None:
    """Makes an index of the newest snapshot, again and again.

    Args:
        exchange: `IndexExchange`.
        build: function that makes the index of a step's snapshot.
        should_stop: function. Asked between two indices.
    """
    while not should_stop():
        step = exchange.newest_snapshot()
        if step is None or step == exchange.newest_index():
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            continue
        build(step)
        exchange.prune_indices(keep=_KEPT_INDICES)


class Worker(abc.ABC):
    """Who builds the indices."""

    @abc.abstractmethod
    def start(self) -> None:
        """Begins, or begins again after it died."""

    @abc.abstractmethod
    def death(self) -> str | None:
        """Why it is not at work; `None` while it is."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends it, whatever it is doing."""


class _Stopped(Exception):
    """The trainer ended its thread."""


class ThreadWorker(Worker):
    """A thread of the trainer's process.

    It shares the processor's time with the trainer: for a small corpus, or
    where a step leaves the processor idle.

    Args:
        exchange: `IndexExchange`.
        loaded: `LoadedModel`. The trainer's; the thread copies its tower.
        blocks: `PackedBlocks`.
        max_block_length: int. As the trainer's.
    """

    def __init__(self, exchange, loaded, blocks, *, max_block_length: int):
        from realm_tf.models.open_qa import OpenQa

        tower = loaded.model.block_embedder.copy()
        own = OpenQa(tower, tower, loaded.model.reader)
        self._exchange = exchange
        self._build = TowerBuild(
            exchange,
            dataclasses.replace(loaded, model=own),
            blocks,
            max_block_length=max_block_length,
        )
        self._build.before_batch = self._raise_if_stopped
        self._stopped = threading.Event()
        self._thread = None
        self._error = None

    def start(self):
        self._stopped.clear()
        self._error = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            build_indices(
                self._exchange, self._build, should_stop=self._stopped.is_set
            )
        except _Stopped:
            return
        # Whatever it was, the trainer says it and starts another.
        except Exception as error:
            self._error = error

    def _raise_if_stopped(self):
        if self._stopped.is_set():
            raise _Stopped

    def death(self):
        if self._thread.is_alive():
            return None
        return f"{type(self._error).__name__}: {self._error}"

    def stop(self):
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()


class ProcessWorker(Worker):
    """A process of its own, at a low priority, on the processor.

    Its output goes to `builder.log` in the exchange's directory. It ends when
    the trainer ends, however that ends.

    Args:
        exchange: `IndexExchange`.
        arguments: list of str. Of this module, less `--exchange`.
    """

    def __init__(self, exchange, arguments):
        self._exchange = exchange
        self._command = [
            *(sys.executable, "-m", "realm_tf.training.index_builder"),
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
        import keras

        # What is left of one that died.
        self.stop()
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

    def death(self):
        status = self._process.poll()
        if status is None:
            return None
        with open(self._log, "rb") as log:
            log.seek(max(0, os.path.getsize(self._log) - _SHOWN_BYTES))
            lines = log.read().decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f"exit status {status}; {self._log} ends with {last.strip()!r}"

    def stop(self):
        if self._process is not None:
            # Versions appear whole or not at all: nothing can be torn.
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()


def main(argv: list[str] | None = None) -> int:
    """The process of `ProcessWorker`."""
    parser = argparse.ArgumentParser(prog="realm_tf.training.index_builder")
    parser.add_argument("--model", required=True)
    parser.add_argument("--blocks", required=True)
    parser.add_argument("--exchange", required=True)
    parser.add_argument("--max-block-length", type=int, required=True)
    parser.add_argument("--pipeline", action="store_true")
    args, beam_options = parser.parse_known_args(argv)
    _end_with_the_trainer()
    os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)

    from realm_tf.artifacts import model_directory
    from realm_tf.artifacts.packed_blocks import PackedBlocks

    exchange = IndexExchange(args.exchange)
    try:
        loaded = model_directory.load(args.model)
        if args.pipeline:
            build = PipelineBuild(
                exchange, loaded, args.blocks, beam_options=beam_options
            )
        else:
            build = TowerBuild(
                exchange,
                loaded,
                PackedBlocks(args.blocks),
                max_block_length=args.max_block_length,
            )
        build_indices(exchange, build, should_stop=lambda: False)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2


def _end_with_the_trainer():
    def wait():
        # Not sys.stdin: its lock would be held when Python ends by itself.
        while os.read(sys.stdin.fileno(), 1):
            continue
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
