"""A corpus that changes: documents, and all that answers from them.

    corpus.json             the current state: which documents of which segments,
                            and how states are made
    segments/000001/        documents that one change added, and never changed:
      documents.jsonl       id, title, text, url, fields, file
      blocks, embeddings
      block_ids.npy         the id of each block in answers
    saved_model/2/          the export of a state, for a server

A new state is made beside the current one, and becomes current when corpus.json
is replaced: a reader sees one state or the other. A block keeps its id in all
states, and no other block gets it.
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from realm_tf.artifacts import array_files
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import SavedModel
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError

_DOCUMENTS = "documents.jsonl"
_BLOCK_IDS = "block_ids.npy"
_MANIFEST = "corpus.json"
_SEGMENTS = "segments"
_SAVED_MODEL = "saved_model"


class Document(NamedTuple):
    """A document without its text.

    Args:
        id: str.
        file: str. As `collecting.collect` says.
        fields: dict of str to list of str.
        digest: str. Of the row; with the file only if the id begins with it,
            because other documents may move to another file.
    """

    id: str
    file: str
    fields: dict
    digest: str

    @classmethod
    def of(cls, row: dict) -> "Document":
        """The document of a row of `collecting.collect`."""
        is_section = row["file"] and row["id"].startswith(f"{row['file']}#")
        content = {**row, "file": row["file"] if is_section else ""}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
        return cls(row["id"], row["file"], row["fields"], digest.hexdigest())


class Segment:
    """Documents that were added at once, with their blocks and embeddings.

    Args:
        folder: str.

    Attributes:
        name: str.
        blocks: `Blocks`.
        embeddings: `Embeddings`.
    """

    def __init__(self, folder):
        self.folder = folder
        self.name = os.path.basename(folder)
        self.blocks = Blocks(self._path("blocks"))
        self.embeddings = Embeddings(self._path("embeddings"))

    def _path(self, name):
        return os.path.join(self.folder, name)

    @property
    def documents_path(self) -> str:
        """JSONL of the documents."""
        return self._path(_DOCUMENTS)

    @functools.cached_property
    def documents(self) -> list[Document]:
        """Its documents, in the order of their rows."""
        return list(map(Document.of, self.rows()))

    def rows(self) -> Iterator[dict]:
        """A row of each document, as of `collecting.collect`."""
        with Path(self.documents_path).open("r") as file:
            yield from map(json.loads, file)

    def is_of(self, rows: dict[str, dict]) -> bool:
        """Whether it is of these documents."""
        return os.path.exists(self.documents_path) and (
            self.documents == list(map(Document.of, rows.values()))
        )

    def write(self, rows: dict[str, dict]) -> None:
        """Writes the documents."""
        os.makedirs(self.folder, exist_ok=True)
        lines = (json.dumps(row, ensure_ascii=False) for row in rows.values())
        write_text(self.documents_path, "".join(f"{line}\n" for line in lines))

    @property
    def is_finished(self) -> bool:
        """Whether its blocks have been given ids."""
        return os.path.exists(self._path(_BLOCK_IDS))

    def finish(self, block_ids: np.ndarray) -> None:
        """Gives the blocks their ids; the last thing that is written.

        Args:
            block_ids: int64 array `(num_blocks,)`.
        """
        array_files.write_array(self._path(_BLOCK_IDS), block_ids)

    @property
    def block_ids(self) -> np.ndarray:
        """int64 array `(num_blocks,)`."""
        return array_files.load_array(self._path(_BLOCK_IDS))

    @functools.cached_property
    def owners(self) -> list[str]:
        """The id of the document of each block."""
        return self.blocks.table["article_id"].to_pylist()


class State:
    """What of some segments is there, as one corpus.

    Args:
        segments: list of `(Segment, ids of documents that are not there)`.
    """

    def __init__(self, segments: list[tuple[Segment, frozenset[str]]]):
        self.segments = segments

    def documents(self) -> dict[str, Document]:
        """Id to each document."""
        return {
            each.id: each
            for segment, removed in self.segments
            for each in segment.documents
            if each.id not in removed
        }

    def rows(self) -> dict[str, dict]:
        """Id to the row of each document, as of `collecting.collect`."""
        return {
            row["id"]: row
            for segment, removed in self.segments
            for row in segment.rows()
            if row["id"] not in removed
        }

    @functools.cached_property
    def _rows(self) -> list[np.ndarray]:
        """Which blocks of each segment are there."""
        return [
            np.flatnonzero([name not in removed for name in segment.owners])
            for segment, removed in self.segments
        ]

    @property
    def num_blocks(self) -> int:
        """How many blocks there are."""
        return sum(map(len, self._rows))

    @property
    def max_block_length(self) -> int:
        """Wordpieces of the longest block that there may be."""
        return self.segments[0][0].blocks.metadata["max_block_length"]

    @property
    def num_on_disk(self) -> int:
        """Blocks of all documents, those that are gone, too."""
        return sum(each.blocks.num_blocks for each, _ in self.segments)

    def _columns(self, of_segment):
        parts = zip(self.segments, self._rows, strict=True)
        return np.concatenate(
            [of_segment(segment)[rows] for (segment, _), rows in parts]
        )

    def block_ids(self) -> np.ndarray:
        """What each block is called, int64 array `(num_blocks,)`."""
        return self._columns(lambda segment: segment.block_ids)

    def records(self, *, capacity: int | None = None) -> BlockRecords:
        """The blocks; see `BlockRecords.joined`."""
        parts = zip(self.segments, self._rows, strict=True)
        return BlockRecords.joined(
            [(segment.blocks, rows) for (segment, _), rows in parts],
            capacity=capacity,
        )

    def embeddings(self) -> np.ndarray:
        """float32 array `(num_blocks, embedding_dim)`."""
        return self._columns(lambda segment: segment.embeddings.read())

    def fields(self) -> list[dict]:
        """Of each block, the fields of its document."""
        fields = {name: e.fields for name, e in self.documents().items()}
        return [
            fields[segment.owners[row]]
            for (segment, _), rows in zip(
                self.segments, self._rows, strict=True
            )
            for row in rows
        ]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What corpus.json holds.

    Args:
        state: int. Number of the current state, and of its export.
        settings: dict. Fields of `CreateCorpus`.
        counts: dict. Of documents and blocks.
        segments: list of dicts: `name`, and `removed`, the ids of its documents
            that are no longer there.
        next_id: int. What the next new block is called.
    """

    state: int
    settings: dict
    counts: dict
    segments: list[dict]
    next_id: int


