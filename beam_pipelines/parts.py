"""Parts: the blocks of some pages in a file, with a table of the pages."""

import base64
import collections
import dataclasses
import hashlib
import os

import numpy as np
import pyarrow

from realm_tf.articles.pages import Page
from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.text.blocks import BlockText

# What decides the ids: 36 bytes for every page that has blocks. Digests are
# of the article's id (128 bits: two of 10 million pages agree with a
# probability of 1e-25) and of its text (64 bits, only compared with its like).
PAGES = np.dtype(
    [
        ("id_high", "<u8"),
        ("id_low", "<u8"),
        ("text", "<u8"),
        ("file", "<i4"),
        ("number", "<i4"),
        ("blocks", "<i4"),
    ]
)
_SCHEMA = record_files.schema_of(schema.Block)


def _path(directory, part):
    return os.path.join(
        directory, f"{part[0]:05d}-{part[1]:08d}{record_files.ENDING}"
    )


def is_there(directory: str, part: tuple[int, int]) -> bool:
    """Whether a part (file number, number in the file) is written."""
    return Path(_path(directory, part)).exists()


def num_written(directory: str) -> int:
    """How many parts a directory has."""
    names = f"{'[0-9]' * 5}-*{record_files.ENDING}"
    return len(list(Path(directory).glob(names)))


def read_pages(
    directory: str, part: tuple[int, int]
) -> tuple[np.ndarray, dict[str, int]]:
    """Of a part, the pages that have blocks, and what is counted.

    Args:
        directory: str. Where the parts are.
        part: (file number, number in the file).

    Returns:
        array of `PAGES`, in the order of the file, and dict.
    """
    summary = record_files.read_summary(_path(directory, part))
    pages = base64.b64decode(summary["pages"])
    return np.frombuffer(pages, PAGES), summary["counts"]


def read_blocks(directory: str, part: tuple[int, int]) -> pyarrow.Table:
    """The blocks of a part, whose ids are 0."""
    table = record_files.open_file(_path(directory, part)).read_all()
    return table.replace_schema_metadata(None)


class PartWriter:
    """Collects a part.

    Args:
        directory: str. Where it goes.
        part: (file number, number in the file).

    Attributes:
        counts: Counter. What is counted of the pages.
    """

    def __init__(self, directory: str, part: tuple[int, int]):
        self._directory = directory
        self._part = part
        self.counts = collections.Counter()
        self._pages = []
        self._tables = [_SCHEMA.empty_table()]

    def add(self, cut: list[tuple[Page, list[BlockText]]]) -> None:
        """Adds some pages and their blocks; some 100 at once are faster."""
        pages, found = [], []
        for page, blocks in cut:
            digest = hashlib.sha256(page.article_id.encode("utf-8")).digest()
            text_digest = hashlib.sha256(page.text.encode("utf-8")).digest()
            self._pages.append(
                (
                    int.from_bytes(digest[:8], "big"),
                    int.from_bytes(digest[8:16], "big"),
                    int.from_bytes(text_digest[:8], "big"),
                    self._part[0],
                    page.number,
                    len(blocks),
                )
            )
            pages += [page] * len(blocks)
            found += blocks
        table = record_files.to_table(
            _SCHEMA,
            {
                # Until it is known.
                "block_id": [0] * len(found),
                "article_id": [page.article_id for page in pages],
                "title": [page.title for page in pages],
                "url": [page.url for page in pages],
                **{
                    field.name: [getattr(block, field.name) for block in found]
                    for field in dataclasses.fields(BlockText)
                },
            },
        )
        self._tables.append(table)

    def write(self) -> None:
        """Writes the part, which appears whole or not at all."""
        pages = np.array(self._pages, dtype=PAGES).tobytes()
        summary = {
            "pages": base64.b64encode(pages).decode("ascii"),
            "counts": self.counts,
        }
        path = _path(self._directory, self._part)
        record_files.write(path, self._tables, summary=summary)


def write_table(path: str, tables: list[np.ndarray], counts: dict) -> None:
    """Writes the pages of several parts, without their blocks.

    Args:
        path: str.
        tables: list of arrays of `PAGES`.
        counts: dict. What is counted of these pages.
    """
    pages = np.concatenate([np.zeros(0, PAGES), *tables])
    table = pyarrow.table({name: pages[name] for name in PAGES.names})
    record_files.write(path, [table], summary=counts)


def read_tables(paths: list[str]) -> tuple[np.ndarray, collections.Counter]:
    """The pages of all parts, in their order, and what is counted of them.

    Args:
        paths: list of str. Those of `write_table`.

    Returns:
        array of `PAGES` and Counter.
    """
    found, counts = [np.zeros(0, PAGES)], collections.Counter()
    for path in paths:
        table = record_files.open_file(path).read_all()
        pages = np.empty(len(table), PAGES)
        for name in PAGES.names:
            pages[name] = table[name]
        found.append(pages)
        counts.update(record_files.read_summary(path))
    pages = np.concatenate(found)
    return pages[np.lexsort((pages["number"], pages["file"]))], counts
