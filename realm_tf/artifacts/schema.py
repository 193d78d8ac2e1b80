"""The features of every record, stated once.

TFRecord shards of `tf.train.Example`, gzip: the features are the fields of a
dataclass. Names ending in `_starts` and `_limits` count Unicode code points of
`text`; limits are exclusive.
"""

import dataclasses
import functools
import gzip
import itertools
import os
import zlib
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError

# TFRecord: the length, its checksum, the record, its checksum.
_LENGTH_BYTES = 8
_CRC_BYTES = 4
# Fields of `tf.train.Feature` (tensorflow/core/example/feature.proto).
_BYTES_LIST = b"\n"
_INT64_LIST = b"\x1a"
_LARGEST = (1 << 64) - 1


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
    return to_examples([record])[0]


def to_examples(records: Sequence[Block] | Sequence[AnnotatedPassage]):
    """Records of one kind as serialised examples.

    The bytes are those of protobuf's `SerializeToString(deterministic=True)`.
    Made here, column by column, they take a quarter of the time.

    Args:
        records: sequence of `Block` or of `AnnotatedPassage`. A list of int
            may be an array; all of a field are then.

    Returns:
        list of bytes.
    """
    return columns_to_examples(
        type(records[0]),
        {
            field.name: [getattr(record, field.name) for record in records]
            for field in dataclasses.fields(records[0])
        },
    )


def columns_to_examples(kind: type, values_of: Mapping[str, Sequence]):
    """`to_examples` of records that were never made.

    Args:
        kind: `Block` or `AnnotatedPassage`.
        values_of: mapping from str to sequence. The values of each field.
    """
    columns = []
    # As protobuf's runtime sorts them: "title" after "title_ids".
    for field in sorted(
        dataclasses.fields(kind), key=lambda field: f"{field.name}~"
    ):
        values = values_of[field.name]
        tag = _BYTES_LIST if field.type in (str, list[str]) else _INT64_LIST
        if field.type is str:
            contents = [text.encode("utf-8") for text in values]
        elif field.type == list[str]:
            contents = [
                b"".join(_delimited(text.encode("utf-8")) for text in texts)
                for texts in values
            ]
        elif field.type is int:
            contents = _packed([(value,) for value in values])
        else:
            contents = _packed(values)
        is_one = field.type != list[str]
        columns.append(
            [_header(field.name, tag, len(each), is_one) for each in contents]
        )
        columns.append(contents)
    return [_delimited(b"".join(row)) for row in zip(*columns, strict=True)]


def with_block_id(record: bytes, block_id: int) -> bytes:
    """The record of a block with another id; the rest is not parsed."""
    _, start = _read_length(record, 0)
    # Features are in the order of their names: article_id, block_id.
    length, place = _read_length(record, start)
    before = place + length
    length, place = _read_length(record, before)
    content = _varint(block_id)
    header = _header("block_id", _INT64_LIST, len(content), True)
    after = record[place + length :]
    return _delimited(record[start:before] + header + content + after)


# Protobuf's encoding (protobuf.dev/programming-guides/encoding): a field is
# its tag, its length and its content; an integer is a varint, 7 bits a byte.


@functools.lru_cache(1 << 16)
def _header(name, tag, length, is_one):
    """What precedes values: the lengths of all that they are in, the name.

    `is_one` says that they are one field: a text, or packed integers (none are
    no field).
    """
    is_field = is_one and (length or tag == _BYTES_LIST)
    found = b"\n" + _varint(length) if is_field else b""
    found = tag + _varint(length + len(found)) + found
    key = _delimited(name.encode("utf-8"))
    found = key + b"\x12" + _varint(length + len(found)) + found
    return b"\n" + _varint(length + len(found)) + found


def _delimited(content):
    return b"\n" + _varint(len(content)) + content


def _read_length(record, place):
    """Length of the field that begins there, and where its content begins."""
    length = shift = 0
    while True:
        place += 1
        length |= (record[place] & 127) << shift
        if record[place] < 128:
            return length, place + 1
        shift += 7


@functools.lru_cache(1 << 16)
def _varint(value):
    (found,) = _packed([(value,)])
    return found


def _packed(lists):
    """The varints of each list of integers."""
    if isinstance(lists[0], np.ndarray):
        values = np.concatenate(lists)
    else:
        values = np.fromiter(itertools.chain.from_iterable(lists), np.int64)
    largest = int(values.max(initial=0))
    if values.min(initial=0) < 0:
        # Two's complement.
        largest, values = _LARGEST, values.astype(np.int64).view(np.uint64)
    else:
        # The smallest type is the fastest.
        values = values.astype(np.min_scalar_type(largest))
    num_bytes = max(1, -(-largest.bit_length() // 7))
    digits = np.empty((len(values), num_bytes), np.uint8)
    is_used = np.ones(digits.shape, bool)
    sizes = np.ones(len(values), np.uint8)
    for number in range(num_bytes):
        if number:
            is_used[:, number] = values > 0
            sizes += is_used[:, number]
        digits[:, number] = values & 127
        values = values >> 7
        digits[:, number] |= (values > 0).view(np.uint8) << 7
    content = digits[is_used].tobytes()
    limits = np.cumsum([0, *map(len, lists)])
    ends = np.cumsum(sizes, dtype=np.intp)
    limits = np.concatenate([[0], ends])[limits].tolist()
    return [content[start:limit] for start, limit in itertools.pairwise(limits)]


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
