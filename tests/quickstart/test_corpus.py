"""The embedded corpus and its questions belong together."""

import re

import pytest

from realm_tf import quickstart
from realm_tf.data import articles
from realm_tf.data import open_qa
from realm_tf.text import answers
from realm_tf.text import sentences


@pytest.fixture(scope="module")
def texts():
    found = {}
    for page in articles.read_pages(quickstart.CORPUS):
        if not articles.drop_reason(page, format="mediawiki"):
            text = articles.article_text(page, format="mediawiki").text
            if text:
                found[page.title] = text
    return found


@pytest.fixture(scope="module")
def questions():
    return {
        split: open_qa.read_questions(quickstart.questions(split))
        for split in ("train", "dev", "test")
    }


def test_there_is_enough_of_both(texts, questions):
    assert len(texts) >= 40
    assert sum(map(len, questions.values())) >= 200


def test_every_sentence_stands_in_its_article_and_holds_the_answer(
    texts, questions
):
    for split in questions.values():
        for question in split:
            sentence = " ".join(question.line["sentence"].split())
            text = " ".join(texts[question.line["title"]].split())
            assert sentence in text, sentence
            assert question.answers[0] in sentence, sentence
            assert answers.contains_answer(sentence, question.answers)


def test_no_question_stands_twice(questions):
    asked = [
        re.sub(r"\W+", " ", question.question.lower()).strip()
        for split in questions.values()
        for question in split
    ]
    assert len(set(asked)) == len(asked)


def test_no_sentence_stands_twice(texts):
    found = [
        text[start:limit]
        for text in texts.values()
        for start, limit in sentences.split(text)
        if limit - start > 30
    ]
    assert len(set(found)) == len(found)


def test_no_markup_is_left(texts):
    for title, text in texts.items():
        for residue in ("[[", "]]", "{{", "}}", "''", "<ref", "|}"):
            assert residue not in text, (title, residue)


def test_articles_of_the_test_split_teach_nothing(questions):
    """One article in five, by Fingerprint64 of its title, is test-only."""
    import tensorflow as tf

    def bucket(text, num_buckets):
        return int(tf.strings.to_hash_bucket_fast(text, num_buckets))

    for split, split_questions in questions.items():
        for question in split_questions:
            expected = "train"
            if bucket(question.line["title"], 5) == 0:
                expected = "test"
            else:
                number = bucket(question.question, 10)
                expected = {0: "dev", 1: "test", 2: "test", 3: "test"}.get(
                    number, "train"
                )
            assert split == expected
