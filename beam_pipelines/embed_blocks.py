"""The pipeline of `realm embed`: ranges of block ids -> .npy shards."""

# Why a shard, and not a batch, is the element of RunInference:
#
#   range of ids -> [shard, in length-bucketed batches] -> RunInference
#     -> (path, rows) -> .npy
#
# Predictions for single batches would have to be brought together again by
# shard, with GroupByKey. That is a barrier: no shard would be written before
# the last block of the corpus is embedded (nothing to resume from), and the
# embeddings of the corpus would go through the runner's shuffle (on one
# machine, its memory). With a whole shard as the element, every step is one
# element in, one out: no state across elements, none that would rely on how
# a runner bundles or fuses, and a worker holds the wordpieces and embeddings
# of one shard for each of its threads.

import os
from collections.abc import Sequence

import apache_beam as beam
import numpy as np
from apache_beam.ml.inference.base import RunInference
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.pipeline_options import StandardOptions

from realm_tf.artifacts import index_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines.execution import LOCAL_RUNNER
from realm_tf.beam_pipelines.execution import num_local_workers
from realm_tf.beam_pipelines.execution import run_pipeline
from realm_tf.beam_pipelines.model_handler import BlockModelHandler
from realm_tf.beam_pipelines.model_handler import Shard
from realm_tf.beam_pipelines.model_handler import length_buckets
from realm_tf.beam_pipelines.transforms import clear_error
from realm_tf.beam_pipelines.transforms import has_error
from realm_tf.beam_pipelines.transforms import raise_error
from realm_tf.beam_pipelines.transforms import report_error
from realm_tf.errors import InputError

COUNTERS = ("blocks", "wordpieces", "padding")


def write_shards(
    model: Model,
    blocks: Blocks,
    directory: str,
    *,
    batch_size: int,
    rows_per_shard: int,
    options: PipelineOptions,
) -> tuple[list[str], dict[str, int]]:
    """Computes the shards that a directory does not hold yet.

    Args:
        model: `Model`.
        blocks: `Blocks`.
        directory: str. Embeddings directory that is being written.
        batch_size: int. Blocks computed at once.
        rows_per_shard: int. Blocks of one file.
        options: `PipelineOptions`.

    Returns:
        `(names, counts)`: names of all shards, and counters as
        `operations.embed.Embed.run` describes them.

    Raises:
        InputError: if a worker found that a directory is damaged.
    """
    # What an interrupted run left there.
    clear_error(directory)
    parts.remove_temporary(directory)
    ranges = shard_ranges(directory, blocks.num_blocks, rows_per_shard)
    missing = [shard for shard in ranges if not _is_complete(*shard)]

    def build(pipeline):
        return build_pipeline(
            pipeline,
            missing,
            model=model.path,
            blocks=blocks.path,
            max_length=blocks.metadata["max_block_length"],
            batch_size=batch_size,
            error_directory=directory,
            num_processes=_num_processes(options),
        )

    counters = {}
    try:
        if missing:
            counters = run_pipeline(build, options)
    finally:
        # Clearer than what a runner makes of a worker's exception.
        raise_error(directory)
    return [os.path.basename(path) for path, _, _ in ranges], {
        "shards": len(ranges),
        "shards_skipped": len(ranges) - len(missing),
        **{name: counters.get(name, 0) for name in COUNTERS},
    }


def shard_name(number: int, total: int) -> str:
    """Name of a shard; names sort in the order of block ids."""
    return f"embeddings-{number:05d}-of-{total:05d}.npy"


def _num_processes(options: PipelineOptions) -> int | None:
    """Worker processes of this machine; `None` on another runner."""
    if options.view_as(StandardOptions).runner != LOCAL_RUNNER:
        return None
    mode = options.view_as(DirectOptions).direct_running_mode
    return num_local_workers(options) if mode == "multi_processing" else 1


