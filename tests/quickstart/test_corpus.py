"""The packaged corpus matches its questions."""

import collections
import pathlib

import pytest

from realm_tf import quickstart
from realm_tf.answering.recall import gold_blocks
from realm_tf.articles import readers
from realm_tf.artifacts import question_files
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.objects import Blocks
from realm_tf.operations.chunk import Chunk
from realm_tf.text import answers
from realm_tf.text import sentences


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
