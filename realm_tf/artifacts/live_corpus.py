"""A corpus that changes: documents, and all that answers from them.

    corpus.json             the current state: which documents of which segments,
                            their sources, and how states are made
    corpus.copy.json        the same, should that file be damaged
    segments/000001/        documents that one change added, and never changed:
      documents.jsonl       id, title, text, url, fields, file, document
      blocks, embeddings
      block_ids.npy         the id of each block in answers
      checksums.json        of these files, written last
    saved_model/2/          the export of a state, for a server

A new state is made beside the current one, and becomes current when corpus.json
is replaced: a reader sees one state or the other. A block keeps its id in all
states, and no other block gets it.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from realm_tf.articles.sources import Source
from realm_tf.artifacts import array_files
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.objects import SavedModel
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.saved_models import MANIFESTS
from realm_tf.artifacts.saved_models import OF_CORPUS
from realm_tf.artifacts.saved_models import is_corpus
from realm_tf.errors import InputError

_DOCUMENTS = "documents.jsonl"
_BLOCK_IDS = "block_ids.npy"
_MANIFEST, _COPY = MANIFESTS
_CHECKSUMS = "checksums.json"
_SEGMENTS = "segments"
# Of a segment; blocks and embeddings have the checksums of the rest.
_CHECKED = (
    _DOCUMENTS,
    _BLOCK_IDS,
    f"blocks/{artifact.METADATA}",
    f"embeddings/{artifact.METADATA}",
)
_MEND = (
    "Restore the corpus from a backup, or make it again with `realm corpus "
    "create`."
)


class Article(NamedTuple):
    """A row of `collecting.collect` without its text.

    Args:
        id: str.
        file: str. Label of its source and path below it.
        document: str. Id of what its source adds, changes and removes.
        fields: dict of str to list of str.
        digest: str. Of the row.
    """

    id: str
    file: str
    document: str
    fields: dict
    digest: str

    @classmethod
    def of(cls, row: dict) -> "Article":
        """The article of a row."""
        digest = hashlib.sha256(json.dumps(row, sort_keys=True).encode())
        parts = (row[each] for each in ("id", "file", "document", "fields"))
        return cls(*parts, digest.hexdigest())

    @property
    def source(self) -> str:
        """The label of its source."""
        return self.file.partition("/")[0]


class Segment:
    """Articles that were added at once, with their blocks and embeddings.

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
        """JSONL of the articles."""
        return self._path(_DOCUMENTS)

    @functools.cached_property
    def articles(self) -> list[Article]:
        """Its articles, in the order of their rows."""
        return list(map(Article.of, self.rows()))

    def rows(self) -> Iterator[dict]:
        """Its rows, as of `collecting.collect`."""
        try:
            with Path(self.documents_path).open("r") as file:
                yield from map(json.loads, file)
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.documents_path} is missing or damaged ({error}). {_MEND}"
            ) from error

    def is_of(self, rows: dict[str, dict]) -> bool:
        """Whether it is of these articles."""
        return os.path.exists(self.documents_path) and (
            self.articles == list(map(Article.of, rows.values()))
        )

    def write(self, rows: dict[str, dict]) -> None:
        """Writes the articles."""
        os.makedirs(self.folder, exist_ok=True)
        lines = (json.dumps(row, ensure_ascii=False) for row in rows.values())
        write_text(self.documents_path, "".join(f"{line}\n" for line in lines))

    @property
    def is_finished(self) -> bool:
        """Whether its blocks have been given ids."""
        return os.path.exists(self._path(_CHECKSUMS))

    def finish(self, block_ids: np.ndarray) -> None:
        """Gives the blocks their ids; the last thing that is written.

        Args:
            block_ids: int64 array `(num_blocks,)`.
        """
        array_files.write_array(self._path(_BLOCK_IDS), block_ids)
        digests = fingerprints.of_files(self.folder, _CHECKED)
        write_text(self._path(_CHECKSUMS), json.dumps(digests, indent=1))

    def check(self) -> None:
        """Compares all files with their checksums, and embeddings with norms.

        Raises:
            InputError: if a file is not what was written.
        """
        path = self._path(_CHECKSUMS)
        try:
            digests = artifact.read_json(path)
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path} is missing or damaged. {_MEND}"
            ) from error
        fingerprints.check_files(self.folder, digests, source=path, mend=_MEND)
        for each in (self.blocks, self.embeddings):
            each.check_files(mend=_MEND)

    @property
    def block_ids(self) -> np.ndarray:
        """int64 array `(num_blocks,)`."""
        return array_files.load_array(self._path(_BLOCK_IDS))

    @functools.cached_property
    def owners(self) -> list[str]:
        """The id of the article of each block."""
        return self.blocks.table["article_id"].to_pylist()


