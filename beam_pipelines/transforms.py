"""Transforms that make blocks of articles.

Chunking goes over the articles once. `ChunkPages` writes the blocks of every
`PAGES_PER_PART` pages of a file to a part file and hands on only counts and
digests; what these say (which pages are duplicates, how many blocks come
before a part) decides the ids, with which `shards.WriteBlocks` copies the
parts to the final shards. So neither the runner nor a worker ever holds the
texts of a corpus, and the ids follow from file and position alone.

A mistake in the input is not raised in a worker, where runners print it with
their own tracebacks and some try again: `report_error` writes it down, all
steps stop, and `raise_error` raises it where the pipeline was started.
"""

import dataclasses
import hashlib
import itertools
import sys
import time

import apache_beam as beam
import tensorflow as tf
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from realm_tf import stages
from realm_tf.data import articles
from realm_tf.data import schema
from realm_tf.errors import InputError
from realm_tf.text import blocks
from realm_tf.text.tokenizer import Tokenizer

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
)
# Enough pages to make opening a file cheap, few enough to share them out.
PAGES_PER_PART = 1000
SECONDS_BETWEEN_REPORTS = 10

_ERROR = "error.txt"


@dataclasses.dataclass(frozen=True)
class Source:
    """An input file, or every so many-th part of one.

    A reader that knows byte ranges can replace `stride` and `remainder`: the
    order of the pages within a file is all that the ids depend on.

    Args:
        file_number: int. Rank of the file among the inputs.
        path: str.
        format: str. One of `articles.FORMATS`.
        stride: int. The file is shared among so many elements.
        remainder: int. This one takes the parts whose number, divided by
            `stride`, leaves this.
    """

    file_number: int
    path: str
    format: str
    stride: int = 1
    remainder: int = 0


def count(name: str, amount: int = 1) -> None:
    """Adds to a counter of chunking."""
    Metrics.counter("chunk", name).inc(amount)


def part_path(directory: str, part: tuple[int, int]) -> str:
    """The file of a part (file number, number in the file)."""
    return stages.join(directory, f"{part[0]:05d}-{part[1]:08d}.tfrecord")


def report_error(directory: str, error: InputError) -> None:
    """Writes down why the pipeline that uses `directory` must stop."""
    stages.write_text(stages.join(directory, _ERROR), str(error))


def clear_error(directory: str) -> None:
    """Forgets what workers of an earlier run reported."""
    stages.remove(stages.join(directory, _ERROR))


def has_error(directory: str) -> bool:
    """Whether some worker has reported an error."""
    return stages.exists(stages.join(directory, _ERROR))


def raise_error(directory: str) -> None:
    """Raises the `InputError` that a worker has reported, if any."""
    if has_error(directory):
        raise InputError(stages.read_text(stages.join(directory, _ERROR)))


class ChunkPages(beam.DoFn):
    """`Source` to part files; yields what decides the ids.

    Yields (article_id, (part, page number, digest of the text, number of
    blocks, place)), where a part is (file number, number in the file).

    Args:
        directory: str. Where the part files go.
        vocabulary: list of str. Wordpieces.
        lowercase: bool. As the tokenizer.
        max_block_length: int. Wordpieces.
        language: str. For sentence boundaries.
        base_url: str or None. Before the title in URLs.
        keep_all_titles: bool. Keep lists and disambiguations.
    """

    def __init__(
        self,
        directory: str,
        *,
        vocabulary: list[str],
        lowercase: bool,
        max_block_length: int,
        language: str,
        base_url: str | None,
        keep_all_titles: bool,
    ):
        self._directory = directory
        self._vocabulary = vocabulary
        self._lowercase = lowercase
        self._max_block_length = max_block_length
        self._language = language
        self._base_url = base_url
        self._keep_all_titles = keep_all_titles

    def setup(self):
        self._tokenizer = Tokenizer(self._vocabulary, lowercase=self._lowercase)
        self._reported = time.monotonic()

    def process(self, source: Source):
        pages = articles.read_pages(
            source.path, format=source.format, base_url=self._base_url
        )
        parts = itertools.groupby(
            pages, key=lambda page: (page.number - 1) // PAGES_PER_PART
        )
        try:
            for number, part_pages in parts:
                if has_error(self._directory):
                    return
                if number % source.stride == source.remainder:
                    yield from self._write_part(source, number, part_pages)
        except InputError as error:
            report_error(self._directory, error)

    def _write_part(self, source, part_number, pages):
        part = (source.file_number, part_number)
        path = part_path(self._directory, part)
        with tf.io.TFRecordWriter(path) as writer:
            for page in pages:
                count("pages_read")
                reason = articles.drop_reason(
                    page,
                    format=source.format,
                    keep_all_titles=self._keep_all_titles,
                )
                found = [] if reason else self._blocks(page, source.format)
                if not found:
                    count(f"dropped_{reason or 'empty'}")
                    continue
                for block in found:
                    writer.write(schema.block_to_example(block))
                digest = hashlib.sha256(page.text.encode("utf-8")).digest()
                place = page.place.removeprefix(source.path)
                yield (
                    page.article_id,
                    (part, page.number, digest[:16], len(found), place),
                )
                self._report(page.place)

    def _blocks(self, page, format):
        plain = articles.article_text(page, format=format)
        article = blocks.ArticleText(
            page.title, plain.text, plain.link_starts, plain.link_limits
        )
        return [
            # The page's number stands in for the id until that is known.
            schema.Block(
                block_id=page.number,
                article_id=page.article_id,
                title=page.title,
                url=page.url,
                **vars(block),
            )
            for block in blocks.split_article(
                article,
                self._tokenizer,
                max_block_length=self._max_block_length,
                language=self._language,
            )
        ]

    def _report(self, place):
        now = time.monotonic()
        if now - self._reported > SECONDS_BETWEEN_REPORTS:
            self._reported = now
            print(f"chunk: at {place}", file=sys.stderr, flush=True)


class KeepFirst(beam.DoFn):
    """Keeps the first of several articles with one id.

    Yields (part, number of blocks) for what is kept and, tagged `dropped`,
    (part, page number) for the others.

    Args:
        directory: str. Where errors are reported.
        paths: list of str. The input files by number, for messages.
    """

    def __init__(self, directory: str, *, paths: list[str]):
        self._directory = directory
        self._paths = paths

    def process(self, keyed):
        article_id, entries = keyed
        first, *others = sorted(entries)
        for other in others:
            if other[2] != first[2]:
                error = InputError(
                    f"article id {article_id!r} stands at "
                    f"{self._place(first)} and, with another text, at "
                    f"{self._place(other)}: give every article its own id or "
                    "leave one of the files out."
                )
                report_error(self._directory, error)
                return
            count("dropped_duplicate")
            yield TaggedOutput("dropped", (other[0], other[1]))
        count("articles_kept")
        yield first[0], first[3]

    def _place(self, entry):
        return self._paths[entry[0][0]] + entry[4]
