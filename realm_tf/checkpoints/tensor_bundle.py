"""TensorFlow checkpoints, read tensor by tensor or by rows.

A checkpoint of the V2 format, the "tensor bundle", is a prefix: the table
PREFIX.index says where each tensor stands in PREFIX.data-00000-of-0000N.
TF1's `tf.train.Saver`, TF-Hub modules (`variables/variables`) and TF2 write
the same files.

References:
    TensorFlow, tensorflow/core/util/tensor_bundle and
    tensorflow/core/protobuf/tensor_bundle.proto.
    LevelDB, doc/table_format.md: the index is such a table.
"""

import functools
import glob
import math
import os
import pathlib
import re

import numpy as np

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.errors import InputError

# LevelDB's table format: the footer is two padded block handles and this.
_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER_BYTES = 48
# A block is followed by its type, 0 if not compressed, and a checksum.
_TRAILER_BYTES = 5
# Larger tensors are mapped into memory even when read whole. Our choice: the
# largest of a BERT-large has a tenth of it, the paper's block_emb has 6.4.
_MAPPED_BYTES = 1 << 30
# Of find_checkpoints. Downloads of several checkpoints nest no deeper.
_DEPTH = 4

_FILE_OF_PREFIX = re.compile(r"(.+)\.(?:index|data-\d{5}-of-\d{5})")
_STEP = re.compile(r"(.+)-(\d+)")
# What a tf.train.Saver that was killed leaves.
_TEMPORARY = re.compile(r"part-\d{5}-of-\d{5}\.index")
_NAMED = re.compile(r'^model_checkpoint_path: "(?:.*/)?(.+)"$', re.MULTILINE)


