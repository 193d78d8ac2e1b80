"""Annotated passages as wordpieces, their salient spans counted in them."""

import bisect
import dataclasses
import itertools
from collections import Counter

import numpy as np

from realm_tf.artifacts import schema

# What taggers call numbers: ours, and spaCy's pipelines (OntoNotes 5).
NUMBERS = frozenset(
    ["number", "CARDINAL", "MONEY", "ORDINAL", "PERCENT", "QUANTITY"]
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