def shard_ranges(
    directory: str, num_blocks: int, rows_per_shard: int
) -> list[tuple[str, int, int]]:
    """(path, first block id, id after the last) of each shard, in order."""
    total = -(-num_blocks // rows_per_shard)
    return [
        (
            os.path.join(directory, shard_name(number, total)),
            number * rows_per_shard,
            min((number + 1) * rows_per_shard, num_blocks),
        )
        for number in range(total)
    ]


def _is_complete(path, start, limit):
    """Whether an earlier run wrote the whole shard."""
    if is_remote(path) or not Path(path).exists():
        # Object stores show only whole files.
        return Path(path).exists()
    try:
        return len(index_files.load_shard(path)) == limit - start
    except InputError:
        return False


def build_pipeline(
    pipeline: beam.Pipeline,
    ranges: Sequence[tuple[str, int, int]],
    *,
    model: str,
    blocks: str,
    max_length: int,
    batch_size: int,
    error_directory: str,
    num_processes: int | None = 1,
) -> beam.PCollection:
    """Applies the transforms that compute some shards.

    Args:
        pipeline: `beam.Pipeline`.
        ranges: sequence of (path, first block id, id after the last).
        model: str. Model directory.
        blocks: str. Blocks directory.
        max_length: int. Wordpieces that a block is cut to.
        batch_size: int. Blocks computed at once.
        error_directory: str. Where workers report what the user must mend.
        num_processes: int or None. See `BlockModelHandler`.

    Returns:
        PCollection of the paths written.
    """
    handler = BlockModelHandler(
        model,
        max_length=max_length,
        error_directory=error_directory,
        num_blocks=sum(limit - start for _, start, limit in ranges),
        num_processes=num_processes,
    )
    return (
        pipeline
        | "Ranges" >> beam.Create(ranges)
        | "Share ranges" >> beam.Reshuffle()
        | "Read" >> beam.ParDo(ReadShard(blocks, batch_size, error_directory))
        | "Embed" >> RunInference(handler.with_no_batching())
        | "Write" >> beam.Map(write_shard)
    )


class ReadShard(beam.DoFn):
    """(path, start, limit) to a list of one `Shard`, in batches.

    Yields nothing once some worker has reported an error.

    Args:
        blocks: str. Blocks directory.
        batch_size: int. Blocks of a batch.
        error_directory: str. Where errors are reported.
    """

    def __init__(self, blocks: str, batch_size: int, error_directory: str):
        self._blocks = blocks
        self._batch_size = batch_size
        self._error_directory = error_directory

    def process(self, shard):
        path, start, limit = shard
        if has_error(self._error_directory):
            return
        title_ids, token_ids = [], []
        try:
            for block in schema.read_blocks(
                self._blocks, start=start, limit=limit
            ):
                # Lists of Python integers would take eight times the memory.
                title_ids.append(np.array(block.title_ids, "int32"))
                token_ids.append(np.array(block.token_ids, "int32"))
        except InputError as error:
            report_error(self._error_directory, error)
            return
        batches = length_buckets(
            title_ids, token_ids, batch_size=self._batch_size
        )
        # RunInference without batching takes lists of examples.
        yield [Shard(path, batches)]


def write_shard(prediction: tuple[str, np.ndarray]) -> str:
    """Writes what RunInference gave for a shard; returns the path."""
    path, rows = prediction
    with parts.writing(path) as temporary, Path(temporary).open("wb") as file:
        np.save(file, rows)
    return path


def write_rows(directory: str, rows, rows_per_shard: int) -> list:
    """Writes embeddings that are there already as shards; returns their names.

    Args:
        directory: str. A shard that is whole in it is not written again.
        rows: what has `num_rows` and `read(start, limit)`.
        rows_per_shard: int.
    """
    parts.remove_temporary(directory)
    ranges = shard_ranges(directory, rows.num_rows, rows_per_shard)
    for path, start, limit in ranges:
        if not _is_complete(path, start, limit):
            write_shard((path, rows.read(start, limit)))
    return [os.path.basename(path) for path, _, _ in ranges]
