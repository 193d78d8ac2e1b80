"""The final shards of blocks: which blocks they hold, and their ids."""

import dataclasses
import itertools
import os
from collections.abc import Iterator

import numpy as np
import pyarrow

from realm_tf.artifacts import record_files
from realm_tf.artifacts.paths import Path
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines.steps import Step
from realm_tf.errors import InputError
from realm_tf.text import blocks

# Counters of chunking, besides dropped_bad_record_* for each reason.
COUNTERS = (
    "pages_read",
    "dropped_redirect",
    "dropped_namespace",
    "dropped_list_title",
    "dropped_disambiguation",
    "dropped_empty",
    "dropped_duplicate",
    "articles_kept",
    "blocks",
    "sentences",
    "overlong_sentences",
    "wordpieces",
    "unknown_wordpieces",
)
# What names of shards begin with.
PREFIX = "blocks"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockShard(resumable.Shard):
    """The contents of one output shard; rows are block ids.

    Args:
        parts: tuple of (part, blocks to skip, page numbers to leave out).
    """

    parts: tuple[tuple[tuple[int, int], int, frozenset[int]], ...]


def plan_shards(
    _,
    counts: dict,
    dropped: list,
    *,
    output: str,
    directory: str,
    blocks_per_shard: int,
) -> Iterator[BlockShard]:
    """Divides all blocks, in their order, into shards of equal size.

    Args:
        counts: dict. Part to its number of blocks, dropped pages left out.
        dropped: list of (part, page number). The dropped pages.
        output: str. Where the shards go.
        directory: str. Where the parts are.
        blocks_per_shard: int. At most.

    Yields:
        `BlockShard`; nothing once some worker has reported an error.
    """
    if resumable.has_error(directory):
        return
    pages = {}
    for part, number in dropped:
        pages.setdefault(part, set()).add(number)
    ordered = sorted(counts)
    starts = [0, *itertools.accumulate(counts[part] for part in ordered)]
    total = starts[-1]
    num_shards = -(-total // blocks_per_shard)
    if not total:
        return
    for shard in resumable.plan_shards(
        os.path.join(output, PREFIX),
        record_files.ENDING,
        [total * number // num_shards for number in range(num_shards + 1)],
    ):
        yield BlockShard(
            **vars(shard),
            parts=tuple(
                (
                    part,
                    max(0, shard.start - start),
                    frozenset(pages.get(part, ())),
                )
                for part, (start, end) in zip(
                    ordered, itertools.pairwise(starts), strict=True
                )
                if max(start, shard.start) < min(end, shard.limit)
            ),
        )


@dataclasses.dataclass(eq=False, kw_only=True)
class WriteBlocks(Step):
    """Writes a `BlockShard` that no interrupted run has completed.

    A shard is begun beside the parts, so that a worker which outlives a killed
    run cannot finish one once the parts of that run are gone.

    Args:
        directory: str. Where the parts are.
        packing: `blocks.Packing`.
        unknown_id: int. The wordpiece of unknown words, which is counted.
    """

    directory: str
    packing: blocks.Packing
    unknown_id: int

    def process(self, shard: BlockShard):
        if Path(shard.path).exists():
            return
        table = pyarrow.concat_tables(self._blocks(shard))
        number = table.schema.get_field_index("block_id")
        ids = pyarrow.array(range(shard.start, shard.start + len(table)))
        table = table.set_column(number, table.schema.field(number), ids)
        counts, longest = self._count(table)
        resumable.write_records(
            shard,
            [table],
            counts=counts,
            longest=longest,
            directory=self.directory,
        )

    def _blocks(self, shard):
        """Yields the blocks of the parts, those of dropped pages left out."""
        missing = shard.limit - shard.start
        for part, skip, dropped_pages in shard.parts:
            pages, _ = parts.read_pages(self.directory, part)
            is_kept = ~np.isin(pages["number"], list(dropped_pages))
            chosen = np.flatnonzero(np.repeat(is_kept, pages["blocks"]))
            chosen = chosen[skip : skip + missing]
            missing -= len(chosen)
            table = parts.read_blocks(self.directory, part)
            yield record_files.some_rows(table, chosen)

    def _count(self, table):
        """Counters, and wordpieces of the longest block with its title."""
        titles, bodies, sentences = (
            record_files.Column(table[name]).lengths()
            for name in ("title_ids", "token_ids", "sentence_starts")
        )
        joint = titles + bodies + blocks.NUM_SPECIAL
        ids = record_files.Column(table["token_ids"])
        counts = {
            "blocks": len(table),
            "wordpieces": bodies.sum(),
            "unknown_wordpieces": sum(
                np.count_nonzero(values == self.unknown_id)
                for values, _ in ids.parts()
            ),
            "sentences": sentences.sum(),
        }
        if self.packing.unit == blocks.WORDPIECES:
            is_overlong = joint > self.packing.max_length
            counts["overlong_sentences"] = np.count_nonzero(is_overlong)
        counts = {name: int(value) for name, value in counts.items()}
        return counts, int(joint.max())


def metadata(
    summary: resumable.Summary, counts: dict, packing: blocks.Packing
) -> dict:
    """The metadata of a blocks directory, without its tokenizer.

    Args:
        summary: `Summary` of the shards.
        counts: dict. Counters of the pages.
        packing: `blocks.Packing`.

    Raises:
        InputError: if there is no block.
    """
    found = {**counts, **summary.counts}
    bad_records = sorted(n for n in found if n.startswith("dropped_bad_record"))
    counts = {name: found.get(name, 0) for name in (*COUNTERS, *bad_records)}
    if not summary.shard_rows:
        reasons = ", ".join(
            f"{name} {value:,}" for name, value in counts.items() if value
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
        max_length = min(most, summary.longest)
    return {
        "counts": counts,
        "num_blocks": sum(summary.shard_rows),
        "shard_rows": summary.shard_rows,
        "max_block_length": max_length,
        "fingerprint": summary.fingerprint,
    }
