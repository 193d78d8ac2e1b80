"""The step of `realm embed`: a range of block ids -> embeddings in a file."""

import threading

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import Path
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines.transforms import has_error
from realm_tf.beam_pipelines.transforms import report_error
from realm_tf.errors import InputError
from realm_tf.progress import Progress

COUNTERS = ("blocks", "wordpieces", "padding")


class EmbedShard(beam.DoFn):
    """(path, first block id, id after the last) to the path, once written.

    The model is loaded once a worker process and shared by its threads, which
    take turns: one batch already uses all cores that TensorFlow may. It is
    not shared across processes, for on CPU that is the one thing that must be
    parallel. On a machine whose processes share one GPU, run one process
    (`--experiments=no_use_multiple_sdk_containers` on Dataflow).

    Yields nothing once some worker has reported an error.

    Args:
        model: `Model`, readable by every worker.
        blocks: `Blocks`, too.
        batch_size: int. Blocks computed at once.
        error_directory: str. Where a mistake of the user is reported.
        num_blocks: int. Blocks that this run computes, for the estimate.
        num_processes: int or None. Worker processes that share them. `None`
            where the runner decides, and shows the progress itself.
    """

    def __init__(
        self,
        model: Model,
        blocks: Blocks,
        *,
        batch_size: int,
        error_directory: str,
        num_blocks: int,
        num_processes: int | None = 1,
    ):
        self._model = model
        self._blocks = blocks
        self._batch_size = batch_size
        self._error_directory = error_directory
        self._num_blocks = num_blocks
        self._num_processes = num_processes
        self._shared = Shared()

    def setup(self):
        self._worker = self._shared.acquire(self._make_worker)

    def _make_worker(self):
        try:
            embedder = _load(self._model, self._blocks)
        except InputError as error:
            # Runners wrap what a worker raises.
            report_error(self._error_directory, error)
            raise
        return _Worker(embedder, self.progress())

    def progress(self) -> Progress:
        """A process knows what it has computed, not what the others have.

        It is assumed to get an equal share.
        """
        number = self._num_processes
        return Progress(
            "embed",
            "blocks",
            number and -(-self._num_blocks // number),
            share="{}" if number == 1 else "about {} of this worker",
        )

    def process(self, shard):
        path, start, limit = shard
        if has_error(self._error_directory):
            return
        title_ids, token_ids = [], []
        try:
            for block in self._blocks.read(start, limit):
                # Lists of Python integers would take eight times the memory.
                title_ids.append(np.array(block.title_ids, "int32"))
                token_ids.append(np.array(block.token_ids, "int32"))
        except InputError as error:
            report_error(self._error_directory, error)
            return
        rows = self._worker.embed(title_ids, token_ids, self._batch_size)
        if not np.isfinite(rows).all():
            raise ValueError(
                f"{path}: some embeddings are not finite numbers; the weights "
                "of the model are not what training should have left."
            )
        write_shard(path, rows)
        yield path


def _load(model, blocks):
    """The block tower, with results that no order of shards can change.

    TensorFlow compiles the first shape it sees for itself and the next one
    for all: which batches the special code computes, and so how they are
    rounded (1e-7), would depend on what a worker happened to get first. Two
    calls that differ in both dimensions make every worker alike.
    """
    from realm_tf.artifacts import model_directory
    from realm_tf.retrieval.block_embedder import BlockEmbedder

    embedder = BlockEmbedder(
        model_directory.load(model),
        max_length=blocks.metadata["max_block_length"],
    )
    for batch_size, length in ((1, 13), (2, 29)):
        body = np.zeros(length, "int32")
        embedder.embed_ids([body[:0]] * batch_size, [body] * batch_size)
    return embedder


class _Worker:
    """A block tower in the memory of a worker process."""

    def __init__(self, embedder, progress):
        self._embedder = embedder
        self._progress = progress
        self._lock = threading.Lock()

    def embed(self, title_ids, token_ids, batch_size):
        """Float32 `(num_blocks, embedding_dim)`, in the order of the lists."""
        rows = np.zeros(
            (len(token_ids), self._embedder.embedding_dim), "float32"
        )
        for batch in length_buckets(title_ids, token_ids, batch_size):
            with self._lock:
                rows[batch], mask = self._embedder.embed_ids(
                    [title_ids[row] for row in batch],
                    [token_ids[row] for row in batch],
                )
                self._progress.add(len(batch))
            found = len(batch), int(mask.sum()), int((1 - mask).sum())
            for name, amount in zip(COUNTERS, found, strict=True):
                Metrics.counter("embed", name).inc(amount)
        return rows


def length_buckets(title_ids, token_ids, batch_size: int) -> list[np.ndarray]:
    """Batches of blocks that are about as long as one another.

    A batch is as wide as its longest block. In the order of ids, long and
    short blocks meet and much of what is computed is padding; sorted by
    length, little is. Equal lengths stay in order, so the same blocks always
    make the same batches.

    Args:
        title_ids: sequence of int arrays. Of each block.
        token_ids: sequence of int arrays. Of each block.
        batch_size: int. Blocks of a batch; the last has the rest.

    Returns:
        list of int arrays: the blocks of each batch, shortest ones first.
    """
    lengths = [
        len(title) + len(body)
        for title, body in zip(title_ids, token_ids, strict=True)
    ]
    order = np.argsort(np.array(lengths, "int64"), kind="stable")
    return [
        order[first : first + batch_size]
        for first in range(0, len(order), batch_size)
    ]


def write_shard(path: str, rows: np.ndarray) -> None:
    """Writes embeddings; the file appears whole or not at all."""
    with parts.writing(path) as temporary, Path(temporary).open("wb") as file:
        np.save(file, rows)
