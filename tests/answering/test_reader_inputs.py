"""What a reader reads of a question and a block, on the tiny world."""

import numpy as np
import pytest

from realm_tf.answering import corpus as corpora
from realm_tf.answering.corpus import Corpus
from realm_tf.answering.predict import Predictor
from realm_tf.artifacts.question_files import pack_queries
from realm_tf.artifacts.question_files import query_wordpieces
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.models import packing

QUESTIONS = ["Where was Ada?", "What is the river of Rome?"]


@pytest.fixture
def corpus(model_dir, blocks_dir, brute_force_index_dir):
    return Corpus.load(model_dir, blocks_dir, brute_force_index_dir)


def test_the_title_comes_between_question_and_body(corpus, monkeypatch):
    monkeypatch.setattr(corpora, "MAX_TITLE_LENGTH", 2)
    corpus.read_titles()
    model, tokenizer = corpus.retrieve_and_read(), corpus.loaded.tokenizer
    queries = [query_wordpieces(each, tokenizer) for each in QUESTIONS]
    read_ids = np.array([[3, 0], [7, 3]], "int32")
    joined = model.reading.join(
        pack_queries(queries, tokenizer.pad_id), read_ids
    )
    positions = np.asarray(packing.block_positions(joined))
    joined = {name: np.asarray(rows) for name, rows in joined.items()}
    records = corpus.records
    for row, (query, block_id) in enumerate(
        zip(
            np.repeat(np.array(queries, object), 2),
            read_ids.ravel(),
            strict=True,
        )
    ):
        title = tokenizer.tokenize(records.titles[block_id]).ids[:2]
        body = tokenizer.tokenize(records.texts[block_id]).ids
        wanted = [*query, *title, tokenizer.sep_id, *body, tokenizer.sep_id]
        num_before = len(wanted) - len(body) - 1
        is_piece = joined["padding_mask"][row].astype(bool)
        assert joined["token_ids"][row][is_piece].tolist() == wanted
        assert joined["segment_ids"][row][is_piece].tolist() == (
            num_before * [0] + (len(body) + 1) * [1]
        )
        # Spans are the body's.
        assert positions[row][: len(wanted)].tolist() == [
            *(num_before * [-1]),
            *range(len(body)),
            -1,
        ]


@pytest.mark.parametrize("reads_titles", [False, True])
def test_the_end_of_a_long_block_is_not_read(corpus, reads_titles):
    if reads_titles:
        corpus.read_titles()
    tokenizer = corpus.loaded.tokenizer
    queries = [query_wordpieces(each, tokenizer) for each in QUESTIONS]
    asked = pack_queries(queries, tokenizer.pad_id)
    read_ids = np.array([[3, 0], [7, 3]], "int32")
    whole = corpus.retrieve_and_read().reading.join(asked, read_ids)
    lengths = np.asarray(whole["padding_mask"]).sum(axis=1)
    limit = int(lengths.max()) - 2
    corpus.loaded.model.reader.max_joint_length = limit
    found = corpus.retrieve_and_read().reading.join(asked, read_ids)
    assert (lengths > limit).any() and (lengths < limit).any()
    for row, length in enumerate(lengths.tolist()):
        kept = min(length, limit)
        token_ids, mask = (
            np.asarray(found[name])[row]
            for name in ("token_ids", "padding_mask")
        )
        assert mask.sum() == kept
        expected = np.asarray(whole["token_ids"])[row][: kept - 1].tolist()
        assert token_ids[:kept].tolist() == [*expected, tokenizer.sep_id]


@pytest.mark.parametrize("option", ["reads_titles", "max_joint_length"])
def test_a_model_keeps_to_it(
    corpus, tmp_path, blocks_dir, brute_force_index_dir, option
):
    without = Predictor(corpus).predict(QUESTIONS)
    if option == "reads_titles":
        corpus.read_titles()
    else:
        corpus.loaded.model.reader.max_joint_length = 12
    found = Predictor(corpus).predict(QUESTIONS)
    assert [p.score for p in found] != [p.score for p in without]
    path = str(tmp_path / "model")
    model_directory.save(corpus.loaded, path)
    again = Corpus.load(path, blocks_dir, brute_force_index_dir)
    reader = corpus.loaded.model.reader
    assert getattr(again.loaded.model.reader, option) == getattr(reader, option)
    for one, other in zip(
        found, Predictor(again).predict(QUESTIONS), strict=True
    ):
        assert one.answer == other.answer
        assert one.score == pytest.approx(other.score, abs=1e-4)


def test_what_is_too_long_with_its_title_is_refused(corpus, monkeypatch):
    monkeypatch.setattr(corpora, "MAX_TITLE_LENGTH", 600)
    with pytest.raises(InputError, match="Question, title and block can be"):
        corpus.read_titles()
