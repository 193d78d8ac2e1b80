import random
import re

import pytest

from realm_tf.articles.pages import PlainText
from realm_tf.text import blocks
from realm_tf.text import sentences
from realm_tf.text.tokenizer import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "river", "is", "long", "##er", "a", "lake", ".", "ship", "!"]


@pytest.fixture
def tokenizer():
    return Tokenizer(SPECIAL + WORDS)


def split(tokenizer, text, max_length, **options):
    packing = blocks.Packing(max_length=max_length, **options)
    article = PlainText(text, title="river")
    return blocks.split_articles([article], tokenizer, packing)[0]


def texts(found):
    return [block.text for block in found]


# Five wordpieces each.
FIRST = "The river is long."
THIRD = "The ship is long."


@pytest.mark.parametrize(
    "text",
    [
        "Run ./configure now. Use cd .. or -o x!=y. It is .5 of 1.10.",
        "私は行く。彼は来た。",
        "He came.She left. The lake\nis long",
    ],
)
def test_a_block_is_a_slice_of_the_text(tokenizer, text):
    shown = text.replace("\n", " ")
    assert texts(split(tokenizer, text, 288)) == [shown]
    pieces = split(tokenizer, text, 6)
    assert len(pieces) > 1
    assert all(block.text in shown for block in pieces)


# What follows compares with references that go sentence by sentence, or word
# by word, and keep no places: slow, but simple enough to be right.
VOCABULARY = SPECIAL + [*"abcdes.,!中文σ0", "##a", "##b", "##c", "##d", "##e"]


def random_article(generator):
    """An article of words, odd characters, line breaks and links."""
    words = ["ab", "Cab", "dé", "e,", "a.b", "中文", "ΣΑΣ", "🙂", "\u200d", "0"]
    ends = [". ", "! ", ".\n", ".\n\n", " ", ", "]
    pieces = []
    for _ in range(generator.randint(0, 25)):
        some = generator.choices(words, k=generator.randint(1, 9))
        pieces.append(" ".join(some).capitalize() + generator.choice(ends))
    text = "".join(pieces)
    starts, limits = [], []
    place = 0
    while place + 12 < len(text):
        place += generator.randint(0, 12)
        starts.append(place)
        place += generator.randint(1, 9)
        limits.append(min(place, len(text)))
    title = " ".join(generator.choices(words[:4], k=generator.randint(0, 3)))
    return PlainText(text, starts, limits, title)


def kept_sentences(article, tokenizer):
    return [
        (start, limit)
        for start, limit in sentences.split(article.text)
        if tokenizer.tokenize(article.text[start:limit]).ids
    ]


def slow_sentence_blocks(article, tokenizer, max_length):
    """Lists of the sentences of each block."""

    def fits(group):
        text = " ".join(article.text[start:limit] for start, limit in group)
        ids = tokenizer.tokenize(article.title).ids
        return 3 + len(ids) + len(tokenizer.tokenize(text).ids) <= max_length

    groups = []
    for sentence in kept_sentences(article, tokenizer):
        if groups and fits([*groups[-1], sentence]):
            groups[-1].append(sentence)
        else:
            groups.append([sentence])
    return groups


def check_block(block, article, tokenizer):
    """Checks what every block of any kind must say of its text."""
    assert block.text in re.sub("[\n\u2028]", " ", article.text)
    whole = tokenizer.tokenize(block.text)
    assert block.title_ids.tolist() == tokenizer.tokenize(article.title).ids
    assert block.token_ids.tolist() == whole.ids
    assert block.token_starts.tolist() == whole.starts
    assert block.token_limits.tolist() == whole.limits
    assert block.sentence_starts[0] == 0
    assert block.sentence_starts == sorted(set(block.sentence_starts))


def test_long_sentences_are_cut_between_words(tokenizer):
    row = "the river is long long long; "
    text = f"{FIRST}\n{row * 9}a ship.\n{THIRD}"
    whole = split(tokenizer, text, 20)
    assert sum(blocks.is_overlong(block, 20) for block in whole) == 1
    for max_length in (20, 14, 7, 6):
        found = split(tokenizer, text, max_length, cut_sentences=True)
        # All words, in their order, none twice.
        assert " ".join(texts(found)) == " ".join(text.split())
        assert not any(blocks.is_overlong(each, max_length) for each in found)
        for block in found:
            check_block(block, PlainText(text, title="river"), tokenizer)
    # Two rows of seven wordpieces fit, and a third of another does not.
    found = split(tokenizer, text, 20, cut_sentences=True)
    assert texts(found)[1:5] == [" ".join((row * 2).split())] * 4


