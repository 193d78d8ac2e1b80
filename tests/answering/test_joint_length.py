"""How much of a question and a block is read, on the tiny world."""

import numpy as np
import pytest

from realm_tf.answering.corpus import Corpus
from realm_tf.answering.predict import Predictor
from realm_tf.artifacts.question_files import pack_queries
from realm_tf.artifacts.question_files import query_wordpieces
from realm_tf.models import model_directory

QUESTIONS = ["Where was Ada?", "What is the river of Rome?"]


@pytest.fixture
def corpus(model_dir, blocks_dir, brute_force_index_dir):
    return Corpus.load(model_dir, blocks_dir, brute_force_index_dir)


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


def test_a_model_keeps_to_it(
    corpus, tmp_path, blocks_dir, brute_force_index_dir
):
    corpus.loaded.model.reader.max_joint_length = 12
    found = Predictor(corpus).predict(QUESTIONS)
    path = str(tmp_path / "model")
    model_directory.save(corpus.loaded, path)
    again = Corpus.load(path, blocks_dir, brute_force_index_dir)
    for one, other in zip(
        found, Predictor(again).predict(QUESTIONS), strict=True
    ):
        assert one.answer == other.answer
        assert one.score == pytest.approx(other.score, abs=1e-4)
    again.loaded.model.reader.max_joint_length = None
    whole = Predictor(again).predict(QUESTIONS)
    assert [p.score for p in whole] != pytest.approx([p.score for p in found])
