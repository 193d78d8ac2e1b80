"""Records in Arrow IPC files: a file a shard, a column a field.

Record batches are not compressed, so that a file is mapped into memory and
read in milliseconds. The schema's metadata hold counts and a digest.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from realm_tf.artifacts import array_files
from realm_tf.artifacts.array_files import smallest_dtype
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import local_copy
from realm_tf.artifacts.paths import writing
from realm_tf.errors import InputError

ENDING = ".arrow"
# Few enough for 32-bit offsets into texts of half a megabyte (our choice).
ROWS_PER_BATCH = 4096

_ROWS_READ_AT_ONCE = 256
_SUMMARY = b"realm"
_INTS = pa.list_(pa.int32())
_TYPES = {
    int: pa.int64(),
    str: pa.string(),
    list[int]: _INTS,
    list[str]: pa.list_(pa.string()),
}


def shard_name(stem: str, number: int, count: int, ending: str = ENDING) -> str:
    """The name of a shard: what is there follows from how many there are."""
    return f"{stem}-{number:05d}-of-{count:05d}{ending}"


def write(
    path: str,
    tables: Sequence[pa.Table],
    *,
    summary: dict,
    directory: str | None = None,
) -> None:
    """Writes a file, which appears whole or not at all.

    The bytes depend on the rows and the summary, not on how the rows are
    divided into tables.

    Args:
        path: str.
        tables: iterable of `pyarrow.Table` of one schema, at least one.
        summary: dict. JSON values for the schema's metadata.
        directory: str. See `paths.writing`. Defaults to `None`.
    """
    tables = iter(tables)
    rest = next(tables)
    schema = rest.schema.with_metadata({_SUMMARY: json.dumps(summary)})
    with (
        writing(path, directory=directory) as temporary,
        open(temporary, "wb") as file,
        pa.ipc.new_file(file, schema) as writer,
    ):
        for table in itertools.chain(tables, [None]):
            is_last = table is None
            rest = rest if is_last else pa.concat_tables([rest, table])
            while rest.num_rows >= (1 if is_last else ROWS_PER_BATCH):
                writer.write_batch(_copied(rest.slice(0, ROWS_PER_BATCH)))
                rest = rest.slice(ROWS_PER_BATCH)


def _copied(table):
    """A table as one record batch of its own.

    Of a slice, Arrow would write bytes of the neighbouring rows as padding.
    """
    # Nothing is copied where there is but one array.
    columns = [
        pa.concat_arrays([*column.chunks, pa.array([], column.type)])
        for column in table.columns
    ]
    return pa.record_batch(columns, schema=table.schema)


def write_rows(path: str, kind: type, rows: Sequence) -> None:
    """Writes instances of a dataclass, without a summary."""
    write(path, [rows_to_table(kind, rows)], summary={})


def open_file(path: str, *, whole: bool = False) -> pa.RecordBatchFileReader:
    """Opens a file; a local one is mapped into memory.

    Args:
        path: str.
        whole: bool. Whether all of it will be read: a remote one is then copied
            to the cache of this machine. Defaults to `False`.

    Raises:
        InputError: if it is missing, truncated or damaged.
    """
    try:
        path = local_copy(path) if whole else path
        if is_remote(path):
            return pa.ipc.open_file(pa.PythonFile(Path(path).open("rb")))
        return pa.ipc.open_file(pa.memory_map(str(path)))
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(
            f"{path} is missing, truncated or damaged: make its directory "
            "again."
        ) from error


def read_summary(path: str) -> dict:
    """The summary that `write` put into the schema's metadata."""
    return json.loads(open_file(path).schema.metadata[_SUMMARY])


def schema_of(kind: type) -> pa.Schema:
    """The columns of a dataclass of `artifacts.schema`."""
    return pa.schema(
        (field.name, _TYPES[field.type]) for field in dataclasses.fields(kind)
    )


def to_table(schema: pa.Schema, columns: dict[str, Sequence]) -> pa.Table:
    """A table from the values of each column."""
    return pa.table(
        [_array(columns[field.name], field.type) for field in schema],
        schema=schema,
    )


