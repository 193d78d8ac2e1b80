"""The pipeline of `realm embed`: ranges of block ids -> .npy shards."""

import dataclasses
import os
import threading

import numpy as np

from realm_tf.artifacts.array_files import check_embeddings
from realm_tf.artifacts.array_files import write_array
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines.engine import run_on_shards
from realm_tf.beam_pipelines.steps import ShardStep


def write_shards(
    model: Model,
    blocks: Blocks,
    directory: str,
    *,
    batch_size: int,
    rows_per_shard: int,
    precision: str,
    options=None,
) -> tuple[list[str], dict[str, int]]:
    """Computes the shards that a directory does not hold yet.

    Args:
        model: `Model`.
        blocks: `Blocks`.
        directory: str. Embeddings directory that is being written.
        batch_size: int. Blocks computed at once.
        rows_per_shard: int. Blocks of one file.
        precision: str. See `model_directory.load`.
        options: of `engine.given_options`. Defaults to `None`.

    Returns:
        `(names, counts)`: names of all shards, and how many `shards` there
        are, and `shards_skipped` that were there before.

    Raises:
        InputError: if a worker found that a directory is damaged.
    """
    shards = _plan(directory, blocks.num_blocks, rows_per_shard)
    step = EmbedShard(
        model=model,
        blocks=blocks,
        batch_size=batch_size,
        precision=precision,
        directory=directory,
    )
    num_made = run_on_shards(step, shards, options)
    return _names(shards), {
        "shards": len(shards),
        "shards_skipped": len(shards) - num_made,
    }


def write_rows(
    directory: str, rows, rows_per_shard: int, *, norm: float | None
) -> list[str]:
    """Writes embeddings that are there already as shards; returns their names.

    Args:
        directory: str. A shard that is in it is not written again.
        rows: float32 array, or what has a length and slices as one.
        rows_per_shard: int.
        norm: as of `array_files.check_embeddings`.
    """
    resumable.clean(directory)
    shards = _plan(directory, len(rows), rows_per_shard)
    for shard in resumable.missing_shards(shards):
        _write(shard, rows[shard.start : shard.limit], norm)
    return _names(shards)


def _plan(directory, num_rows, rows_per_shard):
    return resumable.plan_shards(
        os.path.join(directory, "embeddings"),
        ".npy",
        [*range(0, num_rows, rows_per_shard), num_rows],
    )


def _write(shard, rows, norm):
    check_embeddings(
        rows,
        shard.path,
        norm=norm,
        mend="the weights of the model are not what training leaves. Train or "
        "fetch it again.",
    )
    write_array(shard.path, rows)


def _names(shards):
    return [os.path.basename(shard.path) for shard in shards]


@dataclasses.dataclass(eq=False, kw_only=True)
class EmbedShard(ShardStep):
    """Computes the embeddings of a `Shard` and writes them.

    The model is loaded once a worker process and shared by its threads, which
    take turns: one shard already uses all cores that TensorFlow may. It is
    not shared across processes, for on CPU that is the one thing that must be
    parallel. On a machine whose processes share one GPU, run one process
    (`--experiments=no_use_multiple_sdk_containers` on Dataflow). A worker
    holds the wordpieces and embeddings of one shard for each of its threads.

    Args:
        model: `Model`, readable by every worker.
        blocks: `Blocks`, too.
        batch_size: int. Blocks computed at once.
        precision: str. See `model_directory.load`.
    """

    command = "embed"
    what = "blocks"

    model: Model
    blocks: Blocks
    batch_size: int
    precision: str

    def load(self, share):
        self._tower = share(
            lambda: _Tower(self.model, self.blocks, self.precision)
        )

    def make(self, shard):
        title_ids, token_ids = [], []
        for block in self.blocks.read(shard.start, shard.limit):
            # Lists of Python integers would take eight times the memory.
            title_ids.append(np.array(block.title_ids, "int32"))
            token_ids.append(np.array(block.token_ids, "int32"))
        rows = self._embed(title_ids, token_ids)
        _write(shard, rows, self.model.embedding_norm)

    def _embed(self, title_ids, token_ids):
        """Float32 `(num_blocks, embedding_dim)`, in the order of the lists."""
        lengths = np.array([*map(len, title_ids)]) + [*map(len, token_ids)]

        def read(places):
            return (
                [title_ids[place] for place in places],
                [token_ids[place] for place in places],
            )

        with self._tower.lock:
            return self._tower.embedder.embed_all(
                lengths,
                read,
                batch_size=self.batch_size,
                after_batch=self.progress,
            )


class _Tower:
    """A block tower in the memory of a worker process.

    Its results no order of shards can change: TensorFlow compiles the first
    shape it sees for itself and the next one for all, so which batches the
    special code computes, and so how they are rounded (1e-7), would depend on
    what a worker happened to get first. Two calls that differ in both
    dimensions make every worker alike.
    """

    def __init__(self, model, blocks, precision):
        from realm_tf.models import model_directory
        from realm_tf.retrieval.block_embedder import BlockEmbedder

        self.lock = threading.Lock()
        loaded = model_directory.load(
            model, precision=precision, only_block_tower=True
        )
        self.embedder = BlockEmbedder(
            loaded, max_length=blocks.metadata["max_block_length"]
        )
        for batch_size, length in ((1, 13), (2, 29)):
            body = np.zeros(length, "int32")
            self.embedder.embed_ids(
                [body[:0]] * batch_size, [body] * batch_size
            )
