"""Articles to blocks: sentences packed greedily, none ever split."""

import bisect
import dataclasses

from realm_tf.text import sentences
from realm_tf.text.tokenizer import Tokenizer

# Guu et al., 2020, section 4.3: 288 wordpieces. [CLS] and two [SEP] are 3 of
# them.
MAX_BLOCK_LENGTH = 288
NUM_SPECIAL = 3


@dataclasses.dataclass(frozen=True)
class ArticleText:
    """An article before it is cut.

    Args:
        title: str.
        text: str. Paragraphs, separated by line feeds.
        link_starts: list of int. Code point of `text` where the text of each
            wiki link begins.
        link_limits: list of int. Code point after its last one.
    """

    title: str
    text: str
    link_starts: list[int] = dataclasses.field(default_factory=list)
    link_limits: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class BlockText:
    """A block's own text; all places are code points of it.

    Args:
        text: str. The sentences, joined by one space.
        title_ids: list of int. Wordpieces of the article's title.
        token_ids: list of int. Wordpieces of the text.
        token_starts: list of int. Where each wordpiece begins.
        token_limits: list of int. Where it ends.
        sentence_starts: list of int. Where each sentence begins.
        link_starts: list of int. Where each link inside one sentence begins.
        link_limits: list of int. Where it ends.
    """

    text: str
    title_ids: list[int]
    token_ids: list[int]
    token_starts: list[int]
    token_limits: list[int]
    sentence_starts: list[int]
    link_starts: list[int]
    link_limits: list[int]


def split_article(
    article: ArticleText,
    tokenizer: Tokenizer,
    *,
    max_block_length: int = MAX_BLOCK_LENGTH,
    language: str = "en",
) -> list[BlockText]:
    """The blocks of an article.

    A sentence joins the block iff 3 + title + block + sentence, in
    wordpieces, is at most `max_block_length`. A sentence that is longer alone
    is its own block, uncut; the last block is kept however short; blocks do
    not overlap. Sentences without any wordpiece (only control characters)
    are dropped.

    The wordpieces of a block are those of its sentences, one after the other:
    BERT's tokenizer never reads across a space.

    Args:
        article: `ArticleText`.
        tokenizer: `Tokenizer`.
        max_block_length: int. Wordpieces, counting [CLS], title and both
            [SEP]. Defaults to 288.
        language: str. For the sentence boundaries. Defaults to `"en"`.

    Returns:
        list of `BlockText`, empty for an article without text.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 4.3.
        Original code: google-research/language,
        language/orqa/preprocessing/wiki_preprocessor.py.
    """
    spans = sentences.split(article.text, language=language)
    texts = [article.text[start:limit] for start, limit in spans]
    title, *pieces = tokenizer.tokenize_batch([article.title, *texts])
    found = [
        (start, limit, each)
        for (start, limit), each in zip(spans, pieces, strict=True)
        if each.ids
    ]
    budget = max_block_length - NUM_SPECIAL - len(title)
    return [_join(article, title.ids, group) for group in _pack(found, budget)]


def is_overlong(block: BlockText, max_block_length: int) -> bool:
    """Whether a block is one sentence that alone exceeds the length."""
    length = NUM_SPECIAL + len(block.title_ids) + len(block.token_ids)
    return length > max_block_length


def _pack(sentences_found, budget):
    groups = []
    length = 0
    for sentence in sentences_found:
        size = len(sentence[2])
        if groups and length + size <= budget:
            groups[-1].append(sentence)
            length += size
        else:
            groups.append([sentence])
            length = size
    return groups


def _join(article, title_ids, group):
    texts = []
    sentence_starts = []
    ids, starts, limits = [], [], []
    link_starts, link_limits = [], []
    offset = 0
    for start, limit, pieces in group:
        texts.append(article.text[start:limit])
        sentence_starts.append(offset)
        ids += pieces.ids
        starts += [place + offset for place in pieces.starts]
        limits += [place + offset for place in pieces.limits]
        shift = offset - start
        index = bisect.bisect_left(article.link_starts, start)
        while (
            index < len(article.link_starts)
            and article.link_starts[index] < limit
        ):
            # A link that runs on into the next sentence is dropped.
            if article.link_limits[index] <= limit:
                link_starts.append(article.link_starts[index] + shift)
                link_limits.append(article.link_limits[index] + shift)
            index += 1
        offset += limit - start + 1
    return BlockText(
        text=" ".join(texts),
        title_ids=title_ids,
        token_ids=ids,
        token_starts=starts,
        token_limits=limits,
        sentence_starts=sentence_starts,
        link_starts=link_starts,
        link_limits=link_limits,
    )
