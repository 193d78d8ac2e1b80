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

import numpy as np

from realm_tf.artifacts import array_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Blocks
from realm_tf.progress import Progress


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
    blocks: str | Blocks,
    output: str,
) -> Blocks:
    """Writes the wordpieces of a blocks directory for training.

    Args:
        blocks: `Blocks` or their path. What `realm chunk` wrote.
        output: str. The directory to make, on a local disk.

    Returns:
        `Blocks`. `counts` are `blocks`, `articles`, `sentences`, `wordpieces`
        (without titles) and `blocks_of_one_sentence`.

    Raises:
        InputError: if `blocks` is not complete or damaged, or `output`
            exists or is remote.
    """
    blocks = Blocks.of(blocks)
    with PackedBlocks.write(
        output,
        tokenizer=blocks.tokenizer,
        parents={"blocks": blocks.fingerprint},
        wordpieces=array_files.read_vocabulary(blocks.path),
    ) as (files, stage):
        counts = _append_blocks(files, blocks)
        stage.metadata.update(
            tokenizer=blocks.tokenizer,
            num_blocks=counts["blocks"],
            counts=counts,
        )
    return Blocks(output)


def _append_blocks(files, blocks):
    progress = Progress("pack", "blocks", blocks.num_blocks)
    article, number, num_single = None, -1, 0
    for block in blocks.read():
        # Blocks of an article follow each other.
        if block.article_id != article:
            article, number = block.article_id, number + 1
        starts = sentence_starts(block)
        num_single += len(starts) == 1
        _append_row(files, number)
        files["token_ids"].append(block.token_ids)
        files["sentences"].append(starts)
        files["title_ids"].append(block.title_ids)
        progress.add(1)
    counts = {
        "blocks": files["blocks"].num_rows,
        "articles": number + 1,
        "sentences": files["sentences"].num_rows,
        "wordpieces": files["token_ids"].num_rows,
        "blocks_of_one_sentence": num_single,
    }
    _append_row(files, number + 1)
    return counts


def _append_row(files, article):
    sizes = [files[name].num_rows for name in PackedBlocks.limits]
    files["blocks"].append([[*sizes, article]])


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


class PackedBlocks(array_files.PackedArrays):
    """The blocks of a directory that `pack_blocks` wrote, by block id.

    Args:
        directory: str.
    """

    kind = Blocks.kinds[1]
    columns = {
        "blocks": ("int64", 4),
        "token_ids": ("uint16", None),
        "sentences": ("int32", None),
        "title_ids": ("uint16", None),
    }
    limits = {"token_ids": 0, "sentences": 1, "title_ids": 2}

    @property
    def fingerprint(self) -> str:
        """Digest of the blocks, as `realm chunk` wrote it."""
        return self.metadata["parents"]["blocks"]

    def __getitem__(self, block_id: int) -> PackedBlock:
        """The block of an id, 0 to `len() - 1`."""
        rows = self.rows(block_id)
        return PackedBlock(
            block_id=int(block_id),
            title_ids=rows["title_ids"],
            token_ids=rows["token_ids"],
            sentence_starts=rows["sentences"],
        )

    def count_wordpieces(self) -> np.ndarray:
        """Wordpieces of each block with its title, int64 `(num_blocks,)`."""
        return np.diff(self.table[:, [0, 2]], axis=0).sum(axis=1)

    def article_numbers(self) -> np.ndarray:
        """int32 `(num_blocks,)`; blocks of one article share theirs."""
        return self.table[:-1, 3].astype("int32")

    def bodies(self, max_length: int) -> tuple[np.ndarray, np.ndarray]:
        """The wordpieces of all bodies as one table in memory.

        Args:
            max_length: int. Longer bodies are cut.

        Returns:
            int array `(num_blocks, length)` of the type on the disk, padded
            with 0, no wider than the longest; int32 array `(num_blocks,)`,
            the wordpieces of each.
        """
        return self.padded("token_ids", max_length)

    def titles(self, max_length: int) -> tuple[np.ndarray, np.ndarray]:
        """As `bodies`, of the titles."""
        return self.padded("title_ids", max_length)
