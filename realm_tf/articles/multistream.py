"""Multistream dumps: reading a range of bytes of a dump on its own.

A multistream dump is many bz2 streams, one after the other: the header of the
XML, then about 100 pages a stream, then the end tag. Every stream begins with
the same ten bytes, so each worker finds the streams of its own range and reads
them as a small dump: header, streams, end tag.
"""

import bz2
import contextlib
import io
import os
import re

from realm_tf.articles.pages import readable
from realm_tf.artifacts.paths import Path

# Compressed bytes of a range: about a thousand pages (our choice).
RANGE_BYTES = 10 << 20
# A bz2 stream with data: its magic number and the one of its first block.
_STREAM = re.compile(rb"BZh[1-9]1AY&SY")
_STREAM_BYTES = 10
_PIECE_BYTES = 1 << 20
_END = bz2.compress(b"</mediawiki>\n")


def header_bytes(path: str) -> int:
    """Length of the stream that holds the header of a multistream dump.

    Returns:
        int, bytes; `0` for any other file, such as a dump whose first stream
        holds pages.
    """
    with readable(path), Path(path).open("rb") as file:
        head = file.read(_PIECE_BYTES)
    if not _STREAM.match(head):
        return 0
    stream = bz2.BZ2Decompressor()
    try:
        text = stream.decompress(head)
    except OSError:
        # Reading the file from the front reports the damage.
        return 0
    is_header = stream.eof and b"<page>" not in text
    return len(head) - len(stream.unused_data) if is_header else 0


@contextlib.contextmanager
def open_range(path: str, start: int, limit: int):
    """Opens the streams that begin in a range of bytes, as a dump of its own.

    The compressed bytes of the range are in memory.

    Args:
        path: str. A multistream dump.
        start: int. First byte of the range.
        limit: int. Byte after the range.

    Yields:
        binary file, decompressed.
    """
    with readable(path), Path(path).open("rb") as file:
        header_limit = header_bytes(path)
        pieces = [file.read(header_limit)]
        first = _next_stream(file, max(start, header_limit))
        last = _next_stream(file, limit)
        file.seek(first)
        pieces.append(file.read(last - first))
        # The last range that holds streams has the end tag.
        if first == last or file.read(1):
            pieces.append(_END)
        with bz2.open(io.BytesIO(b"".join(pieces))) as content:
            yield content


def _next_stream(file, position):
    """First byte of the next stream, or the size of the file if there is none."""
    file.seek(position)
    window = b""
    while piece := file.read(_PIECE_BYTES):
        position += len(piece)
        window = window[1 - _STREAM_BYTES :] + piece
        if found := _STREAM.search(window):
            return position - len(window) + found.start()
    return file.seek(0, os.SEEK_END)
