"""Articles to blocks: packed sentences, passages of 100 words, or as they are."""

import bisect
import dataclasses
import itertools
import re

import numpy as np

from realm_tf.text import sentences
from realm_tf.text.tokenizer import Tokenizer

# Guu et al., 2020, section 4.3: 288 wordpieces. [CLS] and two [SEP] are 3 of
# them.
MAX_BLOCK_LENGTH = 288
NUM_SPECIAL = 3
# Karpukhin et al., 2020, section 4.1.
WORDS_PER_PASSAGE = 100

WORDPIECES = "wordpieces"
WORDS = "words"
ROWS = "rows"
UNITS = (WORDPIECES, WORDS, ROWS)

_WORD = re.compile(r"\S+")


@dataclasses.dataclass
class BlockText:
    """A block's own text; all places are code points of it.

    Args:
        text: str. The sentences, joined by one space.
        title_ids: int array. Wordpieces of the article's title.
        token_ids: int array. Wordpieces of the text.
        token_starts: int array. Where each wordpiece begins.
        token_limits: int array. Where it ends.
        sentence_starts: list of int. Where each sentence begins.
        link_starts: list of int. Where each link inside one sentence begins.
        link_limits: list of int. Where it ends.
    """

    text: str
    title_ids: np.ndarray
    token_ids: np.ndarray
    token_starts: np.ndarray
    token_limits: np.ndarray
    sentence_starts: list[int]
    link_starts: list[int]
    link_limits: list[int]


@dataclasses.dataclass(frozen=True)
class Packing:
    """How articles are cut.

    Args:
        unit: str. `"wordpieces"`: whole sentences, as many as fit.
            `"words"`: so many words, wherever sentences end, as DPR does.
            `"rows"`: an article is one block, uncut.
        max_length: int. Of a block, in `unit`: wordpieces count [CLS], title
            and both [SEP], words are those of the text alone. Of rows, what
            a model should read at most, in wordpieces.
        overlap: int. How much of a block the next one repeats: sentences, or
            words if these are the unit, nothing of rows. Defaults to `0`.
        language: str. For the sentence boundaries. Defaults to `"en"`.
        cut_sentences: bool. With the unit wordpieces, whether a sentence that
            alone exceeds the length is cut, between words and where it can be
            behind a semicolon. Defaults to `False`.
    """

    unit: str = WORDPIECES
    max_length: int = MAX_BLOCK_LENGTH
    overlap: int = 0
    language: str = "en"
    cut_sentences: bool = False


def split_articles(
    articles: list, tokenizer: Tokenizer, packing: Packing
) -> list[list[BlockText]]:
    """The blocks of some articles.

    Unit wordpieces: a sentence joins the block iff 3 + title + block +
    sentence is at most `max_length`. A sentence that exceeds it alone becomes a
    block, or is cut into several (`cut_sentences`). The last block is kept
    however short. With an overlap, a block begins with the last sentences of
    the one before, fewer where they do not fit beside the next sentence.

    Unit words: every `max_length` words, separated by white space, are a
    block, the last one may be shorter. (The released psgs_w100.tsv of DPR
    fills the last passage up with the beginning of the article, though the
    paper calls passages disjoint; here they are.)

    Unit rows: an article is one block, however long.

    Sentences without any wordpiece (only control characters) are dropped.
    The wordpieces of a block are those of its sentences, one after the other:
    BERT's tokenizer never reads across a space.

    Args:
        articles: list of `articles.pages.PlainText`. Some 100 at once are
            faster than one.
        tokenizer: `Tokenizer`.
        packing: `Packing`.

    Returns:
        list, for each article a list of `BlockText`, empty for one without
        text.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 4.3.
        Original code: google-research/language,
        language/orqa/preprocessing/wiki_preprocessor.py.
        [Karpukhin et al., 2020](https://arxiv.org/abs/2004.04906), section
        4.1.
    """
    spans = [
        sentences.split(article.text, language=packing.language)
        for article in articles
    ]
    joined = _Joined(articles, spans, tokenizer)
    changed = joined.drop_empty(spans)
    if packing.cut_sentences and packing.unit == WORDPIECES:
        if changed:
            joined = _Joined(articles, spans, tokenizer)
        changed = joined.cut_long(spans, packing.max_length - NUM_SPECIAL)
    if changed:
        joined = _Joined(articles, spans, tokenizer)
    return joined.blocks(packing, spans)