def rows_to_table(kind: type, rows: Sequence) -> pa.Table:
    """A table of instances of a dataclass."""
    schema = schema_of(kind)
    return to_table(
        schema,
        {name: [getattr(row, name) for row in rows] for name in schema.names},
    )


def _array(values, type):
    if type != _INTS:
        return pa.array(values, type)
    # Much faster than row by row.
    limits = np.cumsum([0, *map(len, values)], dtype="int32")
    flat = np.concatenate([np.zeros(0, "int32"), *values]).astype("int32")
    return pa.ListArray.from_arrays(limits, flat)


def digest(table: pa.Table) -> str:
    """SHA-256 of the rows of a table, however they are divided into chunks."""
    found = hashlib.sha256()
    for array in _copied(table).columns:
        for buffer in array.buffers():
            found.update(buffer or b"")
    return found.hexdigest()


def read_rows(kind: type, table: pa.Table) -> Iterator:
    """Yields each row of a table as an instance of a dataclass."""
    # So few that their integers stay in the processor's cache.
    for batch in table.to_batches(max_chunksize=_ROWS_READ_AT_ONCE):
        yield from map(kind, *map(_python_values, batch.columns))


def _python_values(array):
    if array.type != _INTS:
        return array.to_pylist()
    limits = array.offsets.to_numpy()
    flat = array.flatten().tolist()
    return [flat[a:b] for a, b in itertools.pairwise(limits - limits[0])]


def some_rows(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Rows of a table, in rising order; neighbours are slices, not copies."""
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    runs = itertools.pairwise([0, *cuts.tolist(), len(rows)])
    return pa.concat_tables(
        [table.slice(0, 0)]
        + [table.slice(int(rows[a]), b - a) for a, b in runs if a < b]
    )


class Column(Sequence):
    """A column of strings or of lists of int, by row, without copying it.

    A row is a str or an int32 array.

    Args:
        column: `pyarrow.ChunkedArray`.

    Example:

    >>> column = Column(pa.chunked_array([["Rome"], ["Café", ""]]))
    >>> column[1], column[:1], len(column)
    ('Café', ['Rome'], 3)
    """

    def __init__(self, column: pa.ChunkedArray):
        self._column = column

    def __len__(self):
        return len(self._column)

    def __getitem__(self, row):
        found = self._column[row]
        return (
            list(map(_value, found))
            if isinstance(row, slice)
            else _value(found)
        )

    def __iter__(self):
        return map(_value, self._column)

    def lengths(self) -> np.ndarray:
        """int32 array `(num_rows,)`: values of each row of lists."""
        return pc.list_value_length(self._column).to_numpy()

    def parts(self):
        """Yields (values, how many are each row's) of some thousand rows."""
        for chunk in self._column.chunks:
            yield chunk.flatten().to_numpy(), chunk.value_lengths().to_numpy()

    def _dtype(self):
        parts = (int(values.max(initial=0)) for values, _ in self.parts())
        return smallest_dtype(max(parts, default=0))

    def flat(self) -> np.ndarray:
        """The values of all rows in one array, of the least type."""
        found = array_files.mapped_zeros(
            (int(self.lengths().sum()),), self._dtype()
        )
        place = 0
        for values, _ in self.parts():
            found[place : place + len(values)] = values
            place += len(values)
        return found

    def padded(self, width: int) -> np.ndarray:
        """A table of all rows, padded with 0, of the least type.

        Args:
            width: int. Longer rows are cut.

        Returns:
            int array `(num_rows, width)`.
        """
        table = array_files.mapped_zeros((len(self), width), self._dtype())
        first = 0
        for values, lengths in self.parts():
            inside = np.arange(width) < lengths[:, None]
            starts = np.cumsum(lengths) - lengths
            places = (starts[:, None] + np.arange(width))[inside]
            table[first : first + len(lengths)][inside] = values[places]
            first += len(lengths)
        return table


def _value(scalar):
    if isinstance(scalar, pa.ListScalar):
        return scalar.values.to_numpy()
    return scalar.as_py()
