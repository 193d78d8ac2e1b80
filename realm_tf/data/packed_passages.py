"""Annotated passages as memory-mapped wordpieces, for training.

Written once from a directory of annotated passages; then any passage is read
in microseconds, in any order, and no more of the corpus is in memory than the
system's page cache holds. Reading needs numpy alone: no TensorFlow, no
tokenizer.

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

import contextlib
import hashlib
import itertools
import os
import pathlib
from collections import Counter

import numpy as np

from realm_tf import stages
from realm_tf.data import schema
from realm_tf.data import tokenized_passages
from realm_tf.errors import InputError

PACKED = "packed_passages"

_COLUMNS = {
    "passages": ("int64", 6),
    "token_ids": ("uint16", None),
    "sentences": ("int32", 3),
    "spans": ("int32", 4),
    "texts": ("uint8", None),
}
# Passages tokenised at once, and passages whose spans are counted at once.
_BATCH = 256
_PART = 100_000


def pack_passages(annotated: str, tokenizer, output: str) -> dict:
    """Tokenises annotated passages and writes them for training.

    Args:
        annotated: str. A directory that `realm annotate` wrote.
        tokenizer: `Tokenizer`.
        output: str. The directory to make, on a local disk.

    Returns:
        dict of int, the counts of `tokenized_passages.tokenize_passages`.

    Raises:
        InputError: if `annotated` is not complete or damaged, or `output`
            exists or is remote.
    """
    if stages.is_remote(output):
        raise InputError(
            f"{output} is not on a local disk: packed passages are mapped "
            "into memory. Choose a local directory."
        )
    metadata = stages.read(annotated, kind=schema.ANNOTATED)
    counts = Counter()
    with stages.write(
        output,
        kind=PACKED,
        parameters={"tokenizer": tokenizer.fingerprint()},
        parents={"annotated": metadata.get("fingerprint", "")},
    ) as stage:
        with contextlib.ExitStack() as stack:
            files = {
                name: stack.enter_context(open(stage.path(f"{name}.npy"), "wb"))
                for name in _COLUMNS
            }
            writer = _PassageWriter(files, tokenizer.vocabulary_size)
            passages = schema.read_annotated(annotated)
            while batch := list(itertools.islice(passages, _BATCH)):
                for passage in tokenized_passages.tokenize_passages(
                    batch, tokenizer, counts=counts
                ):
                    writer.add(passage)
            fingerprint = writer.finish()
        stage.metadata.update(
            fingerprint=fingerprint,
            num_passages=counts["passages"],
            counts=dict(sorted(counts.items())),
        )
        stages.write_text(
            stage.path("vocab.txt"),
            "".join(f"{piece}\n" for piece in tokenizer.vocabulary),
        )
    return dict(counts)


class _PassageWriter:
    """The files of a directory, appended to passage by passage."""

    def __init__(self, files, vocabulary_size):
        self._files = {}
        for name, (dtype, columns) in _COLUMNS.items():
            if name == "token_ids" and vocabulary_size > 1 << 16:
                dtype = "int32"
            self._files[name] = _ArrayFile(files[name], dtype, columns)

    def add(self, passage):
        title = passage.title.encode("utf-8")
        self._add_row(passage.block_id, len(title))
        self._files["token_ids"].append(passage.token_ids)
        self._files["sentences"].append(passage.sentences)
        self._files["spans"].append(passage.spans)
        self._files["texts"].append(np.frombuffer(title, "uint8"))
        self._files["texts"].append(np.frombuffer(passage.text, "uint8"))

    def _add_row(self, block_id, title_length):
        sizes = [
            self._files[name].num_rows
            for name in ("token_ids", "sentences", "spans", "texts")
        ]
        row = [block_id, *sizes, sizes[-1] + title_length]
        self._files["passages"].append(np.array([row]))

    def finish(self):
        """Completes the headers; returns the digest of the content."""
        self._add_row(-1, 0)
        return stages.fingerprint(
            *(file.finish() for file in self._files.values())
        )


class _ArrayFile:
    """An `.npy` file whose number of rows is known at its end only."""

    def __init__(self, file, dtype, columns):
        self._file = file
        self._dtype = np.dtype(dtype)
        self._columns = columns
        self._digest = hashlib.sha256()
        self.num_rows = 0
        self._header_length = self._write_header()

    def append(self, rows):
        content = np.ascontiguousarray(rows, self._dtype).tobytes()
        self._file.write(content)
        self._digest.update(content)
        self.num_rows += len(rows)

    def finish(self):
        self._file.seek(0)
        # Numpy pads headers, so that one of more rows is as long.
        if self._write_header() != self._header_length:
            raise RuntimeError(f"{self._file.name}: its header grew.")
        return self._digest.digest()

    def _write_header(self):
        shape = (self.num_rows,)
        if self._columns:
            shape += (self._columns,)
        np.lib.format.write_array_header_1_0(
            self._file,
            {
                "descr": np.lib.format.dtype_to_descr(self._dtype),
                "fortran_order": False,
                "shape": shape,
            },
        )
        return self._file.tell()


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
        self.metadata = stages.read(directory, kind=PACKED)
        try:
            arrays = {
                name: _map(os.path.join(self.directory, f"{name}.npy"), columns)
                for name, (_, columns) in _COLUMNS.items()
            }
            path = pathlib.Path(self.directory, "vocab.txt")
            self.wordpieces = path.read_text(encoding="utf-8").split("\n")[:-1]
        except (OSError, ValueError, EOFError) as error:
            raise self._damaged(error) from error
        self._passages = arrays.pop("passages")
        self._token_ids = arrays["token_ids"]
        self._sentences = arrays["sentences"]
        self._spans = arrays["spans"]
        self._texts = arrays["texts"]
        if len(self) != self.metadata["num_passages"] or self._passages[
            -1, 1:5
        ].tolist() != list(map(len, arrays.values())):
            raise self._damaged("its files disagree")

    def _damaged(self, why):
        return InputError(
            f"{self.directory} is damaged ({why}): remove it and make it again."
        )

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


def _map(path, columns):
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.shape[1:] != (() if columns is None else (columns,)):
        raise ValueError(f"{path} has the shape {array.shape}")
    # Slices of a plain array are several times faster than of a memmap.
    return array.view(np.ndarray)