class LiveCorpus:
    """A directory of `realm corpus`, given by its path."""

    metavar = "CORPUS"

    def __init__(self, path):
        self.path = os.fspath(path)
        self._segments = {}

    def __str__(self):
        return self.path

    @property
    def exists(self) -> bool:
        """Whether there is a state."""
        return Path(os.path.join(self.path, _MANIFEST)).exists()

    def manifest(self) -> Manifest:
        """The current state.

        Raises:
            InputError: if the directory is no corpus.
        """
        path = os.path.join(self.path, _MANIFEST)
        try:
            return Manifest(**json.loads(Path(path).read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(
                f"{self.path} is no corpus ({path} cannot be read: {error!r}): "
                "make one with `realm corpus create`."
            ) from error

    def state(self, manifest: Manifest | None = None) -> State:
        """The documents of a state, the current one by default."""
        manifest = manifest or self.manifest()
        return State(
            [
                (self.segment(each["name"]), frozenset(each["removed"]))
                for each in manifest.segments
            ]
        )

    def segment(self, name: str) -> Segment:
        """The segment of a name, made or not; read once."""
        if name not in self._segments:
            folder = os.path.join(self.path, _SEGMENTS, name)
            self._segments[name] = Segment(folder)
        return self._segments[name]

    @property
    def saved_model(self) -> str:
        """Base directory of the exports, for `realm serve`."""
        return os.path.join(self.path, _SAVED_MODEL)

    def version(self, number: int) -> SavedModel:
        """The export of a state."""
        return SavedModel(os.path.join(self.saved_model, str(number)))

    def new_segment(self, rows: dict[str, dict], manifest: Manifest) -> Segment:
        """A segment of these documents, in the making.

        One that was killed goes on, if it was of the same documents.

        Args:
            rows: dict. Id to the row of each, as of `collecting.collect`.
            manifest: `Manifest`. Of the current state.
        """
        names = sorted(self._children(_SEGMENTS))
        last = self.segment(names[-1]) if names else None
        used = {each["name"] for each in manifest.segments}
        if last and last.name not in used and last.is_of(rows):
            return last
        number = 1 + max(map(int, names), default=0)
        segment = self.segment(f"{number:06d}")
        segment.write(rows)
        return segment

    def new_number(self) -> int:
        """Of a state: one that no export has had.

        A server may have loaded that of a run that was killed just before its
        end.
        """
        numbers = map(int, self._children(_SAVED_MODEL))
        return 1 + max(numbers, default=0)

    def write(self, manifest: Manifest) -> None:
        """Makes a state current."""
        write_text(
            os.path.join(self.path, _MANIFEST),
            json.dumps(
                dataclasses.asdict(manifest), ensure_ascii=False, indent=1
            ),
        )

    def reserve(self, next_id: int) -> None:
        """Lets later states call their new blocks from this on.

        Nothing is to reserve for before there is a first state.
        """
        if self.exists:
            self.write(dataclasses.replace(self.manifest(), next_id=next_id))

    def clean(self, manifest: Manifest) -> None:
        """Removes what the current state does not need.

        The last export before stays for whoever serves it yet.

        Args:
            manifest: `Manifest`. Of the current state.
        """
        segments = {each["name"] for each in manifest.segments}
        numbers = [
            int(name)
            for name in self._children(_SAVED_MODEL)
            if self.version(int(name)).is_complete
        ]
        versions = set(map(str, sorted(numbers)[-2:]))
        for folder, kept in ((_SEGMENTS, segments), (_SAVED_MODEL, versions)):
            for name, paths in self._children(folder).items():
                if name not in kept:
                    for path in paths:
                        remove(path)

    def _children(self, folder) -> dict[str, list[str]]:
        """Number, as a string, to what is there of it, whole or not."""
        path = Path(os.path.join(self.path, folder))
        found = {}
        if path.exists():
            for each in path.iterdir():
                name = each.name.partition(".")[0]
                if name.isdigit():
                    found.setdefault(name, []).append(str(each))
        return found
