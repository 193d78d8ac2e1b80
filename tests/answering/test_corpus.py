import pytest

from realm_tf.answering.corpus import Corpus
from realm_tf.checkpoints import random_weights
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.operations.chunk import Chunk


@pytest.fixture(scope="module")
def other_model_dir(tmp_path_factory, vocabulary_path):
    """The same vocabulary, another block tower."""
    output = str(tmp_path_factory.mktemp("other") / "model")
    loaded = random_weights.random(
        vocab=vocabulary_path,
        num_layers=1,
        hidden_dim=8,
        intermediate_dim=8,
        projection_dim=8,
        seed=4,
    )
    model_directory.save(loaded, output)
    return output


def test_another_model_is_refused(other_model_dir, blocks_dir, scann_index_dir):
    with pytest.raises(InputError, match="not made from the block tower of"):
        Corpus.load(other_model_dir, blocks_dir, scann_index_dir)


def test_other_blocks_are_refused(
    tmp_path, model_dir, articles_path, vocabulary_path, scann_index_dir
):
    blocks = str(tmp_path / "blocks")
    Chunk(
        input=articles_path,
        output=blocks,
        vocab=vocabulary_path,
        max_block_length=60,
    ).run()
    with pytest.raises(InputError, match="not made from .*/blocks "):
        Corpus.load(model_dir, blocks, scann_index_dir)


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
