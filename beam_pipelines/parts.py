"""Parts: the blocks of some pages, and what is known of them, in a file.

The records are one after the other, beside tables of numbers: `WriteBlocks`
finds which bytes belong to which page without parsing the records.
"""

import dataclasses
import hashlib
import io
import json
import os

import numpy as np
import tensorflow as tf

from realm_tf.articles.pages import Page
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.beam_pipelines import resumable
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
# What is counted of every block.
BLOCKS = np.dtype(
    [
        ("bytes", "<i4"),
        ("title", "<i4"),
        ("wordpieces", "<i4"),
        ("unknown", "<i4"),
        ("sentences", "<i4"),
    ]
)
# Pages are compared with those of the same bucket: few enough that a part has
# many of one, enough to compare them in parallel (our choice).
NUM_BUCKETS = 16


@dataclasses.dataclass(frozen=True)
class Part:
    """The blocks of some pages.

    Args:
        pages: array of `PAGES`, in the order of the file.
        blocks: array of `BLOCKS`, in that order.
        counts: dict, name of a counter to its amount.
        records: bytes. One after the other.
    """

    pages: np.ndarray
    blocks: np.ndarray
    counts: dict[str, int]
    records: bytes


def _path(directory, part):
    return os.path.join(directory, f"{part[0]:05d}-{part[1]:08d}.npz")


def read(
    directory: str, part: tuple[int, int], *, with_records: bool
) -> Part | None:
    """A part (file number, number in the file), or `None` if it is missing."""
    path = Path(_path(directory, part))
    if not path.exists():
        return None
    with path.open("rb") as file, np.load(file) as arrays:
        return Part(
            arrays["pages"],
            arrays["blocks"],
            json.loads(arrays["counts"].tobytes()),
            arrays["records"].tobytes() if with_records else b"",
        )


class PartWriter:
    """Collects a part.

    Args:
        unknown_id: int. The wordpiece of unknown words, which is counted.
    """

    def __init__(self, unknown_id: int):
        self._unknown_id = unknown_id
        self._counts = {}
        self._pages = []
        self._blocks = []
        self._records = bytearray()

    def count(self, name: str) -> None:
        """Adds one to a counter."""
        self._counts[name] = self._counts.get(name, 0) + 1

    def add(self, page: Page, blocks: list[BlockText]) -> None:
        """Adds the blocks of a page."""
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
        for block, record in zip(blocks, records(page, blocks), strict=True):
            self._records += record
            self._blocks.append(
                (
                    len(record),
                    len(block.title_ids),
                    len(block.token_ids),
                    block.token_ids.count(self._unknown_id),
                    len(block.sentence_starts),
                )
            )

    def write(self, directory: str, part: tuple[int, int]) -> Part:
        """Writes the part (file number, number in the file)."""
        found = Part(
            np.array(self._pages, dtype=PAGES),
            np.array(self._blocks, dtype=BLOCKS),
            self._counts,
            bytes(self._records),
        )
        counts = json.dumps(found.counts).encode("utf-8")
        content = io.BytesIO()
        np.savez(
            content,
            pages=found.pages,
            blocks=found.blocks,
            counts=np.frombuffer(counts, np.uint8),
            records=np.frombuffer(found.records, np.uint8),
        )
        with resumable.writing(_path(directory, part)) as path:
            Path(path).write_bytes(content.getvalue())
        return found


# What all blocks of an article share.
_OF_ARTICLE = ("article_id", "title", "url", "title_ids")


def records(page: Page, blocks: list[BlockText]) -> list[bytes]:
    """The blocks of an article as `schema.to_example` writes them.

    The id is 0 until it is known. One message serves for all the blocks of
    an article, which is three times as fast as to make each anew.
    """
    example = tf.train.Example()
    features = example.features.feature
    first = schema.Block(
        0, page.article_id, page.title, "", page.url, blocks[0].title_ids
    )
    lists = {}
    for field in dataclasses.fields(first):
        name, kind = field.name, field.type
        value = getattr(first, name)
        if kind is str:
            features[name].bytes_list.value.append(value.encode("utf-8"))
        else:
            values = features[name].int64_list.value
            # So that an empty list is written too.
            features[name].int64_list.SetInParent()
            if kind is int:
                values.append(value)
            elif name in _OF_ARTICLE:
                values.extend(value)
            else:
                lists[name] = values
    text = features["text"].bytes_list.value
    found = []
    for block in blocks:
        text[0] = block.text.encode("utf-8")
        for name, values in lists.items():
            del values[:]
            values.extend(getattr(block, name))
        found.append(example.SerializeToString(deterministic=True))
    return found


def with_block_id(record: bytes, block_id: int) -> bytes:
    """A record with its id."""
    example = tf.train.Example.FromString(record)
    example.features.feature["block_id"].int64_list.value[0] = block_id
    return example.SerializeToString(deterministic=True)
