"""The block tower as a model of Beam's RunInference."""

import dataclasses
import logging
import threading
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.ml.inference.base import ModelHandler

from realm_tf.beam_pipelines.transforms import report_error
from realm_tf.errors import InputError
from realm_tf.progress import Progress


def _is_of_interest(record):
    # Beam 2.77 says so wherever its model manager's packages are missing.
    return not record.getMessage().startswith("Resource module is not")


logging.getLogger().addFilter(_is_of_interest)


@dataclasses.dataclass(frozen=True)
class Batch:
    """Blocks of similar length, to be computed together.

    Args:
        rows: int array `(batch_size,)`. Their rows in the shard.
        title_ids: list of int32 arrays. Wordpieces of the titles.
        token_ids: list of int32 arrays. Wordpieces of the bodies.
    """

    rows: np.ndarray
    title_ids: list[np.ndarray]
    token_ids: list[np.ndarray]


@dataclasses.dataclass(frozen=True)
class Shard:
    """The blocks of one output file, in batches.

    Args:
        path: str. The file to write.
        batches: list of `Batch`. Every row of the shard is in one of them.
    """

    path: str
    batches: list[Batch]

    @property
    def num_rows(self) -> int:
        """Number of blocks."""
        return sum(len(batch.rows) for batch in self.batches)


def length_buckets(
    title_ids: Sequence[np.ndarray],
    token_ids: Sequence[np.ndarray],
    *,
    batch_size: int,
) -> list[Batch]:
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
        list of `Batch`, shortest blocks first.
    """
    lengths = [
        len(title) + len(body)
        for title, body in zip(title_ids, token_ids, strict=True)
    ]
    order = np.argsort(np.array(lengths, "int64"), kind="stable")
    return [
        Batch(
            rows,
            [title_ids[row] for row in rows],
            [token_ids[row] for row in rows],
        )
        for rows in (
            order[first : first + batch_size]
            for first in range(0, len(order), batch_size)
        )
    ]


class BlockModelHandler(ModelHandler[Shard, tuple, "LoadedEmbedder"]):
    """Embeds shards of blocks with the block tower of a model directory.

    An example of RunInference is a whole `Shard`, its batches prepared by
    `length_buckets`; the prediction is `(path, embeddings)`. Use it with
    `with_no_batching()` and elements that are lists of one `Shard`: Beam's
    own batching would join blocks by arrival, and what it offers for lengths
    works only in streaming pipelines.

    The model is loaded once a worker process, in `setup`, and shared by its
    threads, which take turns. It is not shared across processes
    (`share_model_across_processes` stays false): one process would compute
    for all, and on CPU that is the one thing that must be parallel. On a
    machine whose processes share one GPU, run one process
    (`--experiments=no_use_multiple_sdk_containers` on Dataflow).

    Args:
        model: str. Model directory, readable by every worker.
        max_length: int. Most wordpieces of `[CLS] title [SEP] body [SEP]`.
        error_directory: str. Where a mistake of the user is reported.
        num_blocks: int. Blocks that this run computes, for the estimate.
        num_processes: int or None. Worker processes that share them. `None`
            where the runner decides, and shows the progress itself.
    """

    def __init__(
        self,
        model: str,
        *,
        max_length: int,
        error_directory: str,
        num_blocks: int,
        num_processes: int | None = 1,
    ):
        super().__init__()
        self._model = model
        self._max_length = max_length
        self._error_directory = error_directory
        self._num_blocks = num_blocks
        self._num_processes = num_processes

    def load_model(self) -> "LoadedEmbedder":
        """Opens the model directory.

        Raises:
            InputError: if its weights are damaged. Reported as well, because
                runners wrap what a worker raises.
        """
        from realm_tf.artifacts import model_directory
        from realm_tf.retrieval.block_embedder import BlockEmbedder

        try:
            loaded = model_directory.load(self._model)
        except InputError as error:
            report_error(self._error_directory, error)
            raise
        embedder = BlockEmbedder(loaded, max_length=self._max_length)
        _trace(embedder)
        return LoadedEmbedder(
            embedder,
            self.progress(),
        )

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

    def run_inference(
        self,
        batch: Sequence[Shard],
        model: "LoadedEmbedder",
        inference_args: dict | None = None,
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Embeds shards.

        Args:
            batch: sequence of `Shard`.
            model: what `load_model` gave.
            inference_args: unused.

        Yields:
            (path, float32 array `(num_rows, embedding_dim)`), the rows in
            order of block id.
        """
        for shard in batch:
            yield shard.path, model.embed(shard)

    def get_num_bytes(self, batch: Sequence[Shard]) -> int:
        """Size of the wordpieces; Beam's default would pickle all of it."""
        return sum(
            array.nbytes
            for shard in batch
            for part in shard.batches
            for array in (*part.title_ids, *part.token_ids)
        )

    def get_metrics_namespace(self) -> str:
        """Where RunInference counts: batches are shards here."""
        return "embed_inference"


def _trace(embedder):
    """Makes results independent of the order in which shards come.

    TensorFlow compiles the first shape it sees for itself and the next one
    for all: which batches the special code computes, and so how they are
    rounded (1e-7), would depend on what a worker happened to get first. Two
    calls that differ in both dimensions make every worker alike.
    """
    for batch_size, length in ((1, 13), (2, 29)):
        body = np.zeros(length, "int32")
        embedder.embed_ids([body[:0]] * batch_size, [body] * batch_size)


class LoadedEmbedder:
    """A block tower in the memory of a worker process.

    Args:
        embedder: `BlockEmbedder`.
        progress: `Progress`.
    """

    def __init__(self, embedder, progress: "Progress"):
        self._embedder = embedder
        self._progress = progress
        # Keras' predict is not made for several threads, and one batch
        # already uses all cores that TensorFlow may.
        self._lock = threading.Lock()
        self._blocks = Metrics.counter("embed", "blocks")
        self._wordpieces = Metrics.counter("embed", "wordpieces")
        self._padding = Metrics.counter("embed", "padding")

    def embed(self, shard: Shard) -> np.ndarray:
        """Embeddings of the blocks of a shard, in order of block id.

        Raises:
            ValueError: if the model gives something else than finite numbers.
        """
        rows = np.zeros(
            (shard.num_rows, self._embedder.embedding_dim), "float32"
        )
        for batch in shard.batches:
            with self._lock:
                embeddings, mask = self._embedder.embed_ids(
                    batch.title_ids, batch.token_ids
                )
                self._progress.add(len(batch.rows))
            rows[batch.rows] = embeddings
            self._blocks.inc(len(batch.rows))
            self._wordpieces.inc(int(mask.sum()))
            self._padding.inc(int(mask.size - mask.sum()))
        if not np.isfinite(rows).all():
            raise ValueError(
                f"{shard.path}: some embeddings are not finite numbers; the "
                "weights of the model are not what training should have left."
            )
        return rows
