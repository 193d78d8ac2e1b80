"""A corpus that changes: documents, and all that answers from them.

    corpus.json             the current state: which documents of which segments,
                            and how states are made
    segments/000001/        what was added or changed at once, and is never
      documents.jsonl       changed itself: id, title, text, url, fields, file
      contents.jsonl        without the texts: id, file, fields, digest
      blocks, embeddings
      block_ids.npy         what each block is called in answers
      places.npy            the line of documents.jsonl that it is from
    saved_model/2/          the export of a state, for a server

A new state is made beside the current one, and becomes current when corpus.json
is replaced: whoever reads that sees one state or the other. A block is called
the same in all states, and no other is called so.
"""

import dataclasses
import json
import os

from realm_tf.artifacts.objects import SavedModel
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.segments import Segment
from realm_tf.artifacts.segments import State
from realm_tf.errors import InputError

_MANIFEST = "corpus.json"
_SEGMENTS = "segments"
_SAVED_MODEL = "saved_model"


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
