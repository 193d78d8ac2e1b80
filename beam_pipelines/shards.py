"""Transforms that number blocks and write the final shards."""

import collections
import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Iterable

import apache_beam as beam
import numpy as np
import tensorflow as tf

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines.transforms import COUNTERS
from realm_tf.beam_pipelines.transforms import count
from realm_tf.beam_pipelines.transforms import has_error
from realm_tf.errors import InputError
from realm_tf.text import blocks

# Half the time of zlib's default, 6, for files 2 % larger (measured on
# records of English text).
COMPRESSION_LEVEL = 3
# What names of shards begin with.
PREFIX = "blocks-"

_MODULUS = 1 << 256


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """What one output shard holds.

    Args:
        path: str. The file to write.
        summary_path: str. Written after it: the shard is complete.
        first_id: int. Id of its first block.
        num_blocks: int.
        parts: tuple of (part, blocks to skip, page numbers to leave out).
    """

    path: str
    summary_path: str
    first_id: int
    num_blocks: int
    parts: tuple[tuple[tuple[int, int], int, frozenset[int]], ...]


class PlanShards(beam.DoFn):
    """Divides all blocks, in their order, into shards of equal size.

    Side inputs: the number of blocks of each part, dropped pages left out,
    and (part, page number) of the dropped pages. Yields `ShardPlan`.

    Args:
        output: str. Where the shards go.
        directory: str. Where the parts are.
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
        ordered = sorted(counts)
        starts = [0, *itertools.accumulate(counts[part] for part in ordered)]
        total = starts[-1]
        wanted = self._num_shards or -(-total // self._blocks_per_shard)
        num_shards = min(wanted, total)
        place = 0
        for shard in range(num_shards):
            name = f"{PREFIX}{shard:05d}-of-{num_shards:05d}"
            first = total * shard // num_shards
            limit = total * (shard + 1) // num_shards
            while starts[place + 1] <= first:
                place += 1
            last = place
            while last < len(ordered) and starts[last] < limit:
                last += 1
            yield ShardPlan(
                os.path.join(self._output, f"{name}.tfrecord.gz"),
                os.path.join(self._directory, f"{name}.json"),
                first,
                limit - first,
                tuple(
                    (
                        ordered[number],
                        max(0, first - starts[number]),
                        frozenset(pages.get(ordered[number], ())),
                    )
                    for number in range(place, last)
                    if counts[ordered[number]]
                ),
            )


class WriteBlocks(beam.DoFn):
    """`ShardPlan` to a shard; yields a summary of it.

    Yields what `merge_summaries` takes. A shard that an interrupted run has
    written to its end is not written again. A shard is begun beside the parts,
    so that a worker which outlives a killed run cannot finish one once the
    parts of that run are gone.

    Args:
        directory: str. Where the parts are.
        packing: `blocks.Packing`.
    """

    def __init__(self, directory: str, packing: blocks.Packing):
        self._directory = directory
        self._packing = packing

    def process(self, plan: ShardPlan):
        if Path(plan.summary_path).exists() and Path(plan.path).exists():
            yield json.loads(Path(plan.summary_path).read_text())
            return
        counts = collections.Counter()
        longest = longest_joint = digest = 0
        block_id = plan.first_id
        options = tf.io.TFRecordOptions(
            compression_type="GZIP", compression_level=COMPRESSION_LEVEL
        )
        with (
            parts.writing(plan.path, directory=self._directory) as path,
            tf.io.TFRecordWriter(path, options=options) as writer,
        ):
            for records, table in self._parts(plan):
                for record in records:
                    record = parts.with_block_id(record, block_id)
                    writer.write(record)
                    digest += _record_digest(record)
                    block_id += 1
                counts.update(self._counts(table))
                lengths = table["wordpieces"]
                longest = max(longest, int(lengths.max()))
                lengths = lengths + table["title"] + blocks.NUM_SPECIAL
                longest_joint = max(longest_joint, int(lengths.max()))
            if block_id != plan.first_id + plan.num_blocks:
                raise RuntimeError(
                    f"{plan.path}: expected {plan.num_blocks} blocks, found "
                    f"{block_id - plan.first_id}."
                )
        summary = {
            "rows": [[plan.first_id, plan.num_blocks]],
            "longest_block": longest,
            "longest_joint": longest_joint,
            "digest": _hex(digest),
            "counts": dict(sorted(counts.items())),
        }
        write_text(plan.summary_path, json.dumps(summary))
        for name, amount in counts.items():
            count(name, amount)
        yield summary

    def _parts(self, plan):
        """Yields the records of each part and their `parts.BLOCKS`."""
        missing = plan.num_blocks
        for part, skip, dropped_pages in plan.parts:
            summary = parts.read_summary(self._directory, part)
            content = memoryview(
                Path(parts.records_path(self._directory, part)).read_bytes()
            )
            pages = summary.pages
            is_kept = ~np.isin(pages["number"], list(dropped_pages))
            chosen = np.flatnonzero(np.repeat(is_kept, pages["blocks"]))
            chosen = chosen[skip : skip + missing]
            missing -= len(chosen)
            limits = np.cumsum(summary.blocks["bytes"], dtype=np.int64)
            starts = limits - summary.blocks["bytes"]
            places = zip(
                starts[chosen].tolist(), limits[chosen].tolist(), strict=True
            )
            records = (bytes(content[start:limit]) for start, limit in places)
            yield records, summary.blocks[chosen]

    def _counts(self, table):
        found = {
            "blocks": len(table),
            "wordpieces": int(table["wordpieces"].sum()),
            "unknown_wordpieces": int(table["unknown"].sum()),
            "sentences": int(table["sentences"].sum()),
        }
        if self._packing.unit == blocks.WORDPIECES:
            length = table["wordpieces"] + table["title"] + blocks.NUM_SPECIAL
            too_long = length > self._packing.max_length
            found["overlong_sentences"] = int(too_long.sum())
        return found


def _record_digest(record):
    return int.from_bytes(hashlib.sha256(record).digest(), "big")


def _hex(digest):
    return f"{digest % _MODULUS:064x}"


def merge_summaries(summaries: Iterable[dict]) -> dict:
    """The summary of some shards, as if they were one.

    The digest is the sum, modulo 2^256, of the SHA-256 of the records. They
    hold their ids, so order counts, while the bounds of the shards do not.

    Args:
        summaries: iterable of dict: `rows` (list of first block id and number
            of blocks of each shard), `longest_block` in wordpieces,
            `longest_joint`, the same with title and special ones, `digest`
            in hexadecimal, and `counts`.

    Returns:
        dict, the same.
    """
    found = list(summaries)
    counts = collections.Counter()
    for each in found:
        counts.update(each["counts"])
    return {
        "rows": sorted(row for each in found for row in each["rows"]),
        **{
            name: max((each[name] for each in found), default=0)
            for name in ("longest_block", "longest_joint")
        },
        "digest": _hex(sum(int(each["digest"], 16) for each in found)),
        "counts": dict(sorted(counts.items())),
    }


def write_summary(summary: dict, path: str, counts: dict[str, int]) -> None:
    """Writes the summary of all shards as JSON.

    Args:
        summary: dict, as of `merge_summaries`.
        path: str.
        counts: dict. Counters of the pages.
    """
    counts = {**counts, **summary["counts"]}
    write_text(path, json.dumps({**summary, "counts": counts}))


def metadata(summary: dict, packing: blocks.Packing) -> dict:
    """What a blocks directory says of itself, but for its tokenizer.

    Args:
        summary: dict, as `write_summary` writes it.
        packing: `blocks.Packing`.

    Raises:
        InputError: if there is no block.
    """
    found = summary["counts"]
    bad_records = {
        name: found[name]
        for name in sorted(found)
        if name.startswith("dropped_bad_record_")
    }
    counts = {name: found.get(name, 0) for name in COUNTERS}
    shard_rows = [count for _, count in summary["rows"]]
    if not shard_rows:
        reasons = ", ".join(
            f"{name} {value:,}"
            for name, value in {**counts, **bad_records}.items()
            if value
        )
        raise InputError(
            "no block was made: the input holds no article that is kept "
            f"({reasons or 'no page at all'})."
        )
    max_length = packing.max_length
    if packing.unit != blocks.WORDPIECES:
        most = packing.max_length
        if packing.unit == blocks.WORDS:
            most = blocks.MAX_BLOCK_LENGTH
        max_length = min(most, summary["longest_joint"])
    return {
        "counts": {**counts, **bad_records},
        "num_blocks": sum(shard_rows),
        "shard_rows": shard_rows,
        "max_block_length": max_length,
        "longest_block": summary["longest_block"],
        "fingerprint": fingerprints.fingerprint(summary["digest"]),
    }
