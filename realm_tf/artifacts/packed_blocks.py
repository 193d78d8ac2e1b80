"""Blocks as memory-mapped wordpieces, for training.

Written once from a blocks directory; see `array_files`. Texts are not there:
wordpieces are all that training takes.

Files, `.npy`:

- `blocks` int64 `(num_blocks + 1, 4)`: first wordpiece of the body, first
  sentence, first wordpiece of the title, number of the article. The last row
  holds the totals.
- `token_ids` and `title_ids` uint16 `(num_wordpieces,)`, int32 for more than
  65,536 of them in the vocabulary.
- `sentences` int32 `(num_sentences,)`: the wordpiece of its block that each
  sentence begins with. It goes on to the next one's, the last to the block's
  end. Sentences without any wordpiece are left out.

`vocab.txt` is the blocks'.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from realm_tf.artifacts import array_files
from realm_tf.artifacts import artifact
from realm_tf.artifacts import schema
from realm_tf.text.integer_types import smallest_dtype

PACKED = "packed_blocks"

_COLUMNS = {
    "blocks": ("int64", 4),
    "token_ids": ("uint16", None),
    "sentences": ("int32", None),
    "title_ids": ("uint16", None),
}
# The column of `blocks` that points into each of the others.
_LIMITS = {"token_ids": 0, "sentences": 1, "title_ids": 2}
_ARTICLE = 3
# Rows of a table that are filled at once, and blocks between two reports.
_PART = 4096


@dataclasses.dataclass(frozen=True)
class PackedBlock:
    """A block as wordpieces.

    Args:
        block_id: int.
        title_ids: int array `(num_title_wordpieces,)`.
        token_ids: int array `(num_wordpieces,)`. Of the body.
        sentence_starts: int array `(num_sentences,)`. The wordpiece of the
            body that each sentence begins with; ascending.
    """

    block_id: int
    title_ids: np.ndarray
    token_ids: np.ndarray
    sentence_starts: np.ndarray

    def sentence(self, number: int) -> tuple[int, int]:
        """First wordpiece of a sentence and the one after its last."""
        starts = self.sentence_starts
        last = number + 1 == len(starts)
        limit = len(self.token_ids) if last else starts[number + 1]
        return int(starts[number]), int(limit)


def pack_blocks(
    blocks: str,
    output: str,
    *,
    progress: Callable[[int], None] | None = None,
) -> dict:
    """Writes the wordpieces of a blocks directory for training.

    Args:
        blocks: str. A directory that `realm chunk` wrote.
        output: str. The directory to make, on a local disk.
        progress: function that is told now and then how many blocks are
            done. Defaults to `None`.

    Returns:
        dict of int: `blocks`, `articles`, `sentences`, `wordpieces` (without
        titles) and `blocks_of_one_sentence`.

    Raises:
        InputError: if `blocks` is not complete or damaged, or `output`
            exists or is remote.
    """
    array_files.check_local(output)
    metadata = artifact.read(blocks, kind=schema.BLOCKS)
    wordpieces = array_files.read_vocabulary(blocks)
    dtype = smallest_dtype(len(wordpieces) - 1)
    columns = {
        name: (dtype if name.endswith("_ids") else kind, number)
        for name, (kind, number) in _COLUMNS.items()
    }
    with artifact.write(
        output,
        kind=PACKED,
        parameters={"tokenizer": metadata["tokenizer"]},
        parents={"blocks": metadata["fingerprint"]},
    ) as stage:
        with array_files.ArrayFiles(stage.directory, columns) as files:
            counts = _append_blocks(files, blocks, progress)
            fingerprint = files.finish()
        stage.metadata.update(
            fingerprint=fingerprint,
            tokenizer=metadata["tokenizer"],
            num_blocks=counts["blocks"],
            counts=counts,
        )
        array_files.write_vocabulary(stage.directory, wordpieces)
    return counts


def _append_blocks(files, blocks, progress):
    article, number, num_single = None, -1, 0
    for block in schema.read_blocks(blocks):
        # Blocks of an article follow each other.
        if block.article_id != article:
            article, number = block.article_id, number + 1
        starts = sentence_starts(block)
        num_single += len(starts) == 1
        _append_row(files, number)
        files.append("token_ids", block.token_ids)
        files.append("sentences", starts)
        files.append("title_ids", block.title_ids)
        if progress and not (block.block_id + 1) % _PART:
            progress(block.block_id + 1)
    counts = {
        "blocks": files.num_rows("blocks"),
        "articles": number + 1,
        "sentences": files.num_rows("sentences"),
        "wordpieces": files.num_rows("token_ids"),
        "blocks_of_one_sentence": num_single,
    }
    _append_row(files, number + 1)
    return counts


def _append_row(files, article):
    sizes = [files.num_rows(name) for name in _LIMITS]
    files.append("blocks", np.array([[*sizes, article]]))


def sentence_starts(block: schema.Block) -> np.ndarray:
    """The wordpiece that each sentence of a block begins with.

    Sentences without any are left out.

    Args:
        block: `schema.Block`.

    Returns:
        int array `(num_sentences,)`, ascending.
    """
    starts = np.searchsorted(block.token_starts, block.sentence_starts)
    limits = np.append(starts[1:], len(block.token_ids))
    return starts[starts < limits]


def read_metadata(directory: str) -> dict:
    """The metadata of blocks, whether packed or as `realm chunk` wrote them.

    Args:
        directory: str.

    Returns:
        dict. `kind` is `PACKED` or `schema.BLOCKS`; both have `tokenizer`
        and `num_blocks`.

    Raises:
        InputError: if it is neither, or not complete.
    """
    return artifact.read(directory, kind=(schema.BLOCKS, PACKED))


def blocks_fingerprint(metadata: dict) -> str:
    """Digest of the blocks, the same before and after packing.

    Args:
        metadata: dict. As `read_metadata` returns it.
    """
    if metadata["kind"] == PACKED:
        return metadata["parents"]["blocks"]
    return metadata["fingerprint"]


class PackedBlocks:
    """The blocks of a directory that `pack_blocks` wrote, by block id.

    Threads may share an instance; pickled, it opens the directory again.

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
            rows="blocks",
            num_rows=self.metadata["num_blocks"],
            limits=_LIMITS,
        )
        self.wordpieces = array_files.read_vocabulary(self.directory)
        self._blocks = arrays["blocks"]
        self._token_ids = arrays["token_ids"]
        self._sentences = arrays["sentences"]
        self._title_ids = arrays["title_ids"]

    def __reduce__(self):
        return PackedBlocks, (self.directory,)

    def __len__(self):
        return len(self._blocks) - 1

    @property
    def fingerprint(self) -> str:
        """Digest of the blocks, as `realm chunk` wrote it."""
        return blocks_fingerprint(self.metadata)

    def __getitem__(self, block_id: int) -> PackedBlock:
        """The block of an id, 0 to `len() - 1`."""
        if not 0 <= block_id < len(self):
            raise IndexError(f"no block {block_id} of {len(self)}")
        token, sentence, title, _ = self._blocks[block_id].tolist()
        end = self._blocks[block_id + 1]
        return PackedBlock(
            block_id=int(block_id),
            title_ids=self._title_ids[title : end[2]],
            token_ids=self._token_ids[token : end[0]],
            sentence_starts=self._sentences[sentence : end[1]],
        )

    def count_sentences(self) -> np.ndarray:
        """Sentences of each block, int32 `(num_blocks,)`."""
        return np.diff(self._blocks[:, 1]).astype("int32")

    def count_wordpieces(self) -> np.ndarray:
        """Wordpieces of each block with its title, int64 `(num_blocks,)`."""
        return np.diff(self._blocks[:, [0, 2]], axis=0).sum(axis=1)

    def article_numbers(self) -> np.ndarray:
        """int32 `(num_blocks,)`; blocks of one article share theirs."""
        return self._blocks[:-1, _ARTICLE].astype("int32")

    def bodies(self, max_length: int) -> tuple[np.ndarray, np.ndarray]:
        """The wordpieces of all bodies as one table in memory.

        Args:
            max_length: int. Longer bodies are cut.

        Returns:
            int array `(num_blocks, length)` of the type on the disk, padded
            with 0, no wider than the longest; int32 array `(num_blocks,)`,
            the wordpieces of each.
        """
        return _table(self._token_ids, self._blocks[:, 0], max_length)

    def titles(self, max_length: int) -> tuple[np.ndarray, np.ndarray]:
        """As `bodies`, of the titles."""
        return _table(self._title_ids, self._blocks[:, 2], max_length)


def _table(flat, limits, max_length):
    lengths = np.minimum(np.diff(limits), max_length).astype("int32")
    width = int(lengths.max(initial=0))
    table = np.zeros((len(lengths), width), flat.dtype)
    columns = np.arange(width)
    for first in range(0, len(table), _PART):
        part = slice(first, first + _PART)
        inside = columns < lengths[part, None]
        places = (limits[:-1][part, None] + columns)[inside]
        table[part][inside] = flat[places]
    return table, lengths
