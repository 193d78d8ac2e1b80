"""The features of every record, stated once.

TFRecord shards of `tf.train.Example`, gzip: the features are the fields of a
dataclass. Names ending in `_starts` and `_limits` count Unicode code points of
`text`; limits are exclusive.
"""

import dataclasses
import gzip
import os
import zlib
from collections.abc import Iterator

from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError

# TFRecord: the length, its checksum, the record, its checksum.
_LENGTH_BYTES = 8
_CRC_BYTES = 4


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


# The original's names (google-research/language, language/realm), block_id and
# span_label are ours. `_byte_start` and `_byte_limit` count UTF-8 bytes.
@dataclasses.dataclass
class AnnotatedPassage:
    """A passage with the spans of it that are worth masking.

    Args:
        block_id: int. The block that the passage is; -1 for one of another
            corpus.
        title: str. The article's title.
        text: str.
        sentence_byte_start: list of int. UTF-8 byte where each sentence
            begins.
        sentence_byte_limit: list of int. The byte after its last one.
        span_byte_start: list of int. UTF-8 byte where each salient span
            begins; spans lie inside one sentence and do not overlap.
        span_byte_limit: list of int. The byte after its last one.
        span_label: list of str. What each span is, by its tagger.
    """

    block_id: int
    title: str
    text: str
    sentence_byte_start: list[int] = dataclasses.field(default_factory=list)
    sentence_byte_limit: list[int] = dataclasses.field(default_factory=list)
    span_byte_start: list[int] = dataclasses.field(default_factory=list)
    span_byte_limit: list[int] = dataclasses.field(default_factory=list)
    span_label: list[str] = dataclasses.field(default_factory=list)

    def sentences(self) -> list[str]:
        """The texts of the sentences."""
        return self._texts(self.sentence_byte_start, self.sentence_byte_limit)

    def spans(self) -> list[str]:
        """The texts of the spans."""
        return self._texts(self.span_byte_start, self.span_byte_limit)

    def _texts(self, starts, limits):
        content = self.text.encode("utf-8")
        try:
            return [
                content[start:limit].decode("utf-8")
                for start, limit in zip(starts, limits, strict=True)
            ]
        except ValueError as error:
            raise InputError(
                f"Annotated passage {self.title!r} (block {self.block_id}) has "
                f"an offset inside a character ({error}): annotate the corpus "
                "again."
            ) from error


def to_example(record: Block | AnnotatedPassage) -> bytes:
    """A record as a serialised `tf.train.Example`."""
    import tensorflow as tf

    example = tf.train.Example()
    # Filled in place: half the time of features made one by one.
    features = example.features.feature
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        values = [value] if field.type in (int, str) else value
        feature = features[field.name]
        found = feature.int64_list
        if field.type in (str, list[str]):
            values = [text.encode("utf-8") for text in values]
            found = feature.bytes_list
        # So that an empty list is written too.
        found.SetInParent()
        found.value.extend(values)
    return example.SerializeToString(deterministic=True)


def from_example(kind: type, serialized: bytes):
    """The record of a kind, `Block` or `AnnotatedPassage`, in an example."""
    import tensorflow as tf

    features = tf.train.Example.FromString(serialized).features.feature
    found = {}
    for field in dataclasses.fields(kind):
        feature = features[field.name]
        if field.type in (str, list[str]):
            values = [text.decode("utf-8") for text in feature.bytes_list.value]
        else:
            values = list(feature.int64_list.value)
        found[field.name] = values[0] if field.type in (int, str) else values
    return kind(**found)


def columns(kind: type, names, serialized: list[bytes]) -> dict:
    """Fields of many records at once.

    Args:
        kind: `Block` or `AnnotatedPassage`.
        names: sequence of str. Fields of it.
        serialized: list of bytes. Of `to_example`.

    Returns:
        dict of name to an array `(num_records,)`, of int64 or of bytes, or,
        where a field is a list, to `(values, lengths)`: all of its values in
        one array, and how many are each record's.
    """
    import tensorflow as tf

    features = {}
    for field in dataclasses.fields(kind):
        if field.name in names:
            dtype = tf.string if field.type in (str, list[str]) else tf.int64
            features[field.name] = (
                tf.io.FixedLenFeature((), dtype)
                if field.type in (int, str)
                else tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
            )
    return {
        name: (value.values.numpy(), value.row_lengths().numpy())
        if isinstance(value, tf.RaggedTensor)
        else value.numpy()
        for name, value in tf.io.parse_example(serialized, features).items()
    }


def shard_paths(directory: str) -> list[str]:
    """The record shards of a directory, in the order of their records."""
    return [
        os.path.join(directory, name)
        for name in sorted(each.name for each in Path(directory).iterdir())
        if name.endswith(".tfrecord.gz")
    ]


def read_records(path: str, *, start: int = 0) -> Iterator[bytes]:
    """Records of a shard: TFRecord framing in a gzip file.

    Read without tf.data, whose threads wait for each other when every core is
    busy with tagging. gzip checks the content when the last record is read.

    Args:
        path: str. A file that `tf.io.TFRecordWriter` wrote with `"GZIP"`.
        start: int. Records to leave out. Defaults to `0`.

    Yields:
        bytes.

    Raises:
        InputError: if the file is truncated or damaged.
    """
    import tensorflow as tf

    try:
        with (
            tf.io.gfile.GFile(path, "rb") as file,
            gzip.GzipFile(fileobj=file) as content,
        ):
            while header := content.read(_LENGTH_BYTES + _CRC_BYTES):
                length = int.from_bytes(header[:_LENGTH_BYTES], "little")
                record = content.read(length)
                if len(content.read(_CRC_BYTES)) != _CRC_BYTES:
                    raise EOFError
                if start:
                    start -= 1
                else:
                    yield record
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{path} is truncated or damaged: make its directory again."
        ) from error
