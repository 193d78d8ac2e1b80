"""Transforms that make blocks of articles.

Chunking goes over the articles once. `ChunkPages` writes the blocks of every
`PAGES_PER_PART` pages of a file to a part and hands on only counts and
digests: 32 bytes a page. What these say (which pages are duplicates, how many
blocks come before a part) decides the ids, with which `shards.WriteBlocks`
copies the parts to the final shards. So neither the runner nor a worker ever
holds the texts of a corpus, and the ids follow from file and position alone.

A part that an interrupted run has written to its end is not made again.
"""

import dataclasses
import itertools
import operator

import numpy as np

from realm_tf.articles import readers
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines.sources import PAGES_PER_PART
from realm_tf.beam_pipelines.sources import Source
from realm_tf.beam_pipelines.steps import Step
from realm_tf.beam_pipelines.steps import Tagged
from realm_tf.errors import InputError
from realm_tf.progress import Progress
from realm_tf.text import blocks
from realm_tf.text.tokenizer import Tokenizer

# Code points of articles that are cut at once (our choice): enough to make
# NumPy's calls cheap; more are no faster.
BATCH_LENGTH = 1 << 18


@dataclasses.dataclass(eq=False, kw_only=True)
class ChunkPages(Step):
    """`Source` to parts; yields what decides the ids.

    Yields (bucket, (part, pages)): `parts.PAGES` of the pages whose ids fall
    into the same bucket, as bytes; and, tagged `counts`, (name, amount) of
    each counter of a part.

    Args:
        directory: str. Where the parts go.
        tokenizer: `Tokenizer`.
        packing: `blocks.Packing`.
        base_url: str or None. Before the title in URLs.
        keep_all_titles: bool. Keep lists and disambiguations.
        keep_tables: bool. See `readers.article_text`.
    """

    directory: str
    tokenizer: Tokenizer
    packing: blocks.Packing
    base_url: str | None
    keep_all_titles: bool
    keep_tables: bool

    def setup(self, share=operator.call):
        self._progress = Progress("chunk", "articles")

    def process(self, source: Source):
        with resumable.reporting(self.directory):
            for number, pages in self._parts(source):
                if resumable.has_error(self.directory):
                    return
                part = (source.file_number, number)
                if not parts.is_there(self.directory, part):
                    self._write_part(source, part, pages)
                table, counts = parts.read_pages(self.directory, part)
                buckets = table["id_low"] % parts.NUM_BUCKETS
                for bucket in np.unique(buckets).tolist():
                    rows = table[buckets == bucket]
                    yield bucket, (part, rows.tobytes())
                for item in counts.items():
                    yield Tagged("counts", item)

    def _parts(self, source):
        """Yields (number, pages) of the parts of the file that are here."""
        pages = readers.read_pages(
            source.path, format=source.format, base_url=self.base_url
        )
        for number, found in itertools.groupby(
            pages, key=lambda page: (page.number - 1) // PAGES_PER_PART
        ):
            if number % source.stride == source.remainder:
                yield number, found

    def _write_part(self, source, part, pages):
        writer = parts.PartWriter()
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
        writer.write(self.directory, part)

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
            if self._progress.is_due():
                self._progress.print(f"at {cut[-1][0].place}")


@dataclasses.dataclass(eq=False, kw_only=True)
class KeepFirst(Step):
    """Keeps the first of several articles with one id, for a bucket of ids.

    Yields (part, number of blocks) of what is kept, tagged `dropped` (part,
    page number) of the others, and tagged `counts` (name, amount).

    Args:
        directory: str. Where errors are reported.
        paths: dict. Number to path of the input files, for messages.
    """

    directory: str
    paths: dict[int, str]

    def process(self, keyed):
        firsts = {}
        num_dropped = 0
        # In the order of the parts: the first comes first.
        for part, data in sorted(keyed[1]):
            num_kept = 0
            pages = np.frombuffer(data, dtype=parts.PAGES).tolist()
            for *article_id, text, number, num_blocks in pages:
                page = part, number
                first = firsts.setdefault(tuple(article_id), (text, page))
                if first[0] != text:
                    self._report(first[1], page)
                    return
                if first[1] == page:
                    num_kept += num_blocks
                else:
                    num_dropped += 1
                    yield Tagged("dropped", page)
            yield part, num_kept
        yield Tagged("counts", ("articles_kept", len(firsts)))
        yield Tagged("counts", ("dropped_duplicate", num_dropped))

    def _report(self, *pages):
        first, second = (
            f"page {number} of {self.paths[file_number]}"
            for (file_number, _), number in pages
        )
        with resumable.reporting(self.directory):
            raise InputError(
                f"{first} and {second} have one article id and different "
                "texts: give every article its own id or leave one of the "
                "files out."
            )
