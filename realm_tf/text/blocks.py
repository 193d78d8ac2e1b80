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
_BREAK = re.compile("[\n\r\v\f\x85\u2028\u2029]")


@dataclasses.dataclass
class BlockText:
    """A block's own text; all places are code points of it.

    Args:
        text: str. A slice of the article's text, line breaks as spaces.
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
        language: str. For the sentence boundaries. Defaults to `"en"`.
        cut_sentences: bool. With the unit wordpieces, whether a sentence that
            alone exceeds the length is cut, between words and where it can be
            behind a semicolon. Defaults to `False`.
    """

    unit: str = WORDPIECES
    max_length: int = MAX_BLOCK_LENGTH
    language: str = "en"
    cut_sentences: bool = False


def split_articles(
    articles: list, tokenizer: Tokenizer, packing: Packing
) -> list[list[BlockText]]:
    """The blocks of some articles.

    Unit wordpieces: a sentence joins the block iff 3 + title + block +
    sentence is at most `max_length`. A sentence that exceeds it alone becomes a
    block, or is cut into several (`cut_sentences`). The last block is kept
    however short.

    Unit words: every `max_length` words, separated by white space, are a
    block, the last one may be shorter. (The released psgs_w100.tsv of DPR
    fills the last passage up with the beginning of the article, though the
    paper calls passages disjoint; here they are.)

    Unit rows: an article is one block, however long.

    A block's text is a slice of the article's text, in which a line break
    becomes a space. Sentences of control characters alone are dropped at the
    ends of blocks, and blocks without any wordpiece.

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
    joined = _Joined(articles, tokenizer, packing.language)
    numbers = range(len(articles))
    cuts = [joined.cuts(number, packing) for number in numbers]
    places = itertools.chain.from_iterable(itertools.chain(*cuts))
    bounds = iter(joined.find_pieces(list(places)))
    pieces = zip(bounds, bounds, strict=True)
    return [
        joined.blocks(number, cuts[number], pieces, packing)
        for number in numbers
    ]


def is_overlong(block: BlockText, max_block_length: int) -> bool:
    """Whether a block is one sentence that alone exceeds the length."""
    length = NUM_SPECIAL + len(block.title_ids) + len(block.token_ids)
    return length > max_block_length


class _Joined:
    """Titles and texts of some articles as one text with wordpieces.

    A block is a slice of it: nothing is done sentence by sentence.
    """

    def __init__(self, articles, tokenizer, language):
        self._articles = articles
        self._spans = []
        # Where each title and each sentence begins, and the text ends.
        self._item_starts = []
        # Of each article, the place of its title among these, and where its
        # own text begins.
        self._titles, self._offsets = [], []
        parts, length = [], 0
        for article in articles:
            text = article.text
            spans = [
                (start, limit)
                for start, limit in sentences.split(text, language=language)
                if any(c.isprintable() and c != " " for c in text[start:limit])
            ]
            offset = length + len(article.title) + 1
            self._spans.append(spans)
            self._titles.append(len(self._item_starts))
            self._offsets.append(offset)
            self._item_starts.append(length)
            self._item_starts += [offset + start for start, _ in spans]
            parts += [article.title, _BREAK.sub(" ", text)]
            length = offset + len(text) + 1
        self._text = " ".join(parts)
        self._item_starts.append(length)
        self._ids, self._starts, self._limits = tokenizer.tokenize_text(
            self._text
        )
        # The first wordpiece of each item, and the number of all.
        self._pieces = self.find_pieces(self._item_starts)

    def find_pieces(self, places):
        """The first wordpiece at or behind each place."""
        # Of the same type, or numpy would convert all starts at every call.
        places = np.array(places, dtype=self._starts.dtype)
        return np.searchsorted(self._starts, places).tolist()

    def cuts(self, number, packing):
        """Where the blocks of an article begin and end in the text."""
        spans, offset = self._spans[number], self._offsets[number]
        if not spans:
            return []
        start, end = offset + spans[0][0], offset + spans[-1][1]
        if packing.unit == ROWS:
            return [(start, end)]
        if packing.unit == WORDS:
            return self._cut_words(start, end, packing)
        first = self._titles[number] + 1
        budget = packing.max_length - NUM_SPECIAL
        budget -= len(self._title_ids(number, packing))
        # Start, limit and wordpieces of sentences, or of parts of long ones.
        units = []
        for item, (start, end) in enumerate(spans, start=first):
            size = self._pieces[item + 1] - self._pieces[item]
            start, end = offset + start, offset + end
            # Nothing fits beside too long a title.
            if packing.cut_sentences and size > budget >= 1:
                units += self._parts(start, end, budget)
            else:
                units.append((start, end, size))
        packed = _pack([size for _, _, size in units], budget)
        return [(units[i][0], units[j - 1][1]) for i, j in packed]

    def _words(self, start, end):
        return [w.span() for w in _WORD.finditer(self._text, start, end)]

    def _parts(self, start, end, budget):
        """Words of a sentence that fit, as many as can be."""
        words = self._words(start, end)
        # The first wordpiece of each word, and the number of all.
        pieces = self.find_pieces([*(start for start, _ in words), end])
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
            size = pieces[last] - pieces[first]
            yield words[first][0], words[last - 1][1], size
            first = last

    def _cut_words(self, start, end, packing):
        words = self._words(start, end)
        return [
            (
                words[place][0],
                words[min(place + packing.max_length, len(words)) - 1][1],
            )
            for place in range(0, len(words), packing.max_length)
        ]

    def _title_ids(self, number, packing):
        """Wordpieces of a title, which leave a quarter of a block to the text."""
        title = self._titles[number]
        first, last = self._pieces[title : title + 2]
        if packing.cut_sentences:
            room = packing.max_length - NUM_SPECIAL
            last = min(last, first + room * 3 // 4)
        return self._ids[first:last]

    def blocks(self, number, cuts, pieces, packing):
        """The blocks of an article.

        Args:
            number: int. Of the article.
            cuts: list of (start, limit). See `cuts`.
            pieces: iterator of the first wordpiece of each cut, and the one
                behind its last.
            packing: `Packing`.
        """
        title = self._titles[number]
        title_ids = self._title_ids(number, packing)
        limit = title + 1 + len(self._spans[number])
        sentence_starts = self._item_starts[title + 1 : limit]
        link_starts, link_limits = self._links(number)
        blocks = []
        for (start, limit), (first, last) in zip(cuts, pieces, strict=False):
            begun = bisect.bisect_right(sentence_starts, start)
            ended = bisect.bisect_left(sentence_starts, limit)
            links = slice(
                bisect.bisect_left(link_starts, start),
                bisect.bisect_right(link_limits, limit),
            )
            # A block may begin in the middle of a sentence.
            starts = [start, *sentence_starts[begun:ended]]
            block = BlockText(
                text=self._text[start:limit],
                title_ids=title_ids,
                token_ids=self._ids[first:last],
                token_starts=self._starts[first:last] - start,
                token_limits=self._limits[first:last] - start,
                sentence_starts=[place - start for place in starts],
                link_starts=[place - start for place in link_starts[links]],
                link_limits=[place - start for place in link_limits[links]],
            )
            if first < last:
                blocks.append(block)
        return blocks

    def _links(self, number):
        """Where the links inside one sentence begin and end in the text."""
        article, spans = self._articles[number], self._spans[number]
        offset, starts, limits = self._offsets[number], [], []
        for start, limit in zip(
            article.link_starts, article.link_limits, strict=True
        ):
            sentence = bisect.bisect_right(spans, (start, len(article.text)))
            # A link that runs on into the next sentence is dropped.
            if sentence and limit <= spans[sentence - 1][1]:
                starts.append(offset + start)
                limits.append(offset + limit)
        return starts, limits


def _pack(sizes, budget):
    """Sentences to blocks as (first, limit), from the sizes of sentences."""
    found = []
    first = length = 0
    for number, size in enumerate(sizes):
        if number and length + size > budget:
            found.append((first, number))
            first, length = number, size
        else:
            length += size
    found.append((first, len(sizes)))
    return found
