"""Parts: the blocks of some pages, and what is known of them, in a file.

The records are one after the other, beside a table of the pages: `WriteBlocks`
finds which bytes belong to which page without parsing the records.
"""

import collections
import dataclasses
import hashlib
import io
import os
from collections.abc import Sequence

import numpy as np

from realm_tf.articles.pages import Page
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import writing
from realm_tf.text.blocks import BlockText

# What decides the ids: 32 bytes for every page that has blocks. Digests are
# of the article's id (128 bits: two of 10 million pages agree with a
# probability of 1e-25) and of its text (64 bits, only compared with its like).
PAGES = np.dtype(
    [
        ("id_high", "<u8"),
        ("id_low", "<u8"),
        ("text", "<u8"),
        ("number", "<i4"),
        ("blocks", "<i4"),
    ]
)
# What the metadata count of a block: bytes of its record, wordpieces of its
# text and of its title, unknown ones among those of the text, sentences.
_OF_BLOCK = ("size", "wordpieces", "title", "unknown", "sentences")
BLOCKS = np.dtype([(name, "<i8") for name in _OF_BLOCK])
# Pages are compared with those of the same bucket: few enough that a part has
# many of one, enough to compare them in parallel (our choice).
NUM_BUCKETS = 16


# What is counted of the pages.
COUNTS = np.dtype([("name", "U64"), ("amount", "<i8")])


def _path(directory, part):
    return os.path.join(directory, f"{part[0]:05d}-{part[1]:08d}.npz")


def is_there(directory: str, part: tuple[int, int]) -> bool:
    """Whether a part (file number, number in the file) is written."""
    return Path(_path(directory, part)).exists()


def read(
    directory: str, part: tuple[int, int], names: Sequence[str]
) -> list[np.ndarray]:
    """Some arrays of a part.

    Args:
        directory: str. Where the parts are.
        part: (file number, number in the file).
        names: sequence of str. `"pages"` (of `PAGES`, in the order of the
            file), `"counts"` (of `COUNTS`), `"blocks"` (of `BLOCKS`) or
            `"records"` (the bytes of all blocks, one after the other).
    """
    path = Path(_path(directory, part))
    with path.open("rb") as file, np.load(file) as arrays:
        return [arrays[name] for name in names]


class PartWriter:
    """Collects a part.

    Args:
        unknown_id: int. The wordpiece of unknown words, which is counted.

    Attributes:
        counts: Counter. What is counted of the pages.
    """

    def __init__(self, unknown_id: int):
        self.counts = collections.Counter()
        self._unknown_id = unknown_id
        self._pages = []
        self._blocks = []
        self._records = []

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
                    page.number,
                    len(blocks),
                )
            )
            pages += [page] * len(blocks)
            found += blocks
        records = schema.columns_to_examples(
            schema.Block,
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
        self._records += records
        table = np.zeros(len(found), BLOCKS)
        table["size"] = [*map(len, records)]
        table["wordpieces"] = [len(block.token_ids) for block in found]
        table["title"] = [len(block.title_ids) for block in found]
        table["sentences"] = [len(block.sentence_starts) for block in found]
        ids = np.concatenate([block.token_ids for block in found])
        unknown = np.flatnonzero(ids == self._unknown_id)
        limits = np.cumsum(table["wordpieces"])
        rows = np.searchsorted(limits, unknown, side="right")
        table["unknown"] = np.bincount(rows, minlength=len(found))
        self._blocks.append(table)

    def write(self, directory: str, part: tuple[int, int]) -> None:
        """Writes the part (file number, number in the file)."""
        content = io.BytesIO()
        np.savez(
            content,
            pages=np.array(self._pages, dtype=PAGES),
            blocks=np.concatenate([np.zeros(0, BLOCKS), *self._blocks]),
            counts=np.array([*self.counts.items()], dtype=COUNTS),
            records=np.frombuffer(b"".join(self._records), np.uint8),
        )
        with writing(_path(directory, part)) as path:
            Path(path).write_bytes(content.getvalue())
