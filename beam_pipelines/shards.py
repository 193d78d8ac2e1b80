"""Transforms that number blocks and write the final shards."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable

import apache_beam as beam
import tensorflow as tf

from beam_pipelines.transforms import count
from beam_pipelines.transforms import has_error
from beam_pipelines.transforms import part_path
from realm_tf import stages
from realm_tf.text import blocks

_DIGEST_BYTES = 32
_MODULUS = 1 << (8 * _DIGEST_BYTES)


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """What one output shard holds.

    Args:
        path: str. The file to write.
        first_id: int. Id of its first block.
        num_blocks: int.
        parts: tuple of (path, blocks to skip, page numbers to leave out).
    """

    path: str
    first_id: int
    num_blocks: int
    parts: tuple[tuple[str, int, frozenset[int]], ...]


class PlanShards(beam.DoFn):
    """Divides all blocks, in their order, into shards of equal size.

    Side inputs: the number of blocks of each part, dropped pages left out,
    and (part, page number) of the dropped pages. Yields `ShardPlan`.

    Args:
        output: str. Where the shards go.
        directory: str. Where the part files are.
        num_shards: int or None. At most one a block. `None`: as many as
            `blocks_per_shard` asks for.
        blocks_per_shard: int.
    """

    def __init__(
        self,
        output: str,
        *,
        directory: str,
        num_shards: int | None,
        blocks_per_shard: int,
    ):
        self._output = output
        self._directory = directory
        self._num_shards = num_shards
        self._blocks_per_shard = blocks_per_shard

    def process(self, _, counts, dropped):
        if has_error(self._directory):
            return
        pages = {}
        for part, number in dropped:
            pages.setdefault(part, set()).add(number)
        # (path, id of the first block, id after the last one, pages dropped)
        parts = []
        total = 0
        for part in sorted(counts):
            path = part_path(self._directory, part)
            left_out = frozenset(pages.get(part, ()))
            parts.append((path, total, total + counts[part], left_out))
            total += counts[part]
        wanted = self._num_shards or -(-total // self._blocks_per_shard)
        num_shards = min(wanted, total)
        for shard in range(num_shards):
            name = f"blocks-{shard:05d}-of-{num_shards:05d}.tfrecord.gz"
            first = total * shard // num_shards
            limit = total * (shard + 1) // num_shards
            yield ShardPlan(
                stages.join(self._output, name),
                first,
                limit - first,
                tuple(
                    (path, max(0, first - start), left_out)
                    for path, start, end, left_out in parts
                    if end > first and start < limit
                ),
            )


class WriteBlocks(beam.DoFn):
    """`ShardPlan` to a shard; yields a summary of it.

    Yields what `merge_summaries` takes.

    Args:
        max_block_length: int. Wordpieces.
    """

    def __init__(self, max_block_length: int):
        self._max_block_length = max_block_length

    def process(self, plan: ShardPlan):
        longest = 0
        digest = 0
        block_id = plan.first_id
        records = itertools.islice(_part_examples(plan), plan.num_blocks)
        with tf.io.TFRecordWriter(plan.path, options="GZIP") as writer:
            for example in records:
                features = example.features.feature
                features["block_id"].int64_list.value[0] = block_id
                record = example.SerializeToString(deterministic=True)
                writer.write(record)
                block_id += 1
                length = len(features["token_ids"].int64_list.value)
                longest = max(longest, length)
                self._add(features, length)
                digest += _record_digest(record)
        if block_id != plan.first_id + plan.num_blocks:
            raise RuntimeError(
                f"{plan.path}: expected {plan.num_blocks} blocks, found "
                f"{block_id - plan.first_id}."
            )
        rows = ((plan.first_id, plan.num_blocks),)
        yield rows, longest, _digest_bytes(digest)

    def _add(self, features, length):
        count("blocks")
        count("wordpieces", length)
        sentences = features["sentence_starts"].int64_list.value
        count("sentences", len(sentences))
        title = len(features["title_ids"].int64_list.value)
        if blocks.NUM_SPECIAL + title + length > self._max_block_length:
            count("overlong_sentences")


def _part_examples(plan):
    for path, skip, dropped_pages in plan.parts:
        # In batches: a call of TensorFlow costs more than a record.
        batches = tf.data.TFRecordDataset(path).batch(256)
        records = itertools.chain.from_iterable(batches.as_numpy_iterator())
        for record in records:
            example = tf.train.Example.FromString(record)
            value = example.features.feature["block_id"].int64_list.value
            if value[0] in dropped_pages:
                continue
            if skip:
                skip -= 1
                continue
            yield example


def _record_digest(record):
    return int.from_bytes(hashlib.sha256(record).digest(), "big")


def _digest_bytes(number):
    return (number % _MODULUS).to_bytes(_DIGEST_BYTES, "big")


def merge_summaries(summaries: Iterable[tuple]) -> tuple:
    """The summary of some shards, as if they were one.

    The digest is the sum, modulo 2^256, of the SHA-256 of the records. They
    hold their ids, so order counts, while the bounds of the shards do not.

    Args:
        summaries: iterable of (tuple of (first block id, number of blocks) of
            each shard, longest block in wordpieces, digest).

    Returns:
        tuple, the same.
    """
    rows = ()
    longest = digest = 0
    for shard_rows, shard_longest, shard_digest in summaries:
        rows += shard_rows
        longest = max(longest, shard_longest)
        digest += int.from_bytes(shard_digest, "big")
    return tuple(sorted(rows)), longest, _digest_bytes(digest)


def write_summary(summary: tuple, path: str) -> None:
    """Writes the summary of all shards as JSON."""
    rows, longest, digest = summary
    content = {
        "shard_rows": [count for _, count in rows],
        "longest_block": longest,
        "digest": digest.hex(),
    }
    stages.write_text(path, json.dumps(content))
