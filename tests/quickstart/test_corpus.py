"""The embedded corpus, its questions and facts belong together."""

import pathlib
import re
import unicodedata

import pytest

from realm_tf import quickstart
from realm_tf.articles import readers
from realm_tf.artifacts import question_files
from realm_tf.errors import InputError
from realm_tf.operations.chunk import Chunk
from realm_tf.quickstart import statistics
from realm_tf.text import answers
from realm_tf.text import sentences


@pytest.fixture(scope="module")
def pages():
    return list(readers.read_pages(quickstart.CORPUS))


@pytest.fixture(scope="module")
def texts():
    found = statistics.read_articles()
    return {title: " ".join(text.split()) for title, text in found.items()}


@pytest.fixture(scope="module")
def article_sentences():
    """Title to its sentences, as blocks are cut from them."""
    return {
        title: {
            " ".join(text[start:limit].split())
            for start, limit in sentences.split(text)
        }
        for title, text in statistics.read_articles().items()
    }


@pytest.fixture(scope="module")
def questions():
    return {
        split: question_files.read_questions(quickstart.questions(split))
        for split in quickstart.SPLITS
    }


@pytest.fixture(scope="module")
def all_questions(questions):
    return [question for split in questions.values() for question in split]


def _evidence(question):
    evidence = question.line["evidence"]
    return evidence["title"], " ".join(evidence["sentence"].split())


def _key(text):
    return re.sub(r"\W+", " ", text.lower()).strip()


def test_there_is_enough_of_all(texts, all_questions):
    assert len(texts) >= 200
    assert all(300 <= len(text.split()) <= 900 for text in texts.values())
    assert len(all_questions) >= 900
    assert len(statistics.read_shared_facts()) >= 300


def test_the_export_holds_what_is_no_article(pages):
    reasons = {readers.drop_reason(page, format="mediawiki") for page in pages}
    assert reasons == {
        "",
        "redirect",
        "namespace",
        "disambiguation",
        "list_title",
    }


def test_the_data_are_small():
    folder = pathlib.Path(quickstart.CORPUS).parent
    data = [path for path in folder.iterdir() if path.suffix != ".py"]
    assert sum(path.stat().st_size for path in data if path.is_file()) < 3e6


def test_every_question_names_a_sentence_that_holds_the_answer(
    texts, all_questions
):
    for question in all_questions:
        title, sentence = _evidence(question)
        assert sentence in texts[title], sentence
        assert answers.contains_answer(
            sentence, question.answers, question.answer_type
        ), question
        if question.answer_type == "string":
            assert question.answers[0] in sentence, question
            assert len(set(question.answers)) == len(question.answers)


def test_blocks_are_cut_between_the_sentences_that_answer(
    article_sentences, all_questions
):
    """So that one block holds the whole of it."""
    missing = [
        _evidence(question)
        for question in all_questions
        if not any(
            _evidence(question)[1] in sentence
            for sentence in article_sentences[_evidence(question)[0]]
        )
    ]
    assert not missing


def test_no_question_occurs_twice(all_questions):
    asked = [_key(question.question) for question in all_questions]
    assert len(set(asked)) == len(asked)


def test_a_third_asks_in_other_words(all_questions):
    little = [
        statistics.overlap(question.question, _evidence(question)[1])
        <= statistics.LITTLE_OVERLAP
        for question in all_questions
    ]
    assert sum(little) >= len(little) / 3


def test_no_sentence_occurs_twice(texts):
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


def test_links_resolve(pages, texts):
    """A link leads to a page, or to nothing that is meant by another name."""

    def plain(title):
        decomposed = unicodedata.normalize("NFD", title.lower())
        letters = "".join(c for c in decomposed if not unicodedata.combining(c))
        return re.sub(r"\W+|s\b", "", letters)

    titles = {page.title for page in pages}
    plain_titles = {plain(title): title for title in titles}
    num_links = 0
    for page in pages:
        if page.title not in texts:
            continue
        for target in statistics.link_targets(page.text):
            num_links += target in titles
            assert target in titles or plain(target) not in plain_titles, (
                f"{page.title} links to {target}, the page is called "
                f"{plain_titles[plain(target)]}."
            )
    assert num_links >= 5 * len(texts)
    redirects = [page for page in pages if page.dropped == "redirect"]
    assert redirects
    for page in redirects:
        assert statistics.link_targets(page.text)[0] in texts


def test_shared_facts_occur_in_two_articles_in_different_words(texts):
    seen = set()
    for fact in statistics.read_shared_facts():
        one, other = fact["evidence"]
        assert one["title"] != other["title"], fact
        for evidence in (one, other):
            sentence = " ".join(evidence["sentence"].split())
            assert sentence in texts[evidence["title"]], sentence
            assert evidence["answer"] in evidence["sentence"], fact
        # Different words: most of the content words of each are its own.
        for a, b in ((one, other), (other, one)):
            shared = statistics.overlap(a["sentence"], b["sentence"])
            assert shared <= 0.75, fact
        key = (one["sentence"], other["sentence"])
        assert key not in seen and key[::-1] not in seen, fact
        seen.add(key)


def test_the_split_follows_from_the_titles_and_questions(questions):
    """One article in five, by Fingerprint64 of its title, is test-only."""
    import tensorflow as tf

    def bucket(text, num_buckets):
        return int(tf.strings.to_hash_bucket_fast(text, num_buckets))

    for split, split_questions in questions.items():
        for question in split_questions:
            number = bucket(question.question, 10)
            expected = {0: "dev", 2: "dev", 1: "test"}.get(number, "train")
            if bucket(question.line["evidence"]["title"], 5) == 0:
                expected = "test"
            assert split == expected, f"{question.question}: {expected}"


def test_the_readme_tells_what_the_data_hold():
    readme = pathlib.Path(quickstart.CORPUS).with_name("README.md").read_text()
    for table in (
        statistics.corpus_table(),
        statistics.questions_table(),
        statistics.labels_table(),
    ):
        assert table in readme, f"README.md should hold\n{table}"


@pytest.fixture(scope="module")
def blocks(tmp_path_factory, vocabulary_path):

    output = str(tmp_path_factory.mktemp("corpus") / "blocks")
    Chunk(
        input=quickstart.CORPUS,
        output=output,
        vocab=vocabulary_path,
        max_block_length=128,
    ).run()
    return output


def test_every_gold_block_is_known_and_bm25_leaves_room(blocks, all_questions):
    from realm_tf.answering.recall import gold_blocks
    from realm_tf.artifacts.block_records import BlockRecords

    assert None not in gold_blocks(all_questions, BlockRecords(blocks))
    table = statistics.blocks_table(blocks)
    recall = float(re.search(r"answer recall@1 \| (\S+)", table).group(1))
    assert 0.3 < recall < 0.85


def test_other_blocks_are_refused(blocks_dir):
    with pytest.raises(InputError, match="other articles than"):
        statistics.blocks_table(blocks_dir)
