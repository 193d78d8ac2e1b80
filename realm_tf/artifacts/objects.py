"""The directories and files that realm's commands hand to each other."""

import functools
import reprlib
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow

from realm_tf.artifacts import array_files
from realm_tf.artifacts import artifact
from realm_tf.artifacts import hubs
from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.directory import Artifact
from realm_tf.artifacts.directory import recorded
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError

# Rows of an embeddings shard. What a killed run loses for each of its threads,
# and what workers share out: 15 MB of 384-wide float32 rows (our choice).
ROWS_PER_SHARD = 10_000
# The file of an index that holds the embeddings: fine-tuning scores blocks
# with them.
EMBEDDINGS = "embeddings.npy"


class Records(Artifact):
    """Directories of records, in shards: Arrow IPC files of `record_files`.

    Attributes:
        what: str. What the records are.
        record: class. The dataclass of a record, in `schema`.
    """

    what: ClassVar[str]
    record: ClassVar[type]

    def __len__(self):
        return self.metadata[f"num_{self.what}"]

    @functools.cached_property
    def table(self):
        """All records as a `pyarrow.Table`, mapped into memory.

        Shards on an object store are copied to a cache of this machine.

        Raises:
            InputError: if the directory is not complete, or a shard is missing
                or damaged.
        """
        return self._part(0, len(self))

    def read(self, start: int = 0, limit: int | None = None) -> Iterator:
        """Yields records in their order.

        Args:
            start: int. Number of the first. Defaults to `0`.
            limit: int. The number after the last. Defaults to all.

        Raises:
            InputError: as `table`.
        """
        limit = len(self) if limit is None else limit
        yield from record_files.read_rows(self.record, self._part(start, limit))

    def dataset(self):
        """All records as a `tf.data.Dataset` of dicts of tensors.

        Texts are strings, lists one-dimensional int32 or string tensors.
        """
        from realm_tf.artifacts import record_dataset

        return record_dataset.dataset(self.table)

    def _part(self, start, limit):
        """Some records as a table; only their shards are opened."""
        rows = self.metadata["shard_rows"]
        tables = [record_files.schema_of(self.record).empty_table()]
        first = 0
        for number, size in enumerate(rows):
            a, b = max(first, start), min(first + size, limit)
            if a < b:
                name = record_files.shard_name(self.kind, number, len(rows))
                table = self._shard(name, first, size)
                tables.append(table.slice(a - first, b - a))
            first += size
        return pyarrow.concat_tables(tables)

    def _shard(self, name, first, size):
        path = self.file(name)
        table = record_files.open_file(path, whole=True).read_all()
        table = table.replace_schema_metadata(None)
        if table.num_rows != size:
            raise InputError(
                f"{path} does not hold the {self.what} {first} to "
                f"{first + size - 1}: make its directory again."
            )
        return table

    def summary(self) -> str:
        return f"{len(self):,} {self.what}"


class Blocks(Records):
    """Blocks of a corpus, as `realm chunk` wrote them.

    Attributes:
        num_blocks: int. How many blocks there are.
        tokenizer: str. Fingerprint of the tokenizer that made the wordpieces.

    Example:
    >>> from realm_tf.artifacts.objects import Blocks
    >>> Blocks("not-there")
    Blocks('not-there', not made yet)
    """

    kind = "blocks"
    what = "blocks"
    command = "chunk"
    record = schema.Block
    num_blocks = recorded("num_blocks")
    tokenizer = recorded("tokenizer")

    @functools.cached_property
    def records(self):
        """`BlockRecords` of all blocks; opened once."""
        from realm_tf.artifacts.block_records import BlockRecords

        return BlockRecords(self)


class Passages(Records):
    """Passages with their salient spans, as `realm annotate` wrote them.

    Attributes:
        num_passages: int. How many passages there are.
    """

    kind = "annotated"
    what = "passages"
    command = "annotate"
    record = schema.AnnotatedPassage
    num_passages = recorded("num_passages")

    @property
    def blocks(self) -> str | None:
        """Fingerprint of the blocks that the passages are.

        `None` if they are of another corpus.
        """
        return self.parents.get("blocks")


class Embeddings(Artifact):
    """Embeddings of all blocks, in shards by block id.

    Attributes:
        num_blocks: int. How many rows there are.
    """

    kind = "embeddings"
    num_blocks = recorded("num_blocks")

    def shards(self) -> Iterator[np.ndarray]:
        """Yields the rows of each file, memory-mapped, in order of block id.

        Raises:
            InputError: if a file is missing or damaged, or has another number
                of rows than it should or rows that are no embeddings.
        """
        names, size = self.metadata["shards"], self.parameters["rows_per_shard"]
        if not isinstance(names, list) or len(names) != -(
            -self.num_blocks // size
        ):
            raise InputError(
                f"{self.file(artifact.METADATA)} does not name the files of "
                f"{self.num_blocks} embeddings: make its directory again."
            )
        for number, name in enumerate(names):
            path = self.file(name)
            rows = array_files.load_array(path)
            num_rows = min(size, self.num_blocks - number * size)
            if rows.ndim != 2 or len(rows) != num_rows:
                raise InputError(
                    f"{path} holds an array of shape {rows.shape}, expected "
                    f"{num_rows} rows: make its directory again."
                )
            array_files.check_embeddings(
                rows,
                path,
                norm=self.metadata.get("norm"),
                mend="the file is damaged. Make its directory again.",
            )
            yield rows

    def read(self) -> np.ndarray:
        """All rows in memory, float32 `(num_blocks, embedding_dim)`.

        Raises:
            InputError: as `shards`.
        """
        return np.concatenate(list(self.shards()))

    def summary(self) -> str:
        return f"{self.num_blocks:,} embeddings"


