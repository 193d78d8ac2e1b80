"""Sentences whose names a tiny BERT can learn in seconds."""

import pytest

SENTENCES = """\
Ada/B-PER was/O in/O London/B-LOC ./O
Bach/B-PER wrote/O music/O in/O Leipzig/B-LOC ./O
The/O Nile/B-LOC flows/O to/O Egypt/B-LOC ./O
Ada/I-PER Bach/I-PER wrote/O ./O
Rome/B-LOC is/O in/O Italy/B-LOC ./O
The/O Etna/B-LOC is/O a/O hill/O ./O
Ada/B-PER wrote/O numbers/O in/O 1843/O ./O
"""


@pytest.fixture(scope="session")
def conll_path(tmp_path_factory):
    """Seven sentences: seven places, four persons, one of two words."""
    path = tmp_path_factory.mktemp("tagging") / "sentences.conll"
    # A word and its tag a line, a blank line after a sentence.
    lines = SENTENCES.replace("\n", "\n\n").replace(" ", "\n")
    path.write_text(lines.replace("/", " "))
    return str(path)


@pytest.fixture(scope="session")
def start_dir(tmp_path_factory, vocabulary_path):
    """As `model_dir`, with weights small enough to learn from."""
    import tiny_models

    return tiny_models.save(
        vocabulary_path,
        str(tmp_path_factory.mktemp("world") / "start"),
        factor=5.0,
        num_layers=2,
        intermediate_dim=16,
        projection_dim=8,
        seed=3,
    )


@pytest.fixture(scope="session")
def tagger_dir(tmp_path_factory, start_dir, conll_path):
    """What `realm train-tagger` makes of them."""
    from realm_tf.operations.train_tagger import TrainTagger

    output = str(tmp_path_factory.mktemp("world") / "tagger")
    TrainTagger(
        # An epoch of seven sentences would be two steps.
        train=[conll_path] * 12,
        dev=conll_path,
        test=conll_path,
        model=start_dir,
        output=output,
        recipe="tiny",
    ).run(verbose=0)
    return output
