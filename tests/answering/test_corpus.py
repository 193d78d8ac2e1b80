import numpy as np
import pytest

from realm_tf.answering.corpus import Corpus
from realm_tf.answering.predict import Predictor
from realm_tf.errors import InputError
from realm_tf.models import model_directory


def test_blocks_too_long_for_the_reader_are_refused(
    monkeypatch, model_dir, blocks_dir, scann_index_dir
):
    load = model_directory.load

    def load_short(directory, **_):
        loaded = load(directory)
        # 64 of a question, 16 of the longest block and a [SEP] are 81.
        loaded.model.reader.encoder.max_sequence_length = 80
        return loaded

    monkeypatch.setattr(model_directory, "load", load_short)
    with pytest.raises(
        InputError, match="can be 81 wordpieces long, the encoder takes 80"
    ):
        Corpus.load(model_dir, blocks_dir, scann_index_dir)


def test_the_second_opening_answers_as_the_first(
    model_dir, blocks_dir, brute_force_index_dir
):
    asked = ["Where was Ada?", "What is a hill of fire?", "What is grey?"]
    answers = []
    for _ in range(2):
        corpus = Corpus.load(model_dir, blocks_dir, brute_force_index_dir)
        answers.append(Predictor(corpus, num_reader_blocks=3).predict(asked))
    assert answers[0] == answers[1]
    assert all(answer.answer for answer in answers[0])


def test_models_share_the_blocks(model_dir, blocks_dir, brute_force_index_dir):
    corpus = Corpus.load(model_dir, blocks_dir, brute_force_index_dir)
    one, two = (corpus.retrieve_and_read(num_candidates=3) for _ in range(2))
    assert one.block_table is two.block_table is corpus.block_table
    rows = np.array([2, 0])
    tables = corpus.records.token_ids(), corpus.records.lengths
    for found, table in zip(one.block_table(rows), tables, strict=True):
        assert np.asarray(found).tolist() == table[rows].tolist()