def test_a_title_that_is_longer_than_a_block_leaves_room_for_text(tokenizer):
    article = PlainText("the river is long. " * 9, title="river " * 99)
    packing = blocks.Packing(max_length=19, cut_sentences=True)
    (found,) = blocks.split_articles([article], tokenizer, packing)
    assert " ".join(texts(found)) == article.text.strip()
    for block in found:
        assert len(block.title_ids) == 12
        assert not blocks.is_overlong(block, 19)


def test_a_word_that_is_longer_than_a_block_stays_whole():
    text = f"a {'ab' * 40} e."
    tokenizer = Tokenizer([*VOCABULARY, "river"])
    found = split(tokenizer, text, 9, cut_sentences=True)
    assert " ".join(texts(found)) == text


def test_sentences_against_a_slow_reference():
    tokenizer = Tokenizer(VOCABULARY)
    generator = random.Random(0)
    for _ in range(60):
        # Several at once, as the pipeline does.
        articles = [random_article(generator) for _ in range(4)]
        max_length = generator.choice([5, 12, 20, 40, 288])
        packing = blocks.Packing(max_length=max_length)
        found = blocks.split_articles(articles, tokenizer, packing)
        for article, article_blocks in zip(articles, found, strict=True):
            groups = slow_sentence_blocks(article, tokenizer, max_length)
            assert len(article_blocks) == len(groups)
            for block, group in zip(article_blocks, groups, strict=True):
                check_block(block, article, tokenizer)
                parts = [article.text[start:limit] for start, limit in group]
                limits = block.sentence_starts[1:] + [len(block.text)]
                assert [
                    block.text[start:limit].rstrip()
                    for start, limit in zip(
                        block.sentence_starts, limits, strict=True
                    )
                ] == parts
                links = [
                    (place, article.text[first:last])
                    for place, (start, limit) in zip(
                        block.sentence_starts, group, strict=True
                    )
                    for first, last in zip(
                        article.link_starts, article.link_limits, strict=True
                    )
                    if start <= first and last <= limit
                ]
                assert [
                    block.text[first:last]
                    for first, last in zip(
                        block.link_starts, block.link_limits, strict=True
                    )
                ] == [text for _, text in links]


def test_words_against_a_slow_reference():
    tokenizer = Tokenizer(VOCABULARY)
    generator = random.Random(0)
    for _ in range(60):
        article = random_article(generator)
        max_length = generator.choice([5, 7, 10, 100])
        packing = blocks.Packing("words", max_length)
        (found,) = blocks.split_articles([article], tokenizer, packing)
        # (word, whether a sentence begins with it)
        words = [
            (word, number == 0)
            for start, limit in kept_sentences(article, tokenizer)
            for number, word in enumerate(article.text[start:limit].split())
        ]
        expected = [
            words[first : first + max_length]
            for first in range(0, len(words), max_length)
        ]
        assert [block.text.split() for block in found] == [
            [word for word, _ in group] for group in expected
        ]
        for block, group in zip(found, expected, strict=True):
            check_block(block, article, tokenizer)
            starts = [
                len(block.text[:place].split())
                for place in block.sentence_starts
            ]
            assert starts == [
                number
                for number, (_, begins) in enumerate(group)
                if begins or number == 0
            ]


def test_rows_are_blocks_as_they_are():
    tokenizer = Tokenizer(VOCABULARY)
    generator = random.Random(3)
    articles = [random_article(generator) for _ in range(30)]
    found = blocks.split_articles(
        articles, tokenizer, blocks.Packing("rows", max_length=5)
    )
    for article, article_blocks in zip(articles, found, strict=True):
        kept = kept_sentences(article, tokenizer)
        assert len(article_blocks) == bool(kept)
        for block in article_blocks:
            check_block(block, article, tokenizer)
            assert block.text == re.sub(
                "[\n\u2028]", " ", article.text[kept[0][0] : kept[-1][1]]
            )