class Index(Artifact):
    """A search index over block embeddings.

    Attributes:
        num_blocks: int. How many blocks can be found.
    """

    kind = "index"
    num_blocks = recorded("num_blocks")

    @property
    def search(self) -> str:
        """The kind of search: one of `retrieval.index.KINDS`."""
        return self.parameters["kind"]

    @functools.cached_property
    def embeddings(self):
        """float32 array `(num_blocks, embedding_dim)`; memory-mapped."""
        # First: a directory of another kind is said to be so.
        self.metadata  # noqa: B018
        return array_files.load_array(self.file(EMBEDDINGS))

    def state(self, names) -> dict:
        """Name to array: what the kind keeps beside the embeddings."""
        return {
            name: array_files.load_array(self.file(f"{self.search}-{name}.npy"))
            for name in names
        }

    def summary(self) -> str:
        return f"{self.search} index over {self.num_blocks:,} blocks"


class Model(Artifact):
    """A model directory: weights, config.json, vocab.txt, card.

    It may also be the address of one on the Hugging Face Hub, see
    `artifacts.hubs`, which is fetched when it is first read.

    Attributes:
        tokenizer: str. Fingerprint of its tokenizer.
        block_tower: str. Fingerprint of all that decides a block's embedding.
    """

    kind = "model"
    tokenizer = recorded("tokenizer")
    block_tower = recorded("block_tower")

    @functools.cached_property
    def directory(self) -> str:
        return (
            hubs.fetch(self.path) if hubs.is_address(self.path) else self.path
        )

    @property
    def vocabulary(self) -> str:
        """The path of its vocab.txt."""
        return self.file("vocab.txt")

    @functools.cached_property
    def config(self) -> dict:
        """The content of config.json."""
        found = self.read_json("config.json")
        for part in ("query_embedder", "block_embedder", "reader"):
            if not isinstance(found[part], dict):
                raise InputError(
                    f"{self.file('config.json')}: {part} is "
                    f"{reprlib.repr(found[part])}, expected an object. Make or "
                    "fetch the directory again."
                )
        return found

    @property
    def embedding_norm(self) -> float | None:
        """The norm of all embeddings of blocks; `None`: any."""
        return 1.0 if self.config["block_embedder"]["normalize"] else None


class Tagger(Artifact):
    """The BERT tagger of salient spans."""

    kind = "tagger"

    @functools.cached_property
    def metrics(self) -> dict:
        """Name of each file to its scores, by type and over `"all"`."""
        return self.read_json("metrics.json")


class QuestionSet(Artifact):
    """Questions files of `realm questions`."""

    kind = "questions"


class Evaluation(Artifact):
    """What `realm evaluate` measured: metrics, predictions, a report."""

    kind = "evaluation"

    @functools.cached_property
    def metrics(self) -> dict:
        """Name to value; `NAME_interval` is the 95 % interval of NAME."""
        return self.read_json("metrics.json")

    @functools.cached_property
    def predictions(self) -> list[dict]:
        """The lines of predictions.jsonl."""
        from realm_tf.artifacts import question_files

        # First: a directory that is not complete is said to be so.
        self.metadata  # noqa: B018
        path = self.file("predictions.jsonl")
        return [each.line for each in question_files.read_questions(path)]


class Comparison(Artifact):
    """Evaluations of the same questions side by side, by `realm compare`."""

    kind = "comparison"

    @functools.cached_property
    def content(self) -> dict:
        """What comparison.json holds; see `comparison.compare`."""
        return self.read_json("comparison.json")

    @property
    def markdown(self) -> str:
        """The tables: metrics by system, and differences from the first."""
        return Path(self.file("comparison.md")).read_text().rstrip()


class SavedModel(Artifact):
    """One version of an export: raw question in, answer with evidence out."""

    kind = "saved_model"


class Verification(Artifact):
    """What `realm verify` found, where no check failed."""

    kind = "verification"


def open_any(path: str) -> Artifact:
    """The directory as an object of the class that its metadata names.

    Args:
        path: str. A directory that a command of realm wrote.

    Raises:
        InputError: if no command finished writing it, or the kind is unknown.
    """
    kind = artifact.read(path)["kind"]
    for each in (*Artifact.__subclasses__(), *Records.__subclasses__()):
        if kind == each.kind:
            return each(path)
    raise InputError(
        f"{path} holds {kind!r}, which this version no longer or not yet reads: "
        "make it again with this version's commands."
    )
