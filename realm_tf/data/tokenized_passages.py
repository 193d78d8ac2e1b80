"""Annotated passages as wordpieces, their salient spans counted in them."""

import bisect
import dataclasses
from collections import Counter

import numpy as np

from realm_tf.artifacts import schema
from realm_tf.errors import InputError


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
        spans: int array `(num_spans, 4)`. First wordpiece that lies wholly
            in the salient span, the one after the last; first byte of the
            span in `text`, byte after its last. At least one wordpiece each.
    """

    block_id: int
    title: str
    text: bytes
    token_ids: np.ndarray
    sentences: np.ndarray
    spans: np.ndarray


def tokenize_passages(
    passages: list[schema.AnnotatedPassage],
    tokenizer,
    *,
    counts: Counter | None = None,
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
        InputError: if sentences are not in order, or a byte offset is outside
            the text or inside a character.
    """
    counts = Counter() if counts is None else counts
    texts = [_sentence_texts(passage) for passage in passages]
    pieces = tokenizer.tokenize_batch(
        [sentence for sentences in texts for sentence in sentences]
    )
    found = []
    first = 0
    for passage, sentences in zip(passages, texts, strict=True):
        limit = first + len(sentences)
        found.append(_tokenized(passage, pieces[first:limit], counts))
        first = limit
    return found


def _sentence_texts(passage):
    content = passage.text.encode("utf-8")
    previous = 0
    texts = []
    for start, limit in zip(
        passage.sentence_byte_start, passage.sentence_byte_limit, strict=True
    ):
        if start < previous:
            raise InputError(
                f"{_name(passage)}: the sentence at byte {start} begins "
                "before the last one ends; annotate the corpus again."
            )
        texts.append(_slice(passage, content, start, limit))
        previous = limit
    return texts


def _slice(passage, content, start, limit):
    try:
        if not 0 <= start <= limit <= len(content):
            raise ValueError(f"the text has {len(content)} bytes")
        return content[start:limit].decode("utf-8")
    except ValueError as error:
        raise InputError(
            f"{_name(passage)}: bytes {start} to {limit} are no text "
            f"({error}); expected offsets that count UTF-8 bytes and lie "
            "between characters. Annotate the corpus again."
        ) from error


def _name(passage):
    return f"Annotated passage {passage.title!r} (block {passage.block_id})"


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
    for start, limit in zip(
        passage.span_byte_start, passage.span_byte_limit, strict=True
    ):
        _slice(passage, content, start, limit)
        row = bisect.bisect_right(sentences, start, key=lambda s: s[1]) - 1
        if row < 0 or limit > sentences[row][2]:
            num_outside += 1
            continue
        first, begin, _ = sentences[row]
        places = _wholly_inside(
            kept[row],
            len(content[begin:start].decode("utf-8")),
            len(content[begin:limit].decode("utf-8")),
        )
        if places[0] >= places[1]:
            num_without += 1
            continue
        spans.append((first + places[0], first + places[1], start, limit))
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
        spans=np.array(spans, "int32").reshape(-1, 4),
    )


def _wholly_inside(pieces, start, limit):
    """First wordpiece wholly in these code points and the one after them."""
    return (
        bisect.bisect_left(pieces.starts, start),
        bisect.bisect_right(pieces.limits, limit),
    )
