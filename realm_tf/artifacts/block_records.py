"""All blocks by block id, mapped into memory."""

import dataclasses
import functools
import itertools

import numpy as np
import pyarrow as pa

from realm_tf.artifacts import array_files
from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.errors import InputError
from realm_tf.text import answer_spans
from realm_tf.text.tokenizer import read_vocabulary

# Blocks that have a common wordpiece, at least; of more than the second number
# so many are looked at (our choice).
LEAST_FOR_COMMON = 50
MOST_FOR_COMMON = 2000


@dataclasses.dataclass(frozen=True)
class BlockWordpieces:
    """A block as wordpieces, for training.

    Args:
        block_id: int.
        title_ids: int32 array `(num_title_wordpieces,)`.
        token_ids: int32 array `(num_wordpieces,)`. Of the body.
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


class BlockRecords:
    """All blocks of a directory, by block id.

    Needs neither TensorFlow nor Keras. Pickled, it opens the blocks again.

    Args:
        blocks: `Blocks`.
        table: `pyarrow.Table`. Defaults to `None`: that of the blocks.

    Attributes:
        num_blocks: int.
        titles, texts, urls: sequences of str; each is made when it is asked
            for.
        lengths: int32 array `(num_blocks,)`. Wordpieces of each body, at most
            `max_block_length` of the directory.
        first_wordpieces: int64 array `(num_blocks + 1,)`. Where each body
            begins in `token_starts`.
        metadata: dict. Of the directory.

    Raises:
        InputError: if the directory is not a complete blocks directory, or
            holds no block.
    """

    def __init__(self, blocks, table: pa.Table | None = None):
        self.metadata = blocks.metadata
        self._blocks = blocks
        self._table = blocks.table if table is None else table
        if not self._table.num_rows:
            raise InputError(f"{blocks} holds no block.")
        self.titles, self.texts, self.urls = map(
            self._column, ("title", "text", "url")
        )
        self._title_ids = self._column("title_ids")
        self._token_ids = self._column("token_ids")
        self._token_starts = self._column("token_starts")
        self._token_limits = self._column("token_limits")
        self._sentence_starts = self._column("sentence_starts")
        lengths = self._token_ids.lengths()
        self.first_wordpieces = np.cumsum([0, *lengths], dtype="int64")
        # Longer bodies (one overlong sentence) are cut when they are encoded.
        self.lengths = np.minimum(
            lengths, self.metadata["max_block_length"]
        ).astype("int32")
        self.num_blocks = len(self)
        self.longest = int(self.lengths.max())

    @classmethod
    def joined(cls, parts, *, capacity: int | None = None) -> "BlockRecords":
        """Some blocks of each of several directories, one after the other.

        Args:
            parts: list of `(Blocks, rows)`: which blocks of each, an int
                array in rising order.
            capacity: int. Number of blocks with empty ones at the end, which
                do not count in `num_blocks`. Bodies are then padded to the
                greatest length, so that tables of other blocks have the same
                shape. Defaults to `None`: no empty blocks.
        """
        blocks = parts[0][0]
        tables = [
            record_files.some_rows(each.table, rows) for each, rows in parts
        ]
        num_blocks = sum(len(rows) for _, rows in parts)
        if capacity is not None:
            empty = [schema.Block(-1, "", "", "")] * (capacity - num_blocks)
            tables.append(record_files.rows_to_table(schema.Block, empty))
        found = cls(blocks, pa.concat_tables(tables))
        found.num_blocks = num_blocks
        if capacity is not None:
            found.longest = found.metadata["max_block_length"]
        return found

    def _column(self, name):
        return record_files.Column(self._table[name])

    def __reduce__(self):
        return type(self), (self._blocks,)

    def __len__(self):
        return self._table.num_rows

    def __getitem__(self, block_id: int) -> BlockWordpieces:
        """The wordpieces of a block, of id 0 to `len() - 1`."""
        if block_id < 0:
            raise IndexError(block_id)
        token_ids = self._token_ids[block_id]
        starts = np.searchsorted(
            self._token_starts[block_id], self._sentence_starts[block_id]
        )
        limits = np.append(starts[1:], len(token_ids))
        return BlockWordpieces(
            block_id=int(block_id),
            title_ids=self._title_ids[block_id],
            token_ids=token_ids,
            # A sentence may have no wordpiece.
            sentence_starts=starts[starts < limits],
        )

    @property
    def directory(self) -> str:
        """The path of the blocks."""
        return self._blocks.path

    @functools.cached_property
    def wordpieces(self) -> list[str]:
        """The vocabulary."""
        return read_vocabulary(self._blocks.file(array_files.VOCABULARY))

    @property
    def token_starts(self) -> np.ndarray:
        """uint16 or int32 array `(num_wordpieces,)` of all bodies: the code
        point of the text where each wordpiece begins."""
        return self._token_starts.flat()

    @property
    def token_limits(self) -> np.ndarray:
        """As `token_starts`: where each wordpiece ends."""
        return self._token_limits.flat()

    def token_ids(self) -> np.ndarray:
        """Wordpieces of all bodies, in memory: uint16 or int32 array
        `(num_blocks, longest)`, padded with 0."""
        return self._token_ids.padded(self.longest)

    def bodies(self, max_length: int) -> tuple[np.ndarray, np.ndarray]:
        """The wordpieces of all bodies as one table in memory.

        Args:
            max_length: int. Longer bodies are cut.

        Returns:
            uint16 or int32 array `(num_blocks, length)`, padded with 0, no
            wider than the longest; int32 array `(num_blocks,)`, the
            wordpieces of each.
        """
        return _padded(self._token_ids, max_length)

    def title_table(self, max_length: int) -> tuple[np.ndarray, np.ndarray]:
        """As `bodies`, of the titles."""
        return _padded(self._title_ids, max_length)

    def count_wordpieces(self) -> np.ndarray:
        """Wordpieces of each block with its title, int32 `(num_blocks,)`."""
        return self._token_ids.lengths() + self._title_ids.lengths()

    def count_sentences(self) -> np.ndarray:
        """Sentences with a wordpiece of each block, int32 `(num_blocks,)`."""
        counts = (len(self[n].sentence_starts) for n in range(len(self)))
        return np.fromiter(counts, "int32", len(self))

    def article_numbers(self) -> np.ndarray:
        """int32 `(num_blocks,)`; blocks of one article share theirs."""
        names = self._table["article_id"].combine_chunks()
        return names.dictionary_encode().indices.to_numpy()

    def span_text(self, block_id: int, start: int, limit: int) -> str:
        """The text of some wordpieces, sliced from the block's own text.

        Args:
            block_id: int.
            start: int. First wordpiece.
            limit: int. The one after the last.
        """
        (first, last), _ = self.span_offsets(block_id, start, limit)
        return self.texts[block_id][first:last]

    def span_offsets(self, block_id: int, start: int, limit: int):
        """Code points of some wordpieces in the text, made whole as
        `answer_spans` says, and of the sentence that holds them, or of the
        sentences.

        Returns:
            Two tuples `(start, limit)`.
        """
        line = self.line(block_id)
        starts, limits = answer_spans.widened(
            self.texts[block_id],
            self._token_starts[block_id],
            self._token_limits[block_id],
            self._continues[self._token_ids[block_id]],
        )
        first, last = int(starts[start]), int(limits[limit - 1])
        replace = answer_spans.replace
        before = replace(line[:first], answer_spans.BEFORE_SENTENCE, "")
        after = replace(line[last:], answer_spans.AFTER_SENTENCE, r"\1")
        begin, end = first - len(before), last + len(after)
        longer, begun, answer = answer_spans.mended(
            line[begin:first],
            line[first:last].replace("\n", " "),
            line[last:end],
            replace=replace,
        )
        # Of marks alone nothing would be left.
        if answer:
            first += len(longer) - len(begun)
            last = first + len(answer)
        return (first, last), (begin, end)

    def whole_places(self) -> tuple[np.ndarray, np.ndarray]:
        """`token_starts` and `token_limits`, of whole words and codes; see
        `answer_spans.widened`."""
        starts, limits = self.token_starts, self.token_limits
        continues = self._continues[self._token_ids.flat()]
        for row, text in enumerate(self.texts):
            part = slice(*self.first_wordpieces[row : row + 2])
            starts[part], limits[part] = answer_spans.widened(
                text, starts[part], limits[part], continues[part]
            )
        return starts, limits

    def line(self, block_id: int) -> str:
        """A text, with a line break instead of the space between two sentences,
        which hold none."""
        text = self.texts[block_id]
        # Some scripts have no space between sentences.
        starts = [
            start
            for start in self._sentence_starts[block_id]
            if not start or text[start - 1] == " "
        ] + [len(text) + 1]
        return "\n".join(
            text[first : last - 1] for first, last in itertools.pairwise(starts)
        )

    @functools.cached_property
    def is_common(self) -> np.ndarray:
        """Which wordpieces are in most blocks, and in some number of them, bool
        `(vocabulary_size,)`."""
        counts = np.zeros(len(self.wordpieces), int)
        number = min(self.num_blocks, MOST_FOR_COMMON)
        rows = np.linspace(0, self.num_blocks - 1, number).astype(int)
        for row in rows:
            counts[np.unique(self._token_ids[row])] += 1
        return (counts >= LEAST_FOR_COMMON) & (2 * counts > number)

    @functools.cached_property
    def _continues(self):
        return np.array([piece.startswith("##") for piece in self.wordpieces])


def _padded(column, max_length):
    lengths = np.minimum(column.lengths(), max_length).astype("int32")
    return column.padded(int(lengths.max(initial=0))), lengths
