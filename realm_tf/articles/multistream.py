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
import os
import re
from collections.abc import Iterable
from collections.abc import Iterator

from realm_tf.articles.pages import Page
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
_COPY_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class StreamRange:
    """Some streams of a dump that follow one another.

    Args:
        index: str. Path of the index, for messages.
        header_limit: int. Byte of the dump after the stream of the header.
        start: int. Byte where the first stream begins.
        limit: int. Byte after the last stream.
        first_number: int. Number of the first page among all of the dump.
        num_pages: int.
        digest: str. Of the page ids, in their order.
        is_last: bool. Whether the dump ends with it.
    """

    index: str
    header_limit: int
    start: int
    limit: int
    first_number: int
    num_pages: int
    digest: str
    is_last: bool


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
    size = _check_header(dump, index)
    streams = list(_ranges(index, pages_per_range))
    if not streams:
        raise InputError(f"{index} names no page: {_advice(dump)}")
    header_limit = streams[0][0]
    starts = [start for start, _, _ in streams]
    limits = [*starts[1:], size]
    if limits[-1] <= starts[-1]:
        raise InputError(
            f"{index} names byte {starts[-1]:,} of {dump}, which has {size:,}: "
            f"it is the index of another dump, or the dump is truncated. "
            f"{_advice(dump)}"
        )
    ranges = []
    number = 1
    for (start, num_pages, digest), limit in zip(streams, limits, strict=True):
        is_last = limit == size
        ranges.append(
            StreamRange(
                index,
                header_limit,
                start,
                limit,
                number,
                num_pages,
                digest,
                is_last,
            )
        )
        number += num_pages
    return ranges


@contextlib.contextmanager
def open_range(dump: str, streams: StreamRange):
    """Opens a range as a decompressed dump of its own.

    Raises:
        InputError: if the range does not begin with a bz2 stream.
    """
    pieces = [(0, streams.header_limit), (streams.start, streams.limit)]
    with readable(dump), Path(dump).open("rb") as file:
        for start in (streams.header_limit, streams.start):
            file.seek(start)
            if not _STREAM_HEAD.match(file.read(_STREAM_HEAD_BYTES)):
                raise InputError(
                    f"{streams.index} says that pages begin at byte {start:,} "
                    f"of {dump}, but no bz2 stream does: it is the index of "
                    f"another dump. {_advice(dump)}"
                )
        raw = _Pieces(file, pieces, b"" if streams.is_last else _END)
        with bz2.open(io.BufferedReader(raw, _COPY_BYTES)) as content:
            yield content


def check_pages(
    pages: Iterable[Page], dump: str, streams: StreamRange
) -> Iterator[Page]:
    """The pages of a range, if they are those that the index names.

    Raises:
        InputError: at the end, or at the first page too many.
    """
    digest = hashlib.sha256()
    count = 0
    for page in pages:
        count += 1
        if count > streams.num_pages:
            break
        _add_id(digest, page.article_id)
        yield page
    if count != streams.num_pages or digest.hexdigest() != streams.digest:
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


def _check_header(dump, index):
    """Returns the size of the dump, in bytes, if it can be a multistream."""
    with readable(dump), Path(dump).open("rb") as file:
        head = file.read(_STREAM_HEAD_BYTES)
        size = file.seek(0, os.SEEK_END) or file.tell()
    if not _STREAM_HEAD.match(head):
        raise InputError(
            f"{dump} is not compressed with bz2, so {index} cannot be its "
            "index: leave --multistream-index out."
        )
    return size


def _ranges(index, pages_per_range):
    """Yields (first byte, number of pages, digest of their ids)."""
    start = last = None
    count = 0
    digest = hashlib.sha256()
    for offset, page_id, place in _read_index(index):
        if last is not None and offset < last:
            raise InputError(
                f"{place}: byte {offset:,} follows byte {last:,}: the index is "
                "damaged, fetch it again."
            )
        if offset != last and count >= pages_per_range:
            yield start, count, digest.hexdigest()
            start, count, digest = None, 0, hashlib.sha256()
        if start is None:
            start = offset
        last = offset
        count += 1
        _add_id(digest, page_id)
    if count:
        yield start, count, digest.hexdigest()


def _read_index(index):
    with open_bytes(index) as file:
        for number, line in read_lines(file, index):
            offset, _, rest = line.partition(":")
            page_id, colon, _ = rest.partition(":")
            if not (offset.isdigit() and page_id.isdigit() and colon):
                raise InputError(
                    f"{index}:{number}: expected byte:page id:title as in the "
                    f"index of a multistream dump, found {line[:40]!r}."
                )
            yield int(offset), page_id, f"{index}:{number}"


def _add_id(digest, page_id):
    digest.update(f"{page_id}\n".encode())


class _Pieces(io.RawIOBase):
    """Pieces of a file, then some bytes, as one file to be read."""

    def __init__(self, file, pieces, end):
        self._file = file
        self._pieces = list(pieces)
        self._end = end
        self._file.seek(self._pieces[0][0])

    def readable(self):
        return True

    def readinto(self, buffer):
        while self._pieces:
            start, limit = self._pieces[0]
            data = self._file.read(min(len(buffer), limit - start))
            if data:
                self._pieces[0] = (start + len(data), limit)
                break
            self._pieces.pop(0)
            if self._pieces:
                self._file.seek(self._pieces[0][0])
        else:
            data = self._end[: len(buffer)]
            self._end = self._end[len(data) :]
        buffer[: len(data)] = data
        return len(data)
