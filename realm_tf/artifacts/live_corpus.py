"""A corpus that changes: documents, and all that answers from them.

    corpus.json            which state is current, and how states are made
    states/000002/         of the current one and the one before:
      documents.jsonl      id, title, text, url and file of every document
      blocks, embeddings, index
    saved_model/2/         the export of a state, for a server

A state is never changed. A new one is made beside it, and becomes current when
corpus.json is replaced: whoever reads that sees one state or the other.
"""

import json
import os

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import SavedModel
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError

_MANIFEST = "corpus.json"
_STATES = "states"
_SAVED_MODEL = "saved_model"
_DOCUMENTS = "documents.jsonl"


class LiveCorpus:
    """A directory of `realm corpus`.

    Args:
        path: str.
    """

    metavar = "CORPUS"

    def __init__(self, path):
        self.path = os.fspath(path)

    def __str__(self):
        return self.path

    @property
    def exists(self) -> bool:
        """Whether there is a state."""
        return Path(os.path.join(self.path, _MANIFEST)).exists()

    def manifest(self) -> dict:
        """`state`, its number; `settings`, fields of `CreateCorpus`; `counts`.

        Raises:
            InputError: if the directory is no corpus.
        """
        path = os.path.join(self.path, _MANIFEST)
        try:
            found = json.loads(Path(path).read_text())
            return {
                name: found[name] for name in ("state", "settings", "counts")
            }
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise InputError(
                f"{self.path} is no corpus ({path} cannot be read: {error!r}): "
                "make one with `realm corpus create`."
            ) from error

    def state(self, number: int) -> "State":
        """The state of a number, made or not."""
        folder = os.path.join(self.path, _STATES, f"{number:06d}")
        return State(number, folder, self.saved_model)

    @property
    def current(self) -> "State":
        """The state that is current."""
        return self.state(self.manifest()["state"])

    @property
    def saved_model(self) -> str:
        """Base directory of the exports, for `realm serve`."""
        return os.path.join(self.path, _SAVED_MODEL)

    def begin(self, documents: dict[str, dict], current: int = 0) -> "State":
        """A new state of these documents, in the making.

        One that was killed goes on, if it was of the same documents. Otherwise
        the new one has a number that no directory has had, for a server may
        have loaded what was killed just before its end.

        Args:
            documents: dict. See `State.documents`.
            current: int. Number of the current state. Defaults to `0`: none.
        """
        numbers = [n for folder in self._folders() for n in _numbers(folder)]
        last = max([current, *numbers])
        state = self.state(last)
        if last == current or not state.is_of(documents):
            state = self.state(last + 1)
            state.write(documents)
        return state

    def commit(
        self, number: int, settings: dict, counts: dict, *, before: int = 0
    ) -> None:
        """Makes a state current, and removes all but it and the one before."""
        manifest = {"state": number, "settings": settings, "counts": counts}
        write_text(
            os.path.join(self.path, _MANIFEST), json.dumps(manifest, indent=1)
        )
        for folder in self._folders():
            for name, path in _numbers(folder).items():
                if name not in (number, before):
                    remove(path)

    def _folders(self):
        return os.path.join(self.path, _STATES), self.saved_model


class State:
    """One state of a corpus.

    Attributes:
        number: int.
        blocks: `Blocks`.
        embeddings: `Embeddings`.
        index: `Index`.
        saved_model: `SavedModel`. Its version is the number of the state.
    """

    def __init__(self, number, folder, saved_model):
        self.number = number
        self.folder = folder
        self.blocks = Blocks(os.path.join(folder, "blocks"))
        self.embeddings = Embeddings(os.path.join(folder, "embeddings"))
        self.index = Index(os.path.join(folder, "index"))
        self.saved_model = SavedModel(os.path.join(saved_model, str(number)))

    @property
    def documents_path(self) -> str:
        """JSONL of all documents."""
        return os.path.join(self.folder, _DOCUMENTS)

    def documents(self) -> dict[str, dict]:
        """Id to a row of each document, as of `collecting.collect`."""
        with Path(self.documents_path).open("r") as file:
            rows = map(json.loads, file)
            return {row["id"]: row for row in rows}

    def is_of(self, documents: dict[str, dict]) -> bool:
        """Whether these documents are its own."""
        is_there = os.path.exists(self.documents_path)
        return is_there and self.documents() == documents

    def write(self, documents: dict[str, dict]) -> None:
        """Writes the documents."""
        os.makedirs(self.folder, exist_ok=True)
        lines = (
            json.dumps(row, ensure_ascii=False) + "\n"
            for row in documents.values()
        )
        write_text(self.documents_path, "".join(lines))


def _numbers(folder) -> dict[int, str]:
    """Number to path of what is in a folder."""
    if not Path(folder).exists():
        return {}
    return {
        int(each.name): str(each)
        for each in Path(folder).iterdir()
        if each.name.isdigit()
    }
