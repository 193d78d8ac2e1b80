"""The step that cuts articles into blocks."""

import collections
import dataclasses
import itertools
import time

from realm_tf.articles import readers
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines import sources
from realm_tf.beam_pipelines.steps import ShardStep
from realm_tf.progress import Progress
from realm_tf.text import blocks
from realm_tf.text.tokenizer import Tokenizer

# Code points of articles that are cut at once (our choice): enough to make
# NumPy's calls cheap; more are no faster.
BATCH_LENGTH = 1 << 18


@dataclasses.dataclass(eq=False, kw_only=True)
class ChunkPages(ShardStep):
    """Makes the parts of a `sources.Share`, and the table of its pages.

    A part that an interrupted run has written to its end is not made again.

    Args:
        tokenizer: `Tokenizer`.
        packing: `blocks.Packing`.
        base_url: str or None. Before the title in URLs.
        keep_all_titles: bool. Keep lists and disambiguations.
        keep_tables: bool. See `readers.article_text`.
    """

    command = "chunk"
    what = "articles"

    tokenizer: Tokenizer
    packing: blocks.Packing
    base_url: str | None
    keep_all_titles: bool
    keep_tables: bool

    def make_progress(self, shards):
        return _PartsProgress(self.command, self.directory)

    def make(self, share):
        tables, counts = [], collections.Counter()
        for number, pages in self._parts(share):
            if resumable.has_error(self.directory):
                return
            part = (share.source.file_number, number)
            if not parts.is_there(self.directory, part):
                self._write_part(share.source, part, pages)
            table, counted = parts.read_pages(self.directory, part)
            tables.append(table)
            counts.update(counted)
        parts.write_table(share.path, tables, counts)

    def _parts(self, share):
        """Yields (number, pages) of the parts of the file that are here."""
        pages = readers.read_pages(
            share.source.path,
            format=share.source.format,
            base_url=self.base_url,
        )
        for number, found in itertools.groupby(
            pages, key=lambda page: (page.number - 1) // sources.PAGES_PER_PART
        ):
            if number % share.stride == share.remainder:
                yield number, found

    def _write_part(self, source, part, pages):
        writer = parts.PartWriter(self.directory, part)
        batch = []
        length = 0
        for page in pages:
            writer.counts["pages_read"] += 1
            reason = readers.drop_reason(
                page,
                format=source.format,
                keep_all_titles=self.keep_all_titles,
            )
            if reason:
                writer.counts[f"dropped_{reason}"] += 1
                continue
            plain = readers.article_text(
                page, format=source.format, keep_tables=self.keep_tables
            )
            batch.append((page, plain))
            length += len(plain.text)
            if length >= BATCH_LENGTH:
                self._write_batch(writer, batch)
                batch = []
                length = 0
        self._write_batch(writer, batch)
        writer.write()

    def _write_batch(self, writer, batch):
        found = blocks.split_articles(
            [plain for _, plain in batch], self.tokenizer, self.packing
        )
        cut = [
            (page, article_blocks)
            for (page, _), article_blocks in zip(batch, found, strict=True)
            if article_blocks
        ]
        writer.counts["dropped_empty"] += len(batch) - len(cut)
        if cut:
            writer.add(cut)
            self.progress(0)


class _PartsProgress(Progress):
    """Says how many parts all workers have written."""

    def __init__(self, command, directory):
        # Workers on other machines know this clock, too.
        super().__init__(command, "parts", clock=time.time)
        self._directory = directory

    def __call__(self, _):
        if self.is_due():
            num_parts = parts.num_written(self._directory)
            self.print(
                f"{num_parts:,} parts of {sources.PAGES_PER_PART:,} pages are read"
            )