class TensorBundle:
    """A TensorFlow checkpoint, opened to be read.

    Checksums of the index are verified now, those of a tensor when it is
    read whole; rows of a tensor, and tensors of more than 1 GiB, are mapped
    into memory and not verified.

    Args:
        prefix: str. Path without `.index`, on a local disk.

    Attributes:
        source: str. The prefix.

    Raises:
        InputError: if there is no such checkpoint, it is of the V1 format, or
            one of its files is missing, damaged or too short.
    """

    def __init__(self, prefix: str):
        self.source = os.fspath(prefix)
        self._check_prefix()
        self._header, entries = _read_index(f"{self.source}.index")
        self._check_shards(entries)
        # A partitioned tensor has an entry under its name, and each of its
        # parts one under a key that begins with a zero byte.
        self._entries = {
            _name(key, self.source): entry
            for key, entry in entries.items()
            if not key.startswith(b"\0")
        }
        self._verifying_reader = None

    def files(self) -> tuple[str, ...]:
        """The files that hold the tensors."""
        return tuple(sorted(glob.glob(f"{glob.escape(self.source)}.*")))

    def names(self) -> list[str]:
        """Names of all tensors, sorted."""
        return sorted(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor.

        Args:
            name: str. One of `names()`.

        Returns:
            tuple of int.

        Raises:
            InputError: if there is no such tensor.
        """
        return _shape(self._entry(name))

    def read(
        self, name: str, start: int = 0, limit: int | None = None
    ) -> np.ndarray:
        """A tensor, or the rows `start` to `limit` of it.

        Args:
            name: str. One of `names()`.
            start: int. First row. Defaults to `0`.
            limit: int. The row after the last one; rows beyond the end are
                left out, as by a slice. Defaults to `None`: to the end.

        Returns:
            numpy array; float16 and bfloat16 become float32, text is bytes.
            Rows of a partitioned tensor are cut from the whole; all others
            are read-only views of the file.

        Raises:
            InputError: if there is no such tensor, or its checksum is wrong.
        """
        entry = self._entry(name)
        whole = start == 0 and limit is None
        dtype = _number_type(entry)
        if entry.slices or dtype is None or (whole and _is_small(entry)):
            values = self._read_verified(name)
            values = values if whole else values[start:limit]
        else:
            values = self._map(entry, dtype, start, limit)
        if values.dtype.name in ("float16", "bfloat16"):
            return values.astype("float32")
        return values

    def _entry(self, name):
        if name not in self._entries:
            raise InputError(f"{self.source} has no tensor {name}.")
        return self._entries[name]

    def _shard(self, number):
        count = self._header.num_shards
        return f"{self.source}.data-{number:05d}-of-{count:05d}"

    def _map(self, entry, dtype, start, limit):
        num_rows, *row = _shape(entry)
        start, limit, _ = slice(start, limit).indices(num_rows)
        shape = (max(limit - start, 0), *row)
        if not math.prod(shape):
            return np.zeros(shape, dtype)
        row_bytes = math.prod(row) * dtype.itemsize
        mapped = np.memmap(
            self._shard(entry.shard_id),
            dtype,
            mode="r",
            offset=entry.offset + start * row_bytes,
            shape=shape,
        )
        return np.asarray(mapped)

    def _read_verified(self, name):
        import tensorflow as tf

        try:
            if self._verifying_reader is None:
                self._verifying_reader = tf.train.load_checkpoint(self.source)
            return np.asarray(self._verifying_reader.get_tensor(name))
        # Python's errors stand for some of TensorFlow's.
        except (tf.errors.OpError, LookupError, ValueError) as error:
            raise InputError(
                f"{self.source}.data-* is damaged: the tensor {name} cannot "
                f"be read ({error}). Fetch the checkpoint again."
            ) from error

    def _check_prefix(self):
        prefix = self.source
        if is_remote(prefix):
            raise InputError(
                f"{prefix} is not on a local disk: its tensors are mapped "
                "into memory. Copy the checkpoint to a local directory."
            )
        if set(prefix) & set("*?[\\"):
            raise InputError(
                f"{prefix}: TensorFlow takes the characters * ? [ \\ of a path "
                "for a pattern. Rename the directory or the file."
            )
        if os.path.isfile(f"{prefix}.index"):
            return
        match = _FILE_OF_PREFIX.fullmatch(prefix)
        if match:
            raise InputError(
                f"{prefix} is one file of a checkpoint. Give the prefix of all "
                f"of them: {match[1]}"
            )
        if os.path.isfile(prefix) and _is_table(prefix):
            raise InputError(
                f"{prefix} is a checkpoint of TensorFlow's V1 format, a single "
                "file, which is not read here. Restore and save it with "
                "tf.compat.v1.train.Saver, which writes V2."
            )
        raise InputError(
            f"There is no TensorFlow checkpoint {prefix}: the file "
            f"{prefix}.index is missing."
        )

    def _check_shards(self, entries):
        if self._header.endianness != 0:
            raise InputError(
                f"{self.source} was written on a big-endian machine, which is "
                "not read here."
            )
        sizes = {}
        for number in range(self._header.num_shards):
            path = self._shard(number)
            if not os.path.isfile(path):
                raise InputError(
                    f"The checkpoint {self.source} is not whole: {path} is "
                    "missing."
                )
            sizes[number] = os.path.getsize(path)
        for key, entry in entries.items():
            size = sizes.get(entry.shard_id, -1)
            if entry.offset + entry.size > size or not _is_consistent(entry):
                name = key.decode("utf-8", "replace")
                raise InputError(
                    f"{self._shard(entry.shard_id)} is damaged or not of this "
                    f"checkpoint: it has {size} bytes, and {name!r} should be "
                    f"{entry.size} bytes from byte {entry.offset} on. Fetch "
                    "the checkpoint again."
                )


def find_checkpoints(directory: str) -> list[str]:
    """Prefixes of the checkpoints in a directory.

    Of several steps of one checkpoint, such as model.ckpt-100 and
    model.ckpt-200, it is the one that TensorFlow's file `checkpoint` beside
    them names, else the last.

    Args:
        directory: str. On a local disk; searched four directories deep.

    Returns:
        list of str, sorted. Each is a prefix for `TensorBundle`.

    Raises:
        InputError: if there is no such directory.
    """
    if not os.path.isdir(directory):
        raise InputError(f"There is no directory {directory} on a local disk.")
    root = pathlib.Path(directory)
    found = []
    for path, directories, files in os.walk(root):
        depth = len(pathlib.Path(path).relative_to(root).parts)
        if depth == _DEPTH:
            directories.clear()
        prefixes = [
            name.removesuffix(".index")
            for name in files
            if name.endswith(".index") and not _TEMPORARY.fullmatch(name)
        ]
        found += [os.path.join(path, p) for p in _last_steps(path, prefixes)]
    return sorted(found)


def _last_steps(directory, prefixes):
    """One prefix of each checkpoint, whatever its steps."""
    matches = {prefix: _STEP.fullmatch(prefix) for prefix in prefixes}
    last = {prefix: prefix for prefix, match in matches.items() if not match}
    steps = {prefix: match for prefix, match in matches.items() if match}
    for prefix in sorted(steps, key=lambda p: int(steps[p][2])):
        last[f"{steps[prefix][1]}-"] = prefix
    named = _named_prefix(directory)
    if named in steps:
        last[f"{steps[named][1]}-"] = named
    return last.values()


def _named_prefix(directory):
    """What TensorFlow's file `checkpoint` calls the latest, if anything.

    The directory in it is that of the machine that wrote it.
    """
    path = os.path.join(directory, "checkpoint")
    if not os.path.isfile(path):
        return None
    content = Path(path).read_bytes().decode("utf-8", "replace")
    match = _NAMED.search(content)
    return match and match[1]


def _name(key, source):
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{source}.index: {key} is no name.") from error


def _shape(entry):
    return tuple(dimension.size for dimension in entry.shape.dim)


def _number_type(entry):
    """The numpy type of a tensor of numbers, else `None`."""
    import tensorflow as tf

    try:
        dtype = np.dtype(tf.dtypes.as_dtype(entry.dtype).as_numpy_dtype)
    except (TypeError, KeyError):
        return None
    return None if dtype.hasobject else dtype


def _is_small(entry):
    return entry.size <= _MAPPED_BYTES


def _is_consistent(entry):
    """Whether a tensor's place is as large as its shape says."""
    dtype = _number_type(entry)
    shape = _shape(entry)
    if min(entry.offset, entry.size, 0, *shape) < 0:
        return False
    if dtype is None or entry.slices:
        return True
    return math.prod(shape) * dtype.itemsize == entry.size


def _read_index(path):
    """The header, and a dict of key to `BundleEntryProto`."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import tensor_bundle_pb2

    try:
        values = dict(_table(Path(path).read_bytes()))
        if b"" not in values:
            raise ValueError("it has no header")
        header = tensor_bundle_pb2.BundleHeaderProto.FromString(values.pop(b""))
        entries = {
            key: tensor_bundle_pb2.BundleEntryProto.FromString(value)
            for key, value in values.items()
        }
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
    except (DecodeError, LookupError, ValueError) as error:
        raise InputError(
            f"{path} is damaged or no index of a TensorFlow checkpoint, as "
            f"TensorFlow writes it: {error}. Fetch the checkpoint again."
        ) from error
    return header, entries


def _is_table(path):
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - len(_MAGIC)))
        return file.read() == _MAGIC


def _table(content):
    """Yields keys and values of a LevelDB table; `ValueError` if damaged."""
    footer = content[-_FOOTER_BYTES:]
    if len(footer) < _FOOTER_BYTES or not footer.endswith(_MAGIC):
        raise ValueError("it does not end as a table")
    meta, position = _handle(footer, 0)
    index, _ = _handle(footer, position)
    # Nothing stands in it, but it can be seen to be whole.
    _block(content, *meta)
    for _, place in _entries(_block(content, *index)):
        handle, _ = _handle(place, 0)
        yield from _entries(_block(content, *handle))


def _handle(content, position):
    """Offset and size of a block, and the position behind them."""
    offset, position = _varint(content, position)
    size, position = _varint(content, position)
    return (offset, size), position


def _block(content, offset, size):
    end = offset + size
    trailer = content[end : end + _TRAILER_BYTES]
    if len(trailer) < _TRAILER_BYTES:
        raise ValueError("it is too short")
    checksum = int.from_bytes(trailer[1:], "little")
    if _masked_crc32c(content[offset : end + 1]) != checksum:
        raise ValueError("a checksum is wrong")
    if trailer[0] != 0:
        raise ValueError("it is compressed")
    return content[offset:end]


def _entries(block):
    """Yields keys and values; a key shares its beginning with the last."""
    num_restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (num_restarts + 1)
    position, key = 0, b""
    while position < end:
        shared, position = _varint(block, position)
        unshared, position = _varint(block, position)
        length, position = _varint(block, position)
        middle = position + unshared
        key = key[:shared] + block[position:middle]
        position = middle + length
        yield key, block[middle:position]


def _varint(content, position):
    """An unsigned LEB128 integer, and the position behind it."""
    value = shift = 0
    while True:
        byte = content[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position


def _masked_crc32c(content):
    """LevelDB's checksum: rotated, so that it may stand inside another's."""
    table = _crc32c_table()
    crc = 0xFFFFFFFF
    for byte in content:
        crc = table[(crc ^ byte) & 255] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@functools.cache
def _crc32c_table():
    # Castagnoli's polynomial, its bits reversed (RFC 3720, appendix B.4).
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table
