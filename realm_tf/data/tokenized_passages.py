"""Annotated passages as wordpieces, their salient spans counted in them."""

import bisect
import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Callable

import numpy as np

from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.progress import Progress

# The labels of numbers: ours, and spaCy's (OntoNotes 5).
NUMBERS = frozenset(
    ["number", "CARDINAL", "MONEY", "ORDINAL", "PERCENT", "QUANTITY"]
)

# Passages tokenised at once.
_BATCH = 256


@dataclasses.dataclass(frozen=True)
class TokenizedPassage:
    """A passage as wordpieces, without the sentences that have none.

    Args:
        block_id: int. The block that the passage is, or -1.
        token_ids: int array `(num_wordpieces,)`. The wordpieces of all
            sentences, one sentence after the other.
        sentence_starts: int array `(num_sentences,)`. First wordpiece of each
            sentence.
        spans: int array `(num_spans * 3,)`. For each span, the first wordpiece
            that lies wholly in it, the one after the last, and 1 if its label
            is one of `NUMBERS`, else 0. At least one wordpiece each.
    """

    block_id: int
    token_ids: list[int]
    sentence_starts: list[int]
    spans: list[int]


def tokenize_passages(
    passages: list[schema.AnnotatedPassage], tokenizer, counts: Counter
) -> list[TokenizedPassage]:
    """Tokenises each sentence of some passages by itself.

    Args:
        passages: list of `schema.AnnotatedPassage`.
        tokenizer: `Tokenizer`.
        counts: `collections.Counter`, which is added to: `passages`,
            `sentences`, `spans`, and those that are left out,
            `sentences_without_wordpiece` and `spans_without_wordpiece` (no
            wordpiece lies wholly in the span).

    Returns:
        list of `TokenizedPassage`.
    """
    texts = [passage.sentences() for passage in passages]
    pieces = iter(tokenizer.tokenize_batch(list(itertools.chain(*texts))))
    return [
        _tokenized(
            passage, list(itertools.islice(pieces, len(sentences))), counts
        )
        for passage, sentences in zip(passages, texts, strict=True)
    ]


def _tokenized(passage, sentences, counts):
    content = passage.text.encode("utf-8")
    # The first wordpiece of each sentence, and the one after the last.
    firsts = [0, *itertools.accumulate(len(each.ids) for each in sentences)]
    spans = []
    for start, text, label in zip(
        passage.span_byte_start,
        passage.spans(),
        passage.span_label,
        strict=True,
    ):
        row = bisect.bisect_right(passage.sentence_byte_start, start) - 1
        begin = passage.sentence_byte_start[row]
        before = len(content[begin:start].decode("utf-8"))
        place = bisect.bisect_left(sentences[row].starts, before)
        end = bisect.bisect_right(sentences[row].limits, before + len(text))
        if place < end:
            first = firsts[row]
            spans.append([first + place, first + end, label in NUMBERS])
    starts = [a for a, b in itertools.pairwise(firsts) if a < b]
    counts["passages"] += 1
    counts["sentences"] += len(sentences)
    counts["sentences_without_wordpiece"] += len(sentences) - len(starts)
    counts["spans"] += len(passage.span_byte_start)
    counts["spans_without_wordpiece"] += len(passage.span_byte_start) - len(
        spans
    )
    return TokenizedPassage(
        block_id=passage.block_id,
        token_ids=np.array(
            [i for each in sentences for i in each.ids], "int32"
        ),
        sentence_starts=np.array(starts, "int32"),
        spans=np.array(spans, "int32").ravel(),
    )


class TokenizedPassages:
    """Passages that training reads, by number, mapped into memory.

    They are in the order of the annotated records. Needs neither TensorFlow
    nor a tokenizer.

    Args:
        path: str. A file of `write`.

    Attributes:
        wordpieces: list of str. The vocabulary.
        counts: dict. As `tokenize_passages` counts.
    """

    def __init__(self, path: str):
        self.path = path
        table = record_files.open_file(path).read_all()
        known = json.loads(Path(f"{path}.json").read_text())
        self.wordpieces, self.counts = known["wordpieces"], known["counts"]
        self._columns = {
            name: record_files.Column(table[name])
            for name in table.column_names
        }

    @classmethod
    def write(cls, path: str, passages, tokenizer) -> None:
        """Tokenises passages; the file appears whole or not at all.

        Args:
            path: str. The file to make, on a local disk.
            passages: `Passages`.
            tokenizer: `Tokenizer`.

        Raises:
            InputError: if the passages are not complete or damaged.
        """
        tables = cls._tables(path, passages, tokenizer)
        record_files.write(path, tables, summary={})

    @staticmethod
    def _tables(path, passages, tokenizer):
        counts = Counter()
        progress = Progress("tokenize", "passages", passages.num_passages)
        yield record_files.rows_to_table(TokenizedPassage, [])
        records = passages.read()
        while batch := list(itertools.islice(records, _BATCH)):
            found = tokenize_passages(batch, tokenizer, counts)
            yield record_files.rows_to_table(TokenizedPassage, found)
            progress(counts["passages"])
        # Before the file itself appears.
        known = {"wordpieces": tokenizer.vocabulary, "counts": counts}
        write_text(f"{path}.json", json.dumps(known))

    def __reduce__(self):
        return type(self), (self.path,)

    def __len__(self):
        return len(self._columns["block_id"])

    def __getitem__(self, number: int) -> TokenizedPassage:
        """The passage of a number, 0 to `len() - 1`."""
        return TokenizedPassage(
            **{name: each[number] for name, each in self._columns.items()}
        )

    def count_sentences(self) -> np.ndarray:
        """Sentences of each passage, int32 `(num_passages,)`."""
        return self._columns["sentence_starts"].lengths()

    def count_spans(self, eligible: Callable) -> np.ndarray:
        """Counts the eligible spans of each passage.

        Args:
            eligible: function of spans, int array `(num_spans, 3)`, that gives
                which are, bool array `(num_spans,)`.

        Returns:
            int64 array `(num_passages,)`.
        """
        found = [np.zeros(0, "int64")]
        for values, lengths in self._columns["spans"].parts():
            numbers = np.repeat(np.arange(len(lengths)), lengths // 3)
            chosen = numbers[eligible(values.reshape(-1, 3))]
            found.append(np.bincount(chosen, minlength=len(lengths)))
        return np.concatenate(found)
