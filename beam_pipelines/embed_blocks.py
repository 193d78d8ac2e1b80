"""The pipeline of `realm embed`: ranges of block ids -> .npy shards."""

# A range of block ids is one element, read, embedded and written in one step.
# Batches brought together again by shard, with GroupByKey, would be a barrier:
# no shard would be written before the last block of the corpus is embedded
# (nothing to resume from), and all embeddings would go through the runner's
# shuffle. A worker holds the wordpieces and embeddings of one shard for each
# of its threads.

import os

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.pipeline_options import StandardOptions

from realm_tf.artifacts import index_files
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines.embed_shard import COUNTERS
from realm_tf.beam_pipelines.embed_shard import EmbedShard
from realm_tf.beam_pipelines.embed_shard import write_shard
from realm_tf.beam_pipelines.execution import LOCAL_RUNNER
from realm_tf.beam_pipelines.execution import num_local_workers
from realm_tf.beam_pipelines.execution import run_pipeline
from realm_tf.beam_pipelines.transforms import clear_error
from realm_tf.beam_pipelines.transforms import raise_error
from realm_tf.errors import InputError


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

    embed_shard = EmbedShard(
        model,
        blocks,
        batch_size=batch_size,
        error_directory=directory,
        num_blocks=sum(limit - start for _, start, limit in missing),
        num_processes=_num_processes(options),
    )

    def build(pipeline):
        return (
            pipeline
            | "Ranges" >> beam.Create(missing)
            | "Share ranges" >> beam.Reshuffle()
            | "Embed" >> beam.ParDo(embed_shard)
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
            write_shard(path, rows.read(start, limit))
    return [os.path.basename(path) for path, _, _ in ranges]
