"""Computes the embedding of every block: blocks -> .npy shards.

  realm embed --model DIR --blocks DIR --output DIR [Beam options]

A Beam pipeline over ranges of block ids. Each shard is complete by itself: a
run that was killed, started again, computes only the shards that are missing.
Unknown options go to Beam (e.g. --runner, --direct_num_workers).
"""

import os

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics

from beam_pipelines.execution import pipeline_options
from beam_pipelines.execution import run_pipeline
from beam_pipelines.transforms import clear_error
from beam_pipelines.transforms import raise_error
from beam_pipelines.transforms import report_error
from realm_tf import stages
from realm_tf.data import schema
from realm_tf.errors import InputError

ACCEPTS_EXTRA = True
# About 64 MB of 384-wide float32 rows; a killed run loses one shard at most.
ROWS_PER_SHARD = 40_000


def add_arguments(parser):
    """Arguments of `realm embed`."""
    parser.add_argument("--model", required=True, help="model directory")
    parser.add_argument("--blocks", required=True, help="blocks directory")
    parser.add_argument("--output", required=True, help="directory to make")
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        help="blocks computed at once (default: 32)",
    )
    parser.add_argument(
        "--rows-per-shard",
        type=int,
        default=ROWS_PER_SHARD,
        help=f"blocks of one .npy file (default: {ROWS_PER_SHARD})",
    )


def run(args, extra):
    """`realm embed`."""
    counts = embed(
        args.model,
        args.blocks,
        args.output,
        batch_size=args.batch_size,
        rows_per_shard=args.rows_per_shard,
        beam_options=extra,
    )
    for name, value in sorted(counts.items()):
        print(f"{name:<24}{value:>12,}")


def shard_name(number: int, total: int) -> str:
    """Name of a shard; names sort in the order of block ids."""
    return f"embeddings-{number:05d}-of-{total:05d}.npy"


def embed(
    model: str,
    blocks: str,
    output: str,
    *,
    batch_size: int = 32,
    rows_per_shard: int = ROWS_PER_SHARD,
    beam_options=(),
) -> dict:
    """Embeds all blocks with the block tower of a model.

    Args:
        model: str. Model directory.
        blocks: str. Blocks directory, cut with the model's vocabulary.
        output: str. Directory to make: `.npy` shards `(rows,
            embedding_dim)`, float32, in order of block id.
        batch_size: int. Blocks computed at once. Defaults to `32`.
        rows_per_shard: int. Blocks of one file. Defaults to `40,000`.
        beam_options: list of str. Options of Beam.

    Returns:
        dict of counters.

    Raises:
        InputError: if model and blocks do not belong together, or a number
            is not positive.
    """
    for name, value in (
        ("--batch-size", batch_size),
        ("--rows-per-shard", rows_per_shard),
    ):
        if value < 1:
            raise InputError(f"{name} {value}: expected 1 or more.")
    model_metadata = stages.read(model, kind=schema.MODEL)
    block_metadata = stages.read(blocks, kind=schema.BLOCKS)
    if model_metadata["tokenizer"] != block_metadata["tokenizer"]:
        raise InputError(
            f"{blocks} was cut with another vocabulary than that of {model}: "
            f"run `realm chunk --vocab {stages.join(model, 'vocab.txt')}`."
        )
    num_blocks = block_metadata["num_blocks"]
    if not num_blocks:
        raise InputError(f"{blocks} holds no block.")
    total = -(-num_blocks // rows_per_shard)
    options = pipeline_options(beam_options)
    parents = {
        "block_tower": model_metadata["block_tower"],
        "blocks": block_metadata["fingerprint"],
    }
    with stages.write(
        output,
        kind=schema.EMBEDDINGS,
        parameters={"rows_per_shard": rows_per_shard},
        parents=parents,
        resumable=True,
    ) as stage:
        shards = [
            (
                stage.path(shard_name(number, total)),
                number * rows_per_shard,
                min((number + 1) * rows_per_shard, num_blocks),
            )
            for number in range(total)
        ]
        missing = [shard for shard in shards if not stages.exists(shard[0])]
        # That of an interrupted run.
        clear_error(stage.directory)
        embed_range = EmbedRange(model, blocks, batch_size, stage.directory)

        def build(pipeline):
            return (
                pipeline
                | "Ranges" >> beam.Create(missing)
                | "Spread" >> beam.Reshuffle()
                | "Embed" >> beam.ParDo(embed_range)
            )

        counts = {
            "shards": total,
            "shards_skipped": total - len(missing),
            **run_pipeline(build, options),
        }
        raise_error(stage.directory)
        stage.metadata.update(
            counts=counts,
            num_blocks=num_blocks,
            dtype="float32",
            shards=[shard_name(number, total) for number in range(total)],
            fingerprint=stages.fingerprint(*map(str, parents.values())),
        )
    return counts


class EmbedRange(beam.DoFn):
    """Embeds the blocks of one range of ids and writes their shard.

    Blocks of similar length are computed together, so that little padding
    is; the rows are put back in order.

    Args:
        model: str. Model directory, loaded once a worker.
        blocks: str. Blocks directory.
        batch_size: int. Blocks computed at once.
        directory: str. Where errors are reported.
    """

    def __init__(self, model, blocks, batch_size, directory):
        self.model = model
        self.blocks = blocks
        self.batch_size = batch_size
        self.directory = directory
        self.embedded = Metrics.counter("embed", "blocks")
        self.wordpieces = Metrics.counter("embed", "wordpieces")
        self.padding = Metrics.counter("embed", "padding")

    def setup(self):
        from realm_tf.models import model_directory
        from realm_tf.retrieval.block_embedder import BlockEmbedder

        self.embedder = BlockEmbedder(
            model_directory.load(self.model),
            max_length=stages.read(self.blocks, kind=schema.BLOCKS)[
                "max_block_length"
            ],
        )

    def process(self, shard):
        path, start, limit = shard
        try:
            rows = self._embed(start, limit)
        except InputError as error:
            report_error(self.directory, error)
            return
        _write_array(path, rows)
        yield path

    def _embed(self, start, limit):
        title_ids, token_ids = [], []
        for block in schema.read_blocks(self.blocks, start=start, limit=limit):
            title_ids.append(block.title_ids)
            token_ids.append(block.token_ids)
        lengths = np.array(
            [
                len(title) + len(body)
                for title, body in zip(title_ids, token_ids, strict=True)
            ]
        )
        rows = np.zeros(
            (len(lengths), self.embedder.embedding_dim), dtype="float32"
        )
        order = np.argsort(lengths, kind="stable")
        for first in range(0, len(order), self.batch_size):
            batch = order[first : first + self.batch_size]
            embeddings, mask = self.embedder.embed_ids(
                [title_ids[row] for row in batch],
                [token_ids[row] for row in batch],
            )
            rows[batch] = embeddings
            self.wordpieces.inc(int(mask.sum()))
            self.padding.inc(int(mask.size - mask.sum()))
            self.embedded.inc(len(batch))
        return rows


def _write_array(path, rows):
    if stages.is_remote(path):
        import tensorflow as tf

        with tf.io.gfile.GFile(path, "wb") as file:
            np.save(file, rows)
        return
    temporary = f"{path}.tmp"
    with open(temporary, "wb") as file:
        np.save(file, rows)
    os.replace(temporary, path)
