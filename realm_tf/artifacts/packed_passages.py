"""Annotated passages as memory-mapped wordpieces, for training.

Written once from a directory of annotated passages; see `array_files`.

Files, `.npy`:

- `passages` int64 `(num_passages + 1, 6)`: block id, first wordpiece, first
  sentence, first span, first byte of the title, first byte of the text. The
  last row holds the totals.
- `token_ids` uint16 `(num_wordpieces,)`, int32 for more than 65,536 of them
  in the vocabulary.
- `sentences` int32 `(num_sentences, 3)` and `spans` int32 `(num_spans, 4)` as
  in `tokenized_passages.TokenizedPassage`, counted from the passage's beginning.
- `texts` uint8: title and text of each passage in UTF-8, for display.

`vocab.txt` is the tokenizer's.
"""

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np

from realm_tf.artifacts import array_files
from realm_tf.artifacts import artifact
from realm_tf.artifacts import schema
from realm_tf.data import tokenized_passages
from realm_tf.text.integer_types import smallest_dtype

PACKED = "packed_passages"

_COLUMNS = {
    "passages": ("int64", 6),
    "token_ids": ("uint16", None),
    "sentences": ("int32", 3),
    "spans": ("int32", 4),
    "texts": ("uint8", None),
}
# The column of `passages` that points into each of the others.
_LIMITS = {"token_ids": 1, "sentences": 2, "spans": 3, "texts": 4}
# Passages tokenised at once, and passages whose spans are counted at once.
_BATCH = 256
_PART = 100_000


def pack_passages(
    annotated: str,
    tokenizer,
    output: str,
    *,
    progress: Callable[[int], None] | None = None,
) -> dict:
    """Tokenises annotated passages and writes them for training.

    Args:
        annotated: str. A directory that `realm annotate` wrote.
        tokenizer: `Tokenizer`.
        output: str. The directory to make, on a local disk.
        progress: function that is told now and then how many passages are
            done. Defaults to `None`.

    Returns:
        dict of int, the counts of `tokenized_passages.tokenize_passages`.

    Raises:
        InputError: if `annotated` is not complete or damaged, or `output`
            exists or is remote.
    """
    array_files.check_local(output)
    metadata = artifact.read(annotated, kind=schema.ANNOTATED)
    counts = Counter()
    with artifact.write(
        output,
        kind=PACKED,
        parameters={"tokenizer": tokenizer.fingerprint()},
        parents={
            "annotated": metadata.get("fingerprint", ""),
            **_of_blocks(metadata),
        },
    ) as stage:
        columns = {
            **_COLUMNS,
            "token_ids": (
                smallest_dtype(tokenizer.vocabulary_size - 1),
                None,
            ),
        }
        with array_files.ArrayFiles(stage.directory, columns) as files:
            passages = schema.read_annotated(annotated)
            while batch := list(itertools.islice(passages, _BATCH)):
                for passage in tokenized_passages.tokenize_passages(
                    batch, tokenizer, counts=counts
                ):
                    _append(files, passage)
                if progress:
                    progress(counts["passages"])
            _append_row(files, -1, 0)
            fingerprint = files.finish()
        stage.metadata.update(
            fingerprint=fingerprint,
            num_passages=counts["passages"],
            counts=dict(sorted(counts.items())),
        )
        array_files.write_vocabulary(stage.directory, tokenizer.vocabulary)
    return dict(counts)


def _of_blocks(metadata):
    # Passages of another corpus are no blocks.
    blocks = metadata["parents"].get("blocks")
    return {} if blocks is None else {"blocks": blocks}


def _append(files, passage):
    title = passage.title.encode("utf-8")
    _append_row(files, passage.block_id, len(title))
    files.append("token_ids", passage.token_ids)
    files.append("sentences", passage.sentences)
    files.append("spans", passage.spans)
    files.append("texts", np.frombuffer(title, "uint8"))
    files.append("texts", np.frombuffer(passage.text, "uint8"))


def _append_row(files, block_id, title_length):
    sizes = [files.num_rows(name) for name in _LIMITS]
    row = [block_id, *sizes, sizes[-1] + title_length]
    files.append("passages", np.array([row]))


def read_metadata(directory: str) -> dict:
    """The metadata of passages, whether packed or only annotated.

    Args:
        directory: str.

    Returns:
        dict. `kind` is `PACKED` or `schema.ANNOTATED`.

    Raises:
        InputError: if it is neither, or not complete.
    """
    return artifact.read(directory, kind=(schema.ANNOTATED, PACKED))


def blocks_fingerprint(metadata: dict) -> str | None:
    """Digest of the blocks that the passages are; `None` if they are none.

    Args:
        metadata: dict. As `read_metadata` returns it.
    """
    return metadata["parents"].get("blocks")


class PackedPassages:
    """The passages of a directory that `pack_passages` wrote, by number.

    Passages are in the order of the annotated records. Threads may share an
    instance; pickled, it opens the directory again.

    Args:
        directory: str.

    Attributes:
        metadata: dict. Of the directory.
        wordpieces: list of str. The vocabulary.

    Raises:
        InputError: if the directory is not complete or damaged.
    """

    def __init__(self, directory: str):
        self.directory = str(directory)
        self.metadata = artifact.read(directory, kind=PACKED)
        arrays = array_files.open_arrays(
            self.directory,
            _COLUMNS,
            rows="passages",
            num_rows=self.metadata["num_passages"],
            limits=_LIMITS,
        )
        self.wordpieces = array_files.read_vocabulary(self.directory)
        self._passages = arrays["passages"]
        self._token_ids = arrays["token_ids"]
        self._sentences = arrays["sentences"]
        self._spans = arrays["spans"]
        self._texts = arrays["texts"]

    def __reduce__(self):
        return PackedPassages, (self.directory,)

    def __len__(self):
        return len(self._passages) - 1

    def __getitem__(self, number: int) -> tokenized_passages.TokenizedPassage:
        """The passage of a number, 0 to `len() - 1`."""
        if not 0 <= number < len(self):
            raise IndexError(f"no passage {number} of {len(self)}")
        row = self._passages[number].tolist()
        block_id, token, sentence, span, title, text = row
        end = self._passages[number + 1]
        return tokenized_passages.TokenizedPassage(
            block_id=block_id,
            title=self._texts[title:text].tobytes().decode("utf-8"),
            text=self._texts[text : end[4]].tobytes(),
            token_ids=self._token_ids[token : end[1]],
            sentences=self._sentences[sentence : end[2]],
            spans=self._spans[span : end[3]],
        )

    def count_spans(self, max_masked: int) -> tuple[np.ndarray, int]:
        """How many spans of each passage can be masked.

        Args:
            max_masked: int. Wordpieces.

        Returns:
            int32 array `(num_passages,)`, the spans of at most that many
            wordpieces; int, the number of longer ones.
        """
        found = np.zeros(len(self), "int32")
        num_longer = 0
        # In parts: the spans of a large corpus are not for memory.
        for first in range(0, len(self), _PART):
            limits = self._passages[first : first + _PART + 1, 3]
            spans = self._spans[limits[0] : limits[-1]]
            fits = spans[:, 1] - spans[:, 0] <= max_masked
            num_longer += int(np.sum(~fits))
            total = np.concatenate([[0], np.cumsum(fits)])
            places = total[limits - limits[0]]
            found[first : first + _PART] = np.diff(places)
        return found, num_longer

    def count_sentences(self) -> np.ndarray:
        """Sentences of each passage, int32 `(num_passages,)`."""
        return np.diff(self._passages[:, 2]).astype("int32")
