"""The features of every record, stated once.

TFRecord shards of `tf.train.Example`, gzip. Names ending in `_starts` and
`_limits` count Unicode code points of `text`; limits are exclusive.
"""

import dataclasses
from collections.abc import Iterator

from realm_tf import stages
from realm_tf.errors import InputError

BLOCKS = "blocks"
EMBEDDINGS = "embeddings"
INDEX = "index"
MODEL = "model"
EVALUATION = "evaluation"
SAVED_MODEL = "saved_model"

# Feature name: element type of tf.train.Example. The first five are single
# values, the others lists.
BLOCK_FEATURES = {
    "block_id": int,
    "article_id": bytes,
    "title": bytes,
    "text": bytes,
    "url": bytes,
    "title_ids": list,
    "token_ids": list,
    "token_starts": list,
    "token_limits": list,
    "sentence_starts": list,
    "link_starts": list,
    "link_limits": list,
}


@dataclasses.dataclass
class Block:
    """One retrieval unit: some sentences of one article.

    Args:
        block_id: int. The row in every index; dense, from 0.
        article_id: str. The page id in its dump.
        title: str. The article's title.
        text: str. The sentences, joined by one space.
        url: str. Where the article can be read, or `""`.
        title_ids: list of int. Wordpieces of the title.
        token_ids: list of int. Wordpieces of the text.
        token_starts: list of int. Code point where each wordpiece begins.
        token_limits: list of int. Code point after each wordpiece.
        sentence_starts: list of int. Code point where each sentence begins.
        link_starts: list of int. Where each wiki link's text begins.
        link_limits: list of int. Where it ends.
    """

    block_id: int
    article_id: str
    title: str
    text: str
    url: str = ""
    title_ids: list[int] = dataclasses.field(default_factory=list)
    token_ids: list[int] = dataclasses.field(default_factory=list)
    token_starts: list[int] = dataclasses.field(default_factory=list)
    token_limits: list[int] = dataclasses.field(default_factory=list)
    sentence_starts: list[int] = dataclasses.field(default_factory=list)
    link_starts: list[int] = dataclasses.field(default_factory=list)
    link_limits: list[int] = dataclasses.field(default_factory=list)

    def sentence_limits(self) -> list[int]:
        """Code point after each sentence, the joining space left out."""
        return [start - 1 for start in self.sentence_starts[1:]] + [
            len(self.text)
        ]


def block_to_example(block: Block) -> bytes:
    """A block as a serialised `tf.train.Example`."""
    import tensorflow as tf

    features = {}
    for name, kind in BLOCK_FEATURES.items():
        value = getattr(block, name)
        if kind is bytes:
            features[name] = tf.train.Feature(
                bytes_list=tf.train.BytesList(value=[value.encode("utf-8")])
            )
        else:
            values = [value] if kind is int else value
            features[name] = tf.train.Feature(
                int64_list=tf.train.Int64List(value=values)
            )
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


def block_from_example(serialized: bytes) -> Block:
    """The block in a serialised `tf.train.Example`."""
    import tensorflow as tf

    example = tf.train.Example.FromString(serialized)
    values = {}
    for name, kind in BLOCK_FEATURES.items():
        feature = example.features.feature[name]
        if kind is bytes:
            values[name] = feature.bytes_list.value[0].decode("utf-8")
        elif kind is int:
            values[name] = feature.int64_list.value[0]
        else:
            values[name] = list(feature.int64_list.value)
    return Block(**values)


def block_shard_paths(blocks: str) -> list[str]:
    """The shards of a blocks directory, in the order of block ids."""
    paths = [
        stages.join(blocks, name)
        for name in stages.list_names(blocks)
        if name.endswith(".tfrecord.gz")
    ]
    if not paths:
        raise InputError(f"{blocks} holds no block shards (*.tfrecord.gz).")
    return paths


def read_blocks(
    blocks: str, *, start: int = 0, limit: int | None = None
) -> Iterator[Block]:
    """Blocks of a directory that `realm chunk` wrote, in order of id.

    Args:
        blocks: str. The directory.
        start: int. First block id. Defaults to `0`.
        limit: int. The id after the last. Defaults to all.

    Yields:
        `Block`.

    Raises:
        InputError: if the directory is not a complete blocks directory, a
            shard is missing or damaged, or its ids are not 0, 1, 2, ...
    """
    metadata = stages.read(blocks, kind=BLOCKS)
    limit = metadata["num_blocks"] if limit is None else limit
    paths = block_shard_paths(blocks)
    if len(paths) != len(metadata["shard_rows"]):
        raise InputError(
            f"{blocks} holds {len(paths)} block shards, expected "
            f"{len(metadata['shard_rows'])}: make the blocks again with "
            "`realm chunk`."
        )
    first = 0
    for path, rows in zip(paths, metadata["shard_rows"], strict=True):
        last = min(first + rows, limit)
        if max(first, start) < last:
            yield from _read_shard(path, first, max(first, start), last)
        first += rows


def _read_shard(path, first, start, limit):
    """Blocks `start` to `limit` of a shard whose first is `first`."""
    import tensorflow as tf

    again = "make the blocks again with `realm chunk`"
    dataset = tf.data.TFRecordDataset(path, compression_type="GZIP")
    records = dataset.skip(start - first).take(limit - start)
    expected = start
    try:
        for serialized in records.as_numpy_iterator():
            block = block_from_example(serialized)
            if block.block_id != expected:
                raise InputError(
                    f"{path} holds block {block.block_id} where {expected} "
                    f"was expected: {again}."
                )
            yield block
            expected += 1
    except tf.errors.DataLossError as error:
        raise InputError(f"{path} is truncated or damaged: {again}.") from error
    if expected != limit:
        raise InputError(
            f"{path} ends before block {expected}, expected blocks to "
            f"{limit - 1}: {again}."
        )
