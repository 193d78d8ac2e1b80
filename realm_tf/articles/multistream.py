"""Multistream dumps: reading one range of pages of a dump by its index.

A multistream dump is many bz2 streams, one after the other: the header, then
about 100 pages a stream, then the end tag. Its index names, for every page,
the byte where its stream begins. So workers read ranges of streams at the
same time, each as a small dump of its own: header, range, end tag.

An index that belongs to another dump is refused: every range must begin with
a bz2 stream and hold exactly the pages that the index says.
"""

import bz2
import contextlib
import dataclasses
import hashlib
import io
import itertools
import operator
import os
import re
from collections.abc import Iterable
from collections.abc import Iterator

from realm_tf.articles.pages import Page
from realm_tf.articles.pages import file_state
from realm_tf.articles.pages import open_bytes
from realm_tf.articles.pages import read_lines
from realm_tf.articles.pages import readable
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError

# As Wikimedia names them: X-multistream.xml.bz2 beside
# X-multistream-index.txt.bz2, X-multistream3.xml-p1p9.bz2 beside
# X-multistream-index3.txt-p1p9.bz2.
_DUMP_NAME = re.compile(r"-multistream(\d*)\.xml")
_INDEX_NAME = re.compile(r"-multistream-index\d*\.txt")
# A bz2 stream with data: its own magic number and that of its first block.
_STREAM_HEAD = re.compile(rb"BZh[1-9]1AY&SY")
_STREAM_HEAD_BYTES = 10
_END = bz2.compress(b"</mediawiki>\n")
# A range is read whole; one of a thousand pages has some 10 MB (our choice).
_MAX_RANGE_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True)
class StreamRange:
    """Some streams of a dump that follow one another.

    Args:
        index: str. Path of the index, for messages.
        header_limit: int. Byte of the dump after the stream of the header.
        start: int. Byte where the first stream begins.
        limit: int. Byte after the last stream.
        first_number: int. Number of the first page among all of the dump.
        digest: str. Of the page ids, in their order.
    """

    index: str
    header_limit: int
    start: int
    limit: int
    first_number: int
    digest: str


def index_path(dump: str) -> str | None:
    """Where the index of a dump would lie, by the dump's name.

    >>> index_path("/d/wiki-multistream2.xml-p1p9.bz2")
    '/d/wiki-multistream-index2.txt-p1p9.bz2'
    """
    folder, name = os.path.split(dump)
    renamed, count = _DUMP_NAME.subn(r"-multistream-index\1.txt", name)
    return os.path.join(folder, renamed) if count else None


def find_index(dump: str) -> str | None:
    """The index that lies beside a dump, or `None`."""
    path = index_path(dump)
    return path if path and Path(path).exists() else None


def is_index(path: str) -> bool:
    """Whether a file is, by its name, the index of a dump."""
    return bool(_INDEX_NAME.search(os.path.basename(path)))


def read_ranges(
    dump: str, index: str, *, pages_per_range: int
) -> list[StreamRange]:
    """Divides a dump into ranges of streams.

    Args:
        dump: str. Path of the dump.
        index: str. Path of its index, compressed or not.
        pages_per_range: int. A range ends with the stream that reaches it.

    Returns:
        list of `StreamRange`, in the order of the dump. They cover it.

    Raises:
        InputError: if the index is damaged, empty or not of this dump.
    """
    # Of each range the first byte, the number of its first page, and the
    # digest.
    starts, numbers, digests = [], [], []
    number = 1
    for offset, stream in itertools.groupby(
        _read_index(index), key=operator.itemgetter(0)
    ):
        if not starts or number - numbers[-1] >= pages_per_range:
            starts.append(offset)
            numbers.append(number)
            digests.append(hashlib.sha256())
        for _, page_id in stream:
            _add_id(digests[-1], page_id)
            number += 1
    limits = [*starts[1:], file_state(dump)[1]]
    _check_bytes(dump, index, starts, limits)
    return [
        StreamRange(index, starts[0], start, limit, number, digest.hexdigest())
        for start, limit, number, digest in zip(
            starts, limits, numbers, digests, strict=True
        )
    ]


def _check_bytes(dump, index, starts, limits):
    """Refuses ranges that cannot be those of a dump's streams."""
    if not starts:
        raise InputError(f"{index} names no page: {_advice(dump)}")
    size = limits[-1]
    if size <= starts[-1]:
        raise InputError(
            f"{index} names byte {starts[-1]:,} of {dump}, which has {size:,}: "
            f"it is the index of another dump, or the dump is truncated. "
            f"{_advice(dump)}"
        )
    largest = max(b - a for a, b in zip(starts, limits, strict=True))
    if largest > _MAX_RANGE_BYTES:
        raise InputError(
            f"{index} puts {largest:,} bytes of {dump} into one range of pages: "
            "it ends before the dump does, fetch it again."
        )


@contextlib.contextmanager
def open_range(dump: str, streams: StreamRange):
    """Opens a range as a decompressed dump of its own.

    Its compressed bytes are in memory: of a thousand pages some 10 MB.

    Raises:
        InputError: if the range does not begin with a bz2 stream.
    """
    with readable(dump), Path(dump).open("rb") as file:
        pieces = [file.read(streams.header_limit)]
        for start in (streams.header_limit, streams.start):
            file.seek(start)
            if not _STREAM_HEAD.match(file.read(_STREAM_HEAD_BYTES)):
                raise InputError(
                    f"{streams.index} says that pages begin at byte {start:,} "
                    f"of {dump}, but no bz2 stream does: it is the index of "
                    f"another dump. {_advice(dump)}"
                )
        file.seek(streams.start)
        pieces.append(file.read(streams.limit - streams.start))
        # The last range has the end tag.
        if file.read(1):
            pieces.append(_END)
        with bz2.open(io.BytesIO(b"".join(pieces))) as content:
            yield content


def check_pages(
    pages: Iterable[Page], dump: str, streams: StreamRange
) -> Iterator[Page]:
    """The pages of a range, if they are those that the index names.

    Raises:
        InputError: at the end.
    """
    digest = hashlib.sha256()
    for page in pages:
        _add_id(digest, page.article_id)
        yield page
    if digest.hexdigest() != streams.digest:
        raise InputError(
            f"{streams.index} does not name the pages that {dump} holds "
            f"between the bytes {streams.start:,} and {streams.limit:,}: it is "
            f"the index of another dump. {_advice(dump)}"
        )


def _advice(dump):
    return (
        f"Fetch the index of {os.path.basename(dump)} again, or move it away "
        "to read the dump from the front."
    )


def _read_index(index):
    """Yields (byte where its stream begins, page id)."""
    last = 0
    with open_bytes(index) as file:
        for number, line in read_lines(file, index):
            offset, _, rest = line.partition(":")
            page_id, colon, _ = rest.partition(":")
            if not (offset.isdigit() and page_id.isdigit() and colon):
                raise InputError(
                    f"{index}:{number}: expected byte:page id:title as in the "
                    f"index of a multistream dump, found {line[:40]!r}."
                )
            offset = int(offset)
            if offset < last:
                raise InputError(
                    f"{index}:{number}: byte {offset:,} follows byte {last:,}: "
                    "the index is damaged, fetch it again."
                )
            last = offset
            yield offset, page_id


def _add_id(digest, page_id):
    digest.update(f"{page_id}\n".encode())
