"""Transforms that mark the salient spans of blocks.

A range of blocks becomes one shard. After its file comes its summary (counts
and a digest), which says that the shard is complete; the summaries of all
shards make up those of the corpus, so neither depends on how often a run was
killed.
"""

import bisect
import collections
import dataclasses
import hashlib
import itertools
import json
import os
import time
from collections.abc import Sequence

import apache_beam as beam
import tensorflow as tf
from apache_beam.metrics import Metrics

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import transforms
from realm_tf.errors import InputError
from realm_tf.progress import Progress
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
SUMMARIES = "summaries"
# Blocks that a tagger gets at once (our choice): enough sentences to batch
# those of equal length.
BLOCKS_PER_CALL = 64
# Of a passage that is no block of the knowledge corpus.
NO_BLOCK_ID = -1

_MODULUS = 1 << 256


@dataclasses.dataclass(frozen=True)
class Shard:
    """A range of blocks, and the file that their passages go to.

    Args:
        path: str. The file to write.
        summary_path: str. Written after the file: the shard is complete.
        start: int. Id of the first block.
        limit: int. Id after the last one.
        is_complete: bool. Whether an earlier run wrote it.
    """

    path: str
    summary_path: str
    start: int
    limit: int
    is_complete: bool


def plan_shards(
    directory: str, *, num_blocks: int, passages_per_shard: int
) -> list[Shard]:
    """Divides blocks into shards, and finds those that are complete.

    Args:
        directory: str. The stage's.
        num_blocks: int.
        passages_per_shard: int.

    Returns:
        list of `Shard`, in the order of the blocks.
    """
    summaries = os.path.join(directory, SUMMARIES)
    Path(summaries).mkdir(parents=True, exist_ok=True)
    present = {
        *sorted(each.name for each in Path(directory).iterdir()),
        *sorted(each.name for each in Path(summaries).iterdir()),
    }
    total = -(-num_blocks // passages_per_shard)
    plan = []
    for number in range(total):
        stem = f"annotated-{number:05d}-of-{total:05d}"
        names = f"{stem}.tfrecord.gz", f"{stem}.json"
        shard = Shard(
            os.path.join(directory, names[0]),
            os.path.join(summaries, names[1]),
            number * passages_per_shard,
            min((number + 1) * passages_per_shard, num_blocks),
            present.issuperset(names),
        )
        if names[1] in present and not shard.is_complete:
            # Its file may have been lost since.
            remove(shard.summary_path)
        plan.append(shard)
    return plan


def merge_summaries(plan: list[Shard]) -> tuple[dict[str, int], str]:
    """Counts and fingerprint of the whole corpus.

    Args:
        plan: list of `Shard`, all complete.

    Returns:
        dict of counters, and a fingerprint of the records in their order,
        whatever the bounds of the shards.
    """
    found = collections.Counter()
    digest = 0
    for shard in plan:
        summary = json.loads(Path(shard.summary_path).read_text())
        found.update(summary["counts"])
        digest += int(summary["digest"], 16)
    labels = sorted(name for name in found if name.startswith("spans_"))
    counts = {name: found[name] for name in (*COUNTERS, *labels)}
    return counts, fingerprints.fingerprint(_hex(digest))


def _hex(digest):
    return f"{digest % _MODULUS:064x}"


class AnnotateRange(beam.DoFn):
    """Annotates a range of blocks and writes its shard.

    Args:
        blocks: `Blocks`.
        directory: str. The stage's.
        plan: list of `Shard`. All of the run, whose progress is shown.
        tagger: dict. Arguments of `taggers.make_tagger`, called once a
            worker.
        has_block_ids: bool. Whether the passages are blocks of the knowledge
            corpus.
    """

    def __init__(self, blocks, directory, plan, *, tagger, has_block_ids):
        self._blocks = blocks
        self._directory = directory
        self._tagger_arguments = tagger
        self._has_block_ids = has_block_ids
        # Name of each summary to the passages of its shard.
        self._rows = {
            os.path.basename(shard.summary_path): shard.limit - shard.start
            for shard in plan
        }
        self._num_skipped = sum(
            shard.limit - shard.start for shard in plan if shard.is_complete
        )
        self._started = time.time()

    def setup(self):
        self._progress = Progress(
            "annotate",
            "passages",
            sum(self._rows.values()),
            before=self._num_skipped,
            # Of the run, whenever this worker began.
            started=self._started,
            clock=time.time,
        )
        try:
            self._tagger = taggers.make_tagger(**self._tagger_arguments)
        except InputError as error:
            transforms.report_error(self._directory, error)

    def process(self, shard: Shard):
        if transforms.has_error(self._directory):
            return
        try:
            self._write(shard)
        except InputError as error:
            transforms.report_error(self._directory, error)
            return
        yield shard.path

    def _write(self, shard):
        counts = collections.Counter()
        digest = 0
        with (
            parts.writing(shard.path) as path,
            tf.io.TFRecordWriter(path, options="GZIP") as writer,
        ):
            for number, passage in self._annotate(shard, counts):
                record = schema.annotated_to_example(passage)
                writer.write(record)
                # With its place, so that order counts.
                placed = number.to_bytes(8, "big") + record
                digest += int.from_bytes(hashlib.sha256(placed).digest(), "big")
        for name, value in counts.items():
            Metrics.counter("annotate", name).inc(value)
        summary = {"counts": counts, "digest": _hex(digest)}
        write_text(shard.summary_path, json.dumps(summary))

    def _annotate(self, shard, counts):
        found = self._blocks.read(shard.start, shard.limit)
        max_block_length = self._blocks.metadata["max_block_length"]
        while batch := list(itertools.islice(found, BLOCKS_PER_CALL)):
            tagged = self._tagger.tag(batch)
            for block, spans in zip(batch, tagged, strict=True):
                passage, block_counts = annotate_block(block, spans)
                number = block.block_id
                if not self._has_block_ids:
                    passage.block_id = NO_BLOCK_ID
                counts.update(block_counts)
                counts["overlong_passages"] += is_overlong(
                    block, max_block_length
                )
                yield number, passage
            self._report(counts["passages"])

    def _report(self, num_begun):
        if not self._progress.is_due():
            return
        summaries = Path(os.path.join(self._directory, SUMMARIES)).iterdir()
        done = sum(self._rows.get(each.name, 0) for each in summaries)
        self._progress.show(done + num_begun)


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

    Raises:
        ValueError: if a span is empty or outside the text, which is a defect
            of the tagger.
    """
    sentences = taggers.sentences(block)
    counts = collections.Counter(passages=1, sentences=len(sentences))
    kept = []
    for start, limit, label in sorted(spans, key=_earlier_then_longer):
        if not 0 <= start < limit <= len(block.text):
            raise ValueError(
                f"A tagger marked {start} to {limit} of a text of "
                f"{len(block.text)} characters (block {block.block_id})."
            )
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
    sentence_bytes = _utf8_offsets(block.text, sentences)
    span_bytes = _utf8_offsets(block.text, [span[:2] for span in kept])
    passage = schema.AnnotatedPassage(
        block_id=block.block_id,
        title=block.title,
        text=block.text,
        sentence_byte_start=sentence_bytes[::2],
        sentence_byte_limit=sentence_bytes[1::2],
        span_byte_start=span_bytes[::2],
        span_byte_limit=span_bytes[1::2],
        span_label=[label for _, _, label in kept],
    )
    return passage, counts


def _earlier_then_longer(span):
    start, limit, label = span
    return start, -limit, label


def _utf8_offsets(text, ranges):
    """UTF-8 bytes before each start and limit of ranges in order, flat."""
    offsets = []
    place = offset = 0
    for next_place in itertools.chain.from_iterable(ranges):
        offset += len(text[place:next_place].encode("utf-8"))
        offsets.append(offset)
        place = next_place
    return offsets
