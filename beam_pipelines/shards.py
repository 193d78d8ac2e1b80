"""The final shards of blocks, with their ids."""

import dataclasses
import itertools
import operator

import numpy as np
import pyarrow

from realm_tf.artifacts import record_files
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines.steps import ShardStep
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


@dataclasses.dataclass(eq=False, kw_only=True)
class WriteBlocks(ShardStep):
    """Writes a `plans.BlockShard`.

    A shard is begun beside the parts, so that a worker which outlives a killed
    run cannot finish one once the parts of that run are gone.

    Args:
        packing: `blocks.Packing`.
        unknown_id: int. The wordpiece of unknown words, which is counted.
    """

    command = "chunk"
    what = "blocks"

    packing: blocks.Packing
    unknown_id: int

    def make(self, shard):
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
        """Yields the rows of the parts."""
        for part, runs in itertools.groupby(
            shard.runs, key=operator.itemgetter(0)
        ):
            table = parts.read_blocks(self.directory, part)
            for _, low, high in runs:
                yield table.slice(low, high - low)

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
