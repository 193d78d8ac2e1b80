"""The pipeline of `realm annotate`: ranges of blocks -> annotated shards."""

import bisect
import collections
import dataclasses
import itertools
from collections.abc import Sequence

from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.artifact import Stage
from realm_tf.artifacts.objects import Blocks
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines.engine import run_on_shards
from realm_tf.beam_pipelines.steps import ShardStep
from realm_tf.errors import InputError
from realm_tf.tagging import taggers
from realm_tf.text.blocks import is_overlong

# Counters of annotating, besides spans_* for each label.
COUNTERS = (
    "passages",
    "sentences",
    "spans",
    "passages_without_span",
    "overlong_passages",
    "dropped_crossing_spans",
    "dropped_overlapping_spans",
)
# A few seconds of work for rules, minutes for a model: what a killed run
# loses, and what the workers share out (our choice).
PASSAGES_PER_SHARD = 5_000
# Blocks that a tagger gets at once (our choice): enough sentences to batch
# those of equal length.
BLOCKS_PER_CALL = 64
# Of a passage that is no block of the knowledge corpus.
NO_BLOCK_ID = -1
_SCHEMA = record_files.schema_of(schema.AnnotatedPassage)


def write_passages(
    stage: Stage,
    blocks: Blocks,
    *,
    tagger: dict,
    has_block_ids: bool,
    options=None,
) -> dict:
    """Writes the shards that a directory does not hold yet.

    Args:
        stage: `Stage`. Removed again if no span is found.
        blocks: `Blocks`.
        tagger: dict. Arguments of `taggers.make_tagger`.
        has_block_ids: bool. Whether the passages are blocks of the knowledge
            corpus.
        options: of `engine.given_options`. Defaults to `None`.

    Returns:
        dict: `counts`, `num_passages`, `shard_rows` and `fingerprint`.

    Raises:
        InputError: if a worker found a mistake, or there is no span at all.
    """
    limits = range(0, blocks.num_blocks, PASSAGES_PER_SHARD)
    shards = resumable.plan_shards(
        stage.path("annotated"),
        record_files.ENDING,
        [*limits, blocks.num_blocks],
    )
    annotate = AnnotateShard(
        blocks=blocks,
        directory=stage.directory,
        tagger=tagger,
        has_block_ids=has_block_ids,
    )
    run_on_shards(annotate, shards, options)
    found = resumable.merge_summaries(shard.path for shard in shards)
    labels = sorted(name for name in found.counts if name.startswith("spans_"))
    counts = {name: found.counts[name] for name in (*COUNTERS, *labels)}
    with resumable.nothing_left_of_a_mistake(stage):
        _check_spans(tagger["name"], counts)
    return {
        "counts": counts,
        "num_passages": counts["passages"],
        "shard_rows": found.shard_rows,
        "fingerprint": found.fingerprint,
    }


def _check_spans(tagger, counts):
    wanted = "spans_link" if tagger == taggers.LINKS else "spans"
    if not counts.get(wanted):
        raise InputError(
            f"--tagger {tagger} found no span in {counts['passages']:,} "
            "passages. `links` needs a MediaWiki dump, and the others know "
            "some languages only: choose another tagger."
        )


@dataclasses.dataclass(eq=False, kw_only=True)
class AnnotateShard(ShardStep):
    """Annotates a range of blocks and writes its shard.

    Args:
        blocks: `Blocks`.
        tagger: dict. Arguments of `taggers.make_tagger`.
        has_block_ids: bool. Whether the passages are blocks of the knowledge
            corpus.
    """

    command = "annotate"
    what = "passages"

    blocks: Blocks
    tagger: dict
    has_block_ids: bool

    def load(self, share):
        self._tagger = taggers.make_tagger(**self.tagger)

    def make(self, shard):
        counts = collections.Counter()
        found = self._annotate(shard, counts)
        tables = [_SCHEMA.empty_table()]
        while batch := list(itertools.islice(found, BLOCKS_PER_CALL)):
            tables.append(
                record_files.rows_to_table(schema.AnnotatedPassage, batch)
            )
        resumable.write_records(shard, tables, counts=counts)

    def _annotate(self, shard, counts):
        found = self.blocks.read(shard.start, shard.limit)
        max_block_length = self.blocks.metadata["max_block_length"]
        while batch := list(itertools.islice(found, BLOCKS_PER_CALL)):
            tagged = self._tagger.tag(batch)
            for block, spans in zip(batch, tagged, strict=True):
                passage, block_counts = annotate_block(block, spans)
                if not self.has_block_ids:
                    passage.block_id = NO_BLOCK_ID
                counts.update(block_counts)
                counts["overlong_passages"] += is_overlong(
                    block, max_block_length
                )
                yield passage
            self.progress(counts["passages"])


def annotate_block(
    block: schema.Block, spans: Sequence[taggers.Span]
) -> tuple[schema.AnnotatedPassage, collections.Counter]:
    """A block with its spans, in UTF-8 bytes.

    Args:
        block: `schema.Block`.
        spans: sequence of (start, limit, label), code points. One that is not
            inside one sentence is dropped; of two that overlap, the one that
            begins earlier, or else is longer, stays.

    Returns:
        `schema.AnnotatedPassage` and a counter of `passages`, `sentences`,
        `spans`, `spans_*` for each label, `passages_without_span`,
        `dropped_crossing_spans` and `dropped_overlapping_spans`.
    """
    sentences = taggers.sentences(block)
    counts = collections.Counter(passages=1, sentences=len(sentences))
    kept = []
    for start, limit, label in sorted(
        spans, key=lambda span: (span[0], -span[1], span[2])
    ):
        number = bisect.bisect_right(block.sentence_starts, start) - 1
        if number < 0 or limit > sentences[number][1]:
            counts["dropped_crossing_spans"] += 1
        elif kept and start < kept[-1][1]:
            counts["dropped_overlapping_spans"] += 1
        else:
            kept.append((start, limit, label))
            counts["spans"] += 1
            counts[f"spans_{label}"] += 1
    counts["passages_without_span"] += not kept
    sentence_starts, sentence_limits = _utf8_offsets(block.text, sentences)
    span_starts, span_limits = _utf8_offsets(block.text, kept)
    passage = schema.AnnotatedPassage(
        block_id=block.block_id,
        title=block.title,
        text=block.text,
        sentence_byte_start=sentence_starts,
        sentence_byte_limit=sentence_limits,
        span_byte_start=span_starts,
        span_byte_limit=span_limits,
        span_label=[label for _, _, label in kept],
    )
    return passage, counts


def _utf8_offsets(text, ranges):
    """UTF-8 bytes before each start and before each limit."""
    return [
        [len(text[: each[end]].encode("utf-8")) for each in ranges]
        for end in (0, 1)
    ]
