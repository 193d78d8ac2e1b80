"""The packaged corpus matches its questions."""

import collections
import pathlib
import re
import unicodedata

import mwparserfromhell
import pytest
import Stemmer
from bm25s.stopwords import STOPWORDS_EN

from realm_tf import quickstart
from realm_tf.answering.recall import gold_blocks
from realm_tf.articles import readers
from realm_tf.artifacts import question_files
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.objects import Blocks
from realm_tf.operations.chunk import Chunk
from realm_tf.text import answers
from realm_tf.text import sentences

# Question words say what is asked for, not what about.
NO_CONTENT = {
    *STOPWORDS_EN,
    *["who", "whom", "whose", "what", "which", "when", "where", "why", "how"],
    *["many", "much", "did", "do", "does"],
}


@pytest.fixture(scope="module")
def pages():
    return list(readers.read_pages(quickstart.CORPUS))


@pytest.fixture(scope="module")
def articles(pages):
    """Title to text, as `realm chunk` sees it."""
    return {
        page.title: readers.article_text(page, format=readers.MEDIAWIKI).text
        for page in pages
        if not readers.drop_reason(page, format=readers.MEDIAWIKI)
    }


@pytest.fixture(scope="module")
def texts(articles):
    return {title: _plain(text) for title, text in articles.items()}


@pytest.fixture(scope="module")
def article_sentences(articles):
    """Title to its sentences, as blocks are cut from them."""
    return {
        title: [
            _plain(text[start:limit]) for start, limit in sentences.split(text)
        ]
        for title, text in articles.items()
    }


@pytest.fixture(scope="module")
def questions():
    return {
        split: question_files.read_questions(quickstart.questions(split))
        for split in ("train", "dev", "test")
    }


@pytest.fixture(scope="module")
def all_questions(questions):
    return [question for split in questions.values() for question in split]


def _plain(text):
    return " ".join(text.split())


def _evidence(question):
    evidence = question.line["evidence"]
    return evidence["title"], _plain(evidence["sentence"])


def _overlap(question, sentence):
    """Share of the content words, by their stem, that a sentence holds."""
    asked, told = (
        {
            Stemmer.Stemmer("english").stemWord(word)
            for word in re.findall(r"\w+", text.lower())
            if word not in NO_CONTENT
        }
        for text in (question, sentence)
    )
    return len(asked & told) / max(1, len(asked))


def _link_targets(wikitext):
    """Titles of the articles that a page links to."""
    links = mwparserfromhell.parse(wikitext).filter_wikilinks()
    titles = [str(link.title).partition("#")[0].strip() for link in links]
    # A file's or category's link names its namespace.
    return [
        title[0].upper() + title[1:]
        for title in titles
        if title and ":" not in title
    ]


def test_the_readme_tells_what_the_data_hold(pages, articles, questions):
    kinds = collections.Counter(
        readers.drop_reason(page, format=readers.MEDIAWIKI) or "articles"
        for page in pages
    )
    num_words = sum(len(text.split()) for text in articles.values())
    counts = [len(split) for split in questions.values()]
    readme = pathlib.Path(quickstart.CORPUS).with_name("README.md").read_text()
    for row in (
        *kinds.items(),
        ("words of the articles", f"{num_words:,}"),
        ("questions", *counts, sum(counts)),
    ):
        assert f"| {' | '.join(map(str, row))} |\n" in readme
    assert all(300 <= len(text.split()) <= 900 for text in articles.values())
    # What is no article is in a dump as well.
    assert len(kinds) == 5


def test_every_question_names_a_sentence_that_holds_the_answer(
    article_sentences, all_questions
):
    """Within one sentence, so that one block holds the whole of it."""
    for question in all_questions:
        title, sentence = _evidence(question)
        assert any(sentence in each for each in article_sentences[title]), (
            sentence
        )
        assert answers.AnswerFinder([sentence]).contains(
            0, question.answers, question.answer_type
        ), question
        if question.answer_type == "string":
            assert question.answers[0] in sentence, question
            assert len(set(question.answers)) == len(question.answers)


def test_nothing_occurs_twice(all_questions, article_sentences):
    asked = [
        re.sub(r"\W+", " ", question.question.lower()).strip()
        for question in all_questions
    ]
    said = [
        sentence
        for found in article_sentences.values()
        for sentence in found
        if len(sentence) > 30
    ]
    for found in (asked, said):
        assert len(set(found)) == len(found)


def test_a_third_asks_in_other_words(all_questions):
    little = [
        _overlap(question.question, _evidence(question)[1]) <= 1 / 3
        for question in all_questions
    ]
    assert sum(little) >= len(little) / 3


def test_no_markup_is_left(texts):
    for title, text in texts.items():
        for residue in ("[[", "]]", "{{", "}}", "''", "<ref", "|}"):
            assert residue not in text, (title, residue)


def test_links_resolve(pages, texts):
    """A link leads to a page, or to nothing that is meant by another name."""

    def plain(title):
        decomposed = unicodedata.normalize("NFD", title.lower())
        letters = "".join(c for c in decomposed if not unicodedata.combining(c))
        return re.sub(r"\W+|s\b", "", letters)

    titles = {page.title for page in pages}
    plain_titles = {plain(title): title for title in titles}
    for page in pages:
        if page.dropped == "redirect":
            assert _link_targets(page.text)[0] in texts
        if page.title not in texts:
            continue
        for target in _link_targets(page.text):
            assert target in titles or plain(target) not in plain_titles, (
                f"{page.title} links to {target}, the page is called "
                f"{plain_titles[plain(target)]}."
            )


def test_the_split_follows_from_the_titles_and_questions(questions):
    """One article in five, by Fingerprint64 of its title, is test-only."""
    import tensorflow as tf

    def buckets(texts, num_buckets):
        return tf.strings.to_hash_bucket_fast(texts, num_buckets).numpy()

    for split, found in questions.items():
        of_titles = buckets([q.line["evidence"]["title"] for q in found], 5)
        of_questions = buckets([q.question for q in found], 10)
        for question, title_bucket, bucket in zip(
            found, of_titles, of_questions, strict=True
        ):
            expected = {0: "dev", 2: "dev", 1: "test"}.get(bucket, "train")
            if title_bucket == 0:
                expected = "test"
            assert split == expected, f"{question.question}: {expected}"


def test_every_gold_block_is_known(tmp_path, vocabulary_path, all_questions):
    output = str(tmp_path / "blocks")
    Chunk(
        input=quickstart.CORPUS,
        output=output,
        vocab=vocabulary_path,
        max_block_length=128,
    ).run()
    assert None not in gold_blocks(all_questions, BlockRecords(Blocks(output)))