def is_overlong(block: BlockText, max_block_length: int) -> bool:
    """Whether a block is one sentence that alone exceeds the length."""
    length = NUM_SPECIAL + len(block.title_ids) + len(block.token_ids)
    return length > max_block_length


class _Joined:
    """Titles and sentences of some articles as one text with wordpieces.

    A block is a slice of it: nothing is done sentence by sentence.
    """

    def __init__(self, articles, spans, tokenizer):
        self._articles = articles
        items = []
        # Place of each article's title among the items.
        self._titles = []
        for article, sentence_spans in zip(articles, spans, strict=True):
            self._titles.append(len(items))
            items.append(article.title)
            text = article.text
            items += [text[start:limit] for start, limit in sentence_spans]
        self._text = " ".join(items)
        lengths = list(map(len, items))
        # The item after the last begins after a space that is not there.
        places = itertools.accumulate((n + 1 for n in lengths), initial=0)
        self._item_starts = list(places)
        self._ids, self._starts, self._limits = tokenizer.tokenize_text(
            self._text
        )
        # The first wordpiece of each item, and the number of all.
        self._pieces = self._find_pieces(self._item_starts)
        self._sizes = [b - a for a, b in itertools.pairwise(self._pieces)]

    def _find_pieces(self, places):
        # Of the same type, or numpy would convert all starts at every call.
        places = np.array(places, dtype=self._starts.dtype)
        return np.searchsorted(self._starts, places).tolist()

    def drop_empty(self, spans):
        """Drops sentences without a wordpiece; returns whether there are."""
        empty = (item for item, size in enumerate(self._sizes) if not size)
        if not set(empty).difference(self._titles):
            return False
        found = False
        for title, sentence_spans in zip(self._titles, spans, strict=True):
            first = title + 1
            kept = [
                span
                for item, span in enumerate(sentence_spans, start=first)
                if self._sizes[item]
            ]
            found = found or len(kept) < len(sentence_spans)
            sentence_spans[:] = kept
        return found

    def cut_long(self, spans, max_length):
        """Cuts sentences too long for a block; returns whether there are."""
        found = False
        for title, sentence_spans in zip(self._titles, spans, strict=True):
            budget = max_length - self._sizes[title]
            if budget < 1:
                # Nothing fits beside such a title.
                continue
            parts = []
            for item, span in enumerate(sentence_spans, start=title + 1):
                if self._sizes[item] > budget:
                    parts += self._parts(item, span, budget)
                else:
                    parts.append(span)
            found = found or len(parts) > len(sentence_spans)
            sentence_spans[:] = parts
        return found

    def _parts(self, item, span, budget):
        """Spans of words of a sentence that fit, as long as they can be."""
        offset = self._item_starts[item]
        words = [
            word.span()
            for word in _WORD.finditer(
                self._text, offset, self._item_starts[item + 1] - 1
            )
        ]
        # The first wordpiece of each word, and the number of all.
        pieces = self._find_pieces([start for start, _ in words])
        pieces.append(self._pieces[item + 1])
        parts = []
        first = 0
        while first < len(words):
            room = bisect.bisect_right(pieces, pieces[first] + budget) - 1
            last = max(room, first + 1)
            if last < len(words):
                ends = (
                    number
                    for number in range(last, (first + last) // 2, -1)
                    if self._text[words[number - 1][1] - 1] == ";"
                )
                last = next(ends, last)
            shift = span[0] - offset
            parts.append((words[first][0] + shift, words[last - 1][1] + shift))
            first = last
        return parts

    def blocks(self, packing, spans):
        """The blocks of each article."""
        cuts = [
            self._cuts(title, title + 1 + len(sentence_spans), packing)
            for title, sentence_spans in zip(self._titles, spans, strict=True)
        ]
        places = itertools.chain.from_iterable(itertools.chain(*cuts))
        bounds = iter(self._find_pieces(list(places)))
        pieces = zip(bounds, bounds, strict=True)
        return [
            self._article_blocks(number, sentence_spans, cuts[number], pieces)
            for number, sentence_spans in enumerate(spans)
        ]

    def _cuts(self, title, limit, packing):
        """Where the blocks of an article begin and end in the text."""
        first = title + 1
        if first == limit:
            return []
        starts = self._item_starts
        if packing.unit == WORDS:
            return self._cut_words(first, limit, packing)
        if packing.unit == ROWS:
            return [(starts[first], starts[limit] - 1)]
        sizes = self._sizes[first:limit]
        budget = packing.max_length - NUM_SPECIAL - self._sizes[title]
        return [
            (starts[first + i], starts[first + j] - 1)
            for i, j in _pack(sizes, budget, packing.overlap)
        ]

    def _article_blocks(self, number, spans, cuts, pieces):
        title = self._titles[number]
        first = title + 1
        title_ids = self._ids[self._pieces[title] : self._pieces[first]]
        links = self._links(self._articles[number], first, spans)
        sentence_starts = self._item_starts[first : first + len(spans)]
        return [
            self._block(cut, next(pieces), title_ids, sentence_starts, *links)
            for cut in cuts
        ]

    def _cut_words(self, first, limit, packing):
        start, stop = self._item_starts[first], self._item_starts[limit] - 1
        words = [w.span() for w in _WORD.finditer(self._text, start, stop)]
        step = packing.max_length - packing.overlap
        # No block that only repeats the end of the one before.
        last = max(1, len(words) - packing.overlap)
        return [
            (
                words[place][0],
                words[min(place + packing.max_length, len(words)) - 1][1],
            )
            for place in range(0, last, step)
        ]

    def _links(self, article, first, spans):
        """Where the links inside one sentence begin and end in the text."""
        starts, limits = [], []
        sentence_starts = [start for start, _ in spans]
        for start, limit in zip(
            article.link_starts, article.link_limits, strict=True
        ):
            sentence = bisect.bisect_right(sentence_starts, start) - 1
            # A link that runs on into the next sentence is dropped.
            if sentence >= 0 and limit <= spans[sentence][1]:
                shift = self._item_starts[first + sentence]
                shift -= spans[sentence][0]
                starts.append(start + shift)
                limits.append(limit + shift)
        return starts, limits

    def _block(
        self, cut, pieces, title_ids, sentence_starts, link_starts, link_limits
    ):
        start, limit = cut
        first, last = pieces
        begun = bisect.bisect_right(sentence_starts, start)
        ended = bisect.bisect_left(sentence_starts, limit)
        link = bisect.bisect_left(link_starts, start)
        link_end = bisect.bisect_right(link_limits, limit)
        return BlockText(
            text=self._text[start:limit],
            title_ids=title_ids,
            token_ids=self._ids[first:last],
            token_starts=self._starts[first:last] - start,
            token_limits=self._limits[first:last] - start,
            # Words may begin in the middle of a sentence.
            sentence_starts=[0]
            + [place - start for place in sentence_starts[begun:ended]],
            link_starts=[place - start for place in link_starts[link:link_end]],
            link_limits=[place - start for place in link_limits[link:link_end]],
        )


def _pack(sizes, budget, overlap):
    """Sentences to blocks as (first, limit), from the sizes of sentences."""
    found = []
    first = length = 0
    for number, size in enumerate(sizes):
        if number and length + size > budget:
            found.append((first, number))
            first, length = number, size
            # Never the whole block before: it had no room for this sentence.
            while number - first < overlap and length + sizes[first - 1] <= (
                budget
            ):
                first -= 1
                length += sizes[first]
        else:
            length += size
    found.append((first, len(sizes)))
    return found
