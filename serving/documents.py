"""The documents that the blocks of a served corpus were cut from."""

import collections
import itertools
import mimetypes
import threading
from collections.abc import Iterable

import grpc

from realm_tf.artifacts import saved_models
from realm_tf.errors import InputError
from realm_tf.serving.metrics import log_event
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import unavailable

PDF = "application/pdf"
# What a browser shows as it is; other text is plain, and all else is saved.
_SHOWN = ("text/html", PDF)


# Of a field, for people who choose documents by it (our choice).
_NUM_VALUES = 12


class Documents:
    """Reads documents of the corpus that an export belongs to.

    Args:
        saved_model: str. The export, or the base directory of exports.

    Attributes:
        exist: bool. Whether it belongs to a corpus.
    """

    def __init__(self, saved_model: str):
        path = saved_models.corpus_of(saved_model)
        self.exist = path is not None
        if self.exist:
            # The image of the server has no pyarrow, an export needs none.
            from realm_tf.artifacts.live_corpus import LiveCorpus

            self._corpus = LiveCorpus(path)
        self._lock = threading.Lock()
        self._manifest = self._state = None

    def of_block(self, block_id: int) -> dict:
        """The document of a block, as of `collecting.collect`.

        Args:
            block_id: int. As answers name it.

        Raises:
            RequestError: NOT_FOUND, if the corpus does not hold it any more.
        """
        return self._found(lambda state: state.row_of(block_id), block_id)

    def of_id(self, name: str) -> tuple[dict, list[int]]:
        """A document or a section by its id, and the ids of its blocks.

        Raises:
            RequestError: As `of_block`.
        """
        return self._found(lambda state: state.document(name), name)

    def path(self, row: dict) -> str:
        """The file of a document.

        Raises:
            RequestError: NOT_FOUND, if it is gone, no file, or not below a
                source of the corpus.
        """
        path = self._corpus.path_of(row, self._manifest)
        if path is None:
            raise missing(row["file"])
        return path

    def values(self, names: Iterable[str]) -> dict[str, list[str]]:
        """The most frequent values of each field of the documents."""

        def count(state):
            of_all = [each.fields for each in state.articles().values()]
            return {
                name: [
                    value
                    for value, _ in collections.Counter(
                        itertools.chain.from_iterable(
                            fields.get(name, ()) for fields in of_all
                        )
                    ).most_common(_NUM_VALUES)
                ]
                for name in names
            }

        return self._found(count, "fields")

    def _found(self, find, name):
        if not self.exist:
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                "This model has blocks alone: serve a corpus of `realm corpus "
                "create` to read its documents.",
            )
        try:
            with self._lock:
                manifest = self._corpus.manifest()
                if manifest != self._manifest:
                    self._manifest = manifest
                    self._state = self._corpus.state(manifest)
                found = find(self._state)
        except (InputError, OSError) as error:
            log_event("documents_failed", message=str(error))
            raise unavailable(
                "The corpus cannot be read now: whoever runs the server sees "
                "why with `realm corpus status`."
            ) from error
        if found is None:
            raise missing(name)
        return found


def content_type(path: str) -> tuple[str, bool]:
    """The type to send a file as, and whether a browser may show it."""
    kind, encoding = mimetypes.guess_type(path)
    if encoding is None and kind in _SHOWN:
        return kind, True
    if encoding is None and (kind or "").startswith("text/"):
        return "text/plain; charset=utf-8", True
    return "application/octet-stream", False


def missing(name) -> RequestError:
    """The refusal of a document that is not there."""
    return RequestError(
        grpc.StatusCode.NOT_FOUND,
        f"There is no document {str(name)!r}: expected the id that an answer "
        "names. It may have left the corpus, or its file be gone.",
    )