class State:
    """What of some segments is there, as one corpus.

    Args:
        segments: list of `(Segment, ids of articles that are not there)`.
    """

    def __init__(self, segments: list[tuple[Segment, frozenset[str]]]):
        self.segments = segments

    def check(self) -> None:
        """See `Segment.check`."""
        for each, _ in self.segments:
            each.check()

    def articles(self) -> dict[str, Article]:
        """Id to each article."""
        return {
            each.id: each
            for segment, removed in self.segments
            for each in segment.articles
            if each.id not in removed
        }

    def rows(self) -> dict[str, dict]:
        """Id to the row of each article, as of `collecting.collect`."""
        return {row["id"]: row for row in self._rows()}

    def _rows(self):
        for segment, removed in self.segments:
            yield from (x for x in segment.rows() if x["id"] not in removed)

    def row_of(self, block_id: int) -> dict | None:
        """The row of the document of a block; `None` if it is gone."""
        for segment, rows in self._parts:
            for row in rows[segment.block_ids[rows] == block_id]:
                return _named(segment, segment.owners[row])
        return None

    def document(self, name: str) -> tuple[dict, list[int]] | None:
        """The row of a document or of a section, and the ids of its blocks.

        The row of a document of several sections has the text of all. What a
        change of the corpus has added comes after what was there.
        """
        rows = [x for x in self._rows() if name in (x["id"], x["document"])]
        if not rows:
            return None
        names = {row["id"] for row in rows}
        owned = [owner in names for owner in self.owners()]
        return _joined(rows), self.block_ids()[owned].tolist()

    @functools.cached_property
    def _parts(self) -> list[tuple[Segment, np.ndarray]]:
        """Each segment with the rows of its blocks that are there."""
        return [
            (each, np.flatnonzero([x not in removed for x in each.owners]))
            for each, removed in self.segments
        ]

    @property
    def num_blocks(self) -> int:
        """How many blocks there are."""
        return sum(len(rows) for _, rows in self._parts)

    @property
    def max_block_length(self) -> int:
        """Wordpieces of the longest block that there may be."""
        return self.segments[0][0].blocks.metadata["max_block_length"]

    @property
    def num_on_disk(self) -> int:
        """Blocks of all documents, those that are gone, too."""
        return sum(each.blocks.num_blocks for each, _ in self.segments)

    def _columns(self, of_segment):
        return np.concatenate(
            [of_segment(segment)[rows] for segment, rows in self._parts]
        )

    def block_ids(self) -> np.ndarray:
        """What each block is called, int64 array `(num_blocks,)`."""
        return self._columns(lambda segment: segment.block_ids)

    def records(self, *, capacity: int | None = None) -> BlockRecords:
        """The blocks; see `BlockRecords.joined`."""
        parts = [(segment.blocks, rows) for segment, rows in self._parts]
        return BlockRecords.joined(parts, capacity=capacity)

    def embeddings(self) -> np.ndarray:
        """float32 array `(num_blocks, embedding_dim)`."""
        return self._columns(lambda segment: segment.embeddings.read())

    def owners(self) -> list[str]:
        """The id of the article of each block."""
        return [
            segment.owners[row] for segment, rows in self._parts for row in rows
        ]

    def fields(self) -> list[dict]:
        """Of each block, the fields of its article."""
        fields = {name: e.fields for name, e in self.articles().items()}
        return [fields[owner] for owner in self.owners()]


def _named(segment, name):
    """The row of a document of a segment; `None` if it is not there."""
    return next((row for row in segment.rows() if row["id"] == name), None)


