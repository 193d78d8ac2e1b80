"""Documents that came at once, with their blocks, and corpora of these.

The files of a segment are those that `live_corpus` lists.
"""

import functools
import hashlib
import json
import os
from typing import NamedTuple

import numpy as np

from realm_tf.artifacts import array_files
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError

_DOCUMENTS = "documents.jsonl"
_CONTENTS = "contents.jsonl"
_BLOCK_IDS = "block_ids.npy"
_PLACES = "places.npy"


class Document(NamedTuple):
    """What a change needs to know of a document; its text is on the disk.

    Args:
        id: str.
        file: str. As `collecting.collect` says.
        fields: dict of str to list of str.
        digest: str. Of the row; without the file, unless its id begins with it.
    """

    id: str
    file: str
    fields: dict
    digest: str

    @classmethod
    def of(cls, row: dict) -> "Document":
        """The document of a row of `collecting.collect`."""
        found = cls(row["id"], row["file"], row["fields"], "")
        if not found.is_named_after_file:
            row = {**row, "file": ""}
        line = json.dumps(row, ensure_ascii=False, sort_keys=True)
        # Texts may hold halves of surrogate pairs.
        digest = hashlib.sha256(line.encode("utf-8", "surrogatepass"))
        return found._replace(digest=digest.hexdigest())

    @property
    def is_named_after_file(self) -> bool:
        """Whether it is a section of this file: others may be in any file."""
        return bool(self.file) and self.id.startswith(f"{self.file}#")


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
        """Its documents, in the order of their rows.

        Raises:
            InputError: if the file of them is missing.
        """
        path = self._path(_CONTENTS)
        try:
            with Path(path).open("r") as file:
                return [Document(*json.loads(line)) for line in file]
        except FileNotFoundError as error:
            raise InputError(
                f"{path} is missing, or of an earlier version of realm: make the "
                "corpus anew with `realm corpus create`."
            ) from error

    def rows(self) -> list[dict]:
        """A row of each document, as of `collecting.collect`."""
        with Path(self.documents_path).open("r") as file:
            return list(map(json.loads, file))

    def is_of(self, rows: dict[str, dict]) -> bool:
        """Whether it is of these documents."""
        is_there = os.path.exists(self._path(_CONTENTS))
        return is_there and self.documents == list(
            map(Document.of, rows.values())
        )

    def write(self, rows: dict[str, dict]) -> None:
        """Writes the documents."""
        self.documents = list(map(Document.of, rows.values()))
        os.makedirs(self.folder, exist_ok=True)
        # That which says that both are there comes last.
        for path, lines in (
            (self.documents_path, rows.values()),
            (self._path(_CONTENTS), self.documents),
        ):
            write_text(
                path,
                "".join(
                    json.dumps(line, ensure_ascii=False) + "\n"
                    for line in lines
                ),
            )

    @property
    def is_finished(self) -> bool:
        """Whether its blocks have been given ids."""
        return os.path.exists(self._path(_BLOCK_IDS))

    def finish(self, block_ids: np.ndarray) -> None:
        """Says what the blocks are called; the last thing that is written.

        Args:
            block_ids: int64 array `(num_blocks,)`.
        """
        place_of = {each.id: n for n, each in enumerate(self.documents)}
        names = self.blocks.table["article_id"].to_pylist()
        places = [place_of[name] for name in names]
        for name, array in (
            (_PLACES, np.array(places, "int32")),
            (_BLOCK_IDS, block_ids),
        ):
            # Renamed when it is whole.
            path = self._path(name)
            with Path(f"{path}.partial").open("wb") as file:
                np.save(file, array)
            os.replace(f"{path}.partial", path)

    @property
    def block_ids(self) -> np.ndarray:
        """int64 array `(num_blocks,)`."""
        return array_files.load_array(self._path(_BLOCK_IDS))

    @property
    def places(self) -> np.ndarray:
        """int32 array `(num_blocks,)`: the document of each block."""
        return array_files.load_array(self._path(_PLACES))


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
        found = []
        for segment, removed in self.segments:
            is_there = np.array(
                [each.id not in removed for each in segment.documents], bool
            )
            found.append(np.flatnonzero(is_there[segment.places]))
        return found

    @property
    def num_blocks(self) -> int:
        """How many blocks there are."""
        return sum(map(len, self._rows))

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
        return [
            segment.documents[place].fields
            for (segment, _), rows in zip(
                self.segments, self._rows, strict=True
            )
            for place in segment.places[rows]
        ]
