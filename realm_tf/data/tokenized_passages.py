"""Annotated passages as wordpieces, their salient spans counted in them."""

import bisect
import dataclasses
import functools
import itertools
import json
from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.progress import Progress

# What taggers call numbers: ours, and spaCy's pipelines (OntoNotes 5).
NUMBERS = frozenset(
    ["number", "CARDINAL", "MONEY", "ORDINAL", "PERCENT", "QUANTITY"]
)

# Passages tokenised at once.
_BATCH = 256
_INTS = pa.list_(pa.int32())
_SCHEMA = pa.schema(
    {
        "block_id": pa.int64(),
        "title": pa.string(),
        "text": pa.binary(),
        "token_ids": _INTS,
        # Rows of three and of five, one after the other.
        "sentences": _INTS,
        "spans": _INTS,
    }
)


@dataclasses.dataclass(frozen=True)
class TokenizedPassage:
    """A passage as wordpieces; sentences without any are left out.

    Args:
        block_id: int. The block that the passage is, or -1.
        title: str.
        text: bytes. UTF-8.
        token_ids: int array `(num_wordpieces,)`. The sentences' wordpieces,
            one sentence after the other.
        sentences: int array `(num_sentences, 3)`. First wordpiece of each
            sentence, first byte of it in `text`, byte after its last.
        spans: int array `(num_spans, 5)`. First wordpiece that lies wholly
            in the salient span, the one after the last; first byte of the
            span in `text`, byte after its last; 1 if its label is one of
            `NUMBERS`, else 0. At least one wordpiece each.
    """

    block_id: int
    title: str
    text: bytes
    token_ids: np.ndarray
    sentences: np.ndarray
    spans: np.ndarray


def tokenize_passages(
    passages: list[schema.AnnotatedPassage], tokenizer, counts: Counter
) -> list[TokenizedPassage]:
    """Passages as wordpieces, each sentence tokenised by itself.

    Args:
        passages: list of `schema.AnnotatedPassage`.
        tokenizer: `Tokenizer`.
        counts: `collections.Counter`, added to: `passages`, `sentences`,
            `sentences_without_wordpiece`, `spans`, `spans_without_wordpiece`
            (no wordpiece lies wholly in it), `spans_outside_sentences` (not
            inside one sentence). The last three are left out.

    Returns:
        list of `TokenizedPassage`.

    Raises:
        InputError: if a span begins or ends inside a character.
    """
    texts = [passage.sentences() for passage in passages]
    pieces = iter(tokenizer.tokenize_batch(list(itertools.chain(*texts))))
    return [
        _tokenized(
            passage, list(itertools.islice(pieces, len(sentences))), counts
        )
        for passage, sentences in zip(passages, texts, strict=True)
    ]


def _tokenized(passage, pieces, counts):
    content = passage.text.encode("utf-8")
    token_ids, sentences, kept = [], [], []
    for start, limit, each in zip(
        passage.sentence_byte_start,
        passage.sentence_byte_limit,
        pieces,
        strict=True,
    ):
        if each.ids:
            sentences.append((len(token_ids), start, limit))
            kept.append(each)
            token_ids += each.ids
    spans = []
    num_outside = num_without = 0
    for start, limit, text, label in zip(
        passage.span_byte_start,
        passage.span_byte_limit,
        passage.spans(),
        passage.span_label,
        strict=True,
    ):
        row = bisect.bisect_right(sentences, start, key=lambda s: s[1]) - 1
        if row < 0 or limit > sentences[row][2]:
            num_outside += 1
            continue
        first, begin, _ = sentences[row]
        before = len(content[begin:start].decode("utf-8"))
        # The wordpieces wholly inside: the first, and the one after the last.
        place = bisect.bisect_left(kept[row].starts, before)
        end = bisect.bisect_right(kept[row].limits, before + len(text))
        if place >= end:
            num_without += 1
            continue
        spans.append(
            (first + place, first + end, start, limit, label in NUMBERS)
        )
    counts["passages"] += 1
    counts["sentences"] += len(pieces)
    counts["sentences_without_wordpiece"] += len(pieces) - len(sentences)
    counts["spans"] += len(passage.span_byte_start)
    counts["spans_outside_sentences"] += num_outside
    counts["spans_without_wordpiece"] += num_without
    return TokenizedPassage(
        block_id=passage.block_id,
        title=passage.title,
        text=content,
        token_ids=np.array(token_ids, "int32"),
        sentences=np.array(sentences, "int32").reshape(-1, 3),
        spans=np.array(spans, "int32").reshape(-1, 5),
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
        self._block_ids = table["block_id"].to_numpy()
        (
            self._title,
            self._text,
            self._token_ids,
            self._sentences,
            self._spans,
        ) = (record_files.Column(table[name]) for name in _SCHEMA.names[1:])

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
        counts = Counter()
        tables = cls._tables(path, passages, tokenizer, counts)
        record_files.write(path, tables, summary={})

    @staticmethod
    def _tables(path, passages, tokenizer, counts):
        progress = Progress("tokenize", "passages", passages.num_passages)
        yield _SCHEMA.empty_table()
        records = passages.read()
        while batch := list(itertools.islice(records, _BATCH)):
            found = tokenize_passages(batch, tokenizer, counts)
            yield record_files.to_table(
                _SCHEMA,
                {
                    name: [np.ravel(getattr(each, name)) for each in found]
                    if _SCHEMA.field(name).type == _INTS
                    else [getattr(each, name) for each in found]
                    for name in _SCHEMA.names
                },
            )
            progress(counts["passages"])
        # Before the file itself appears.
        known = {"wordpieces": tokenizer.vocabulary, "counts": counts}
        write_text(f"{path}.json", json.dumps(known))

    def __reduce__(self):
        return type(self), (self.path,)

    def __len__(self):
        return len(self._block_ids)

    def __getitem__(self, number: int) -> TokenizedPassage:
        """The passage of a number, 0 to `len() - 1`."""
        return TokenizedPassage(
            block_id=int(self._block_ids[number]),
            title=self._title[number],
            text=self._text[number],
            token_ids=self._token_ids[number],
            sentences=self._sentences[number].reshape(-1, 3),
            spans=self._spans[number].reshape(-1, 5),
        )

    @functools.cached_property
    def num_spans(self) -> int:
        """Spans of all passages."""
        return int(self._spans.lengths().sum()) // 5

    def count_sentences(self) -> np.ndarray:
        """Sentences of each passage, int64 `(num_passages,)`."""
        return self._sentences.lengths() // 3

    def count_spans(self, eligible: Callable) -> np.ndarray:
        """How many spans of each passage are eligible.

        Args:
            eligible: function of spans, int array `(num_spans, 5)`, that gives
                which are, bool array `(num_spans,)`.

        Returns:
            int64 array `(num_passages,)`.
        """
        found = [np.zeros(0, "int64")]
        for values, lengths in self._spans.parts():
            numbers = np.repeat(np.arange(len(lengths)), lengths // 5)
            chosen = numbers[eligible(values.reshape(-1, 5))]
            found.append(np.bincount(chosen, minlength=len(lengths)))
        return np.concatenate(found)