def _joined(rows):
    """The row of a document of these sections; of one section, its own."""
    if len(rows) == 1:
        return rows[0]
    titles = [row["title"].split(": ") for row in rows]
    title = os.path.commonprefix(titles)
    texts = [
        f"{': '.join(parts[len(title) :])}\n{row['text']}".strip()
        for parts, row in zip(titles, rows, strict=True)
    ]
    first = rows[0] | {"id": rows[0]["document"], "title": ": ".join(title)}
    url, text = first["url"].partition("#")[0], "\n\n".join(texts)
    return first | {"url": url, "text": text}


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What corpus.json holds.

    Args:
        state: int. Number of the current state, and of its export.
        settings: dict. Fields of `CreateCorpus`.
        sources: list of `Source`.
        counts: dict. Of documents and blocks.
        segments: list of dicts: `name`, and `removed`, the ids of its articles
            that are no longer there.
        next_id: int. What the next new block is called.
    """

    state: int
    settings: dict
    sources: list[Source]
    counts: dict
    segments: list[dict]
    next_id: int

    @classmethod
    def of(cls, found: dict) -> "Manifest":
        """What the file says.

        Raises:
            ValueError, TypeError or AttributeError: if it is damaged.
        """
        sources = [Source(**each) for each in found.pop("sources")]
        found = cls(**found, sources=sources)
        for part in found.segments:
            if not part["name"].isdigit() or not isinstance(
                part["removed"], list
            ):
                raise ValueError(part["name"])
        if not isinstance(found.state, int) or not isinstance(
            found.settings, dict
        ):
            raise ValueError("state or settings")
        return found


class LiveCorpus:
    """A directory of `realm corpus`, given by its path."""

    metavar = "CORPUS"

    def __init__(self, path):
        self.path = os.fspath(path)
        self._segments = {}

    def __str__(self):
        return self.path

    def path_of(self, row: dict, manifest: Manifest) -> str | None:
        """The file of a document, if it is there and below a source.

        Args:
            row: dict. As of `State.rows`.
            manifest: `Manifest`.
        """
        label, _, below = row["file"].partition("/")
        for source in manifest.sources:
            if source.label == label:
                path = (
                    os.path.join(source.root, below) if below else source.path
                )
                path = os.path.realpath(path)
                if source.holds(path) and os.path.isfile(path):
                    return path
        return None

    @property
    def exists(self) -> bool:
        """Whether there is a state, perhaps one with a damaged manifest."""
        return is_corpus(self.path)

    def manifest(self) -> Manifest:
        """The current state.

        Raises:
            InputError: if the directory is no corpus, or one of an earlier
                version, or its file is damaged.
        """
        if not self.exists:
            raise InputError(
                f"{self.path} is no corpus (it has no {_MANIFEST}): make one "
                "with `realm corpus create`."
            )
        path = os.path.join(self.path, _MANIFEST)
        try:
            found = artifact.read_json(path)
            if "sources" in found:
                return Manifest.of(found)
            before = found["settings"]
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path} is missing or damaged ({type(error).__name__}). Copy "
                f"{self.path}/{_COPY} over it, which holds the same state."
            ) from error
        raise InputError(
            f"{self.path} is a corpus of an earlier version of realm: make it "
            f"again with `realm corpus create NEW --model {before['model']} "
            f"--documents {' '.join(before['documents'])}`."
        )

    def locked(self):
        """Nobody else makes a state meanwhile; as of `artifact.locked`."""
        return artifact.locked(os.path.join(self.path, ""))

    @contextlib.contextmanager
    def changing(self) -> Iterator[Manifest]:
        """Yields the current state, which nobody else changes meanwhile.

        Raises:
            InputError: as of `manifest`, or if somebody does.
        """
        # A directory that is no corpus gets no lock.
        self.manifest()
        with self.locked():
            yield self.manifest()

    def model(self, settings: dict) -> Model:
        """The model that a corpus was made with, also where both have moved.

        Raises:
            InputError: if it is not there, or another one now.
        """
        beside = os.path.join(self.path, settings["model_from_corpus"])
        for path in (settings["model"], beside):
            model = Model(path)
            if model.is_complete and (
                model.fingerprint == settings["model_fingerprint"]
            ):
                return model
        raise InputError(
            f"{settings['model']} is not the model that {self} was made with: "
            "put that back (the model of the package: `realm init --from minilm "
            f"--reader trained --output {settings['model']}`), or make another "
            "corpus with `realm corpus create`."
        )

    def state(self, manifest: Manifest | None = None) -> State:
        """The articles of a state, the current one by default."""
        manifest = manifest or self.manifest()
        kept = [
            (self.segment(each["name"]), frozenset(each["removed"]))
            for each in manifest.segments
        ]
        # Others may be deleted: their files must not be held open.
        self._segments = {segment.name: segment for segment, _ in kept}
        return State(kept)

    def segment(self, name: str) -> Segment:
        """The segment of a name, made or not; read once."""
        if name not in self._segments:
            folder = os.path.join(self.path, _SEGMENTS, name)
            self._segments[name] = Segment(folder)
        return self._segments[name]

    @property
    def saved_model(self) -> str:
        """Base directory of the exports, for `realm serve`."""
        return os.path.join(self.path, OF_CORPUS)

    def version(self, number: int) -> SavedModel:
        """The export of a state."""
        return SavedModel(os.path.join(self.saved_model, str(number)))

    def new_segment(self, rows: dict[str, dict], manifest: Manifest) -> Segment:
        """A segment of these articles, in the making.

        One that was killed goes on, if it was of the same articles.

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
        numbers = map(int, self._children(OF_CORPUS))
        return 1 + max(numbers, default=0)

    def write(self, manifest: Manifest) -> None:
        """Makes a state current."""
        text = json.dumps(
            dataclasses.asdict(manifest), ensure_ascii=False, indent=1
        )
        # The copy first: from either, no id is given twice.
        for name in (_COPY, _MANIFEST):
            write_text(os.path.join(self.path, name), text)

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
            for name in self._children(OF_CORPUS)
            if self.version(int(name)).is_complete
        ]
        versions = set(map(str, sorted(numbers)[-2:]))
        for folder, kept in ((_SEGMENTS, segments), (OF_CORPUS, versions)):
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
