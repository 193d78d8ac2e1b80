"""The tiny world: directories as the real commands make them, in seconds.

Six articles of three sentences, a vocabulary that knows all their words, and
a random BERT of 2 layers of width 8. The directories are shared by the whole
session: tests read them and write only under `tmp_path`.
"""

import json

import pytest
from ram_paths import add_ram_paths

add_ram_paths()

_WORDPIECES = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] . ? the a of in is was it ##s to "
    "who what where when wrote flow city river water fire music cold "
    "nile egypt brown rome italy tiber etna hill red ada london number "
    "bach leipzig organ moon grey 1669 1750 1843 1969"
)
VOCABULARY = _WORDPIECES.split()

# Longer than the next sentence allows, so that most articles are two blocks.
MAX_BLOCK_LENGTH = 20

ARTICLES = {
    "Ada": "Ada was in London. Ada wrote numbers in 1843. "
    "The city of London is grey.",
    "Bach": "Bach wrote music in Leipzig. It was organ music. "
    "Bach was cold in 1750.",
    "Etna": "Etna is a hill of fire. The fire of Etna is red. "
    "In 1669 the fire was in the city.",
    "Moon": "The Moon is grey. It is cold. The Moon was cold in 1969.",
    "Nile": "The Nile is a river. It flows to Egypt. "
    "The water of the Nile is brown.",
    "Rome": "Rome is a city in Italy. The Tiber is the river of Rome. "
    "The water of the Tiber is brown.",
}

QUESTIONS = [
    {"question": "Where was Ada?", "answer": ["London"]},
    {"question": "Who wrote numbers in 1843?", "answer": ["Ada"]},
    {"question": "Who wrote organ music?", "answer": ["Bach"]},
    {"question": "What is a hill of fire?", "answer": ["Etna"]},
    {
        "question": "When was the fire in the city?",
        "answer": ["16\\d\\d"],
        "answer_type": "regex",
    },
    {"question": "What is grey?", "answer": ["the Moon", "London"]},
    {"question": "What flows to Egypt?", "answer": ["The Nile"]},
    {"question": "What is the river of Rome?", "answers": ["The Tiber"]},
]


@pytest.fixture(scope="session")
def vocabulary_path(tmp_path_factory):
    """A vocab.txt of some fifty wordpieces."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in VOCABULARY))
    return str(path)


@pytest.fixture(scope="session")
def articles_path(tmp_path_factory):
    """The six articles as JSONL."""
    path = tmp_path_factory.mktemp("articles") / "articles.jsonl"
    rows = (
        {
            "id": str(number),
            "title": title,
            "text": text,
            "url": f"https://example.org/{title.lower()}",
        }
        for number, (title, text) in enumerate(ARTICLES.items())
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.fixture(scope="session")
def questions_path(tmp_path_factory):
    """Eight questions; one has a pattern for an answer."""
    path = tmp_path_factory.mktemp("questions") / "questions.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in QUESTIONS))
    return str(path)


@pytest.fixture(scope="session")
def blocks_dir(tmp_path_factory, articles_path, vocabulary_path):
    """What `realm chunk` makes of the articles."""
    from realm_tf.beam_pipelines import chunk_wikipedia

    output = str(tmp_path_factory.mktemp("world") / "blocks")
    chunk_wikipedia.chunk(
        articles_path,
        output,
        vocabulary_path,
        max_block_length=MAX_BLOCK_LENGTH,
        num_shards=2,
    )
    return output


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory, vocabulary_path):
    """What `realm init --from random` makes: 2 layers of width 8."""
    from realm_tf.artifacts import model_directory
    from realm_tf.checkpoints import random_weights

    output = str(tmp_path_factory.mktemp("world") / "model")
    loaded = random_weights.random(
        vocab=vocabulary_path,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        projection_dim=8,
        seed=3,
    )
    # At BERT's initial 0.02, all texts have almost the same embedding: what
    # mixed up rows would still pass.
    for variable in loaded.model.trainable_variables:
        if len(variable.shape) > 1:
            variable.assign(25.0 * variable)
    model_directory.save(loaded, output, parameters={"from": "random"})
    return output


@pytest.fixture(scope="session")
def embeddings_dir(tmp_path_factory, model_dir, blocks_dir):
    """What `realm embed` makes of blocks and model."""
    from realm_tf.operations.embed import Embed

    output = str(tmp_path_factory.mktemp("world") / "embeddings")
    Embed(
        model=model_dir, blocks=blocks_dir, output=output, rows_per_shard=5
    ).run()
    return output


def _build_index(tmp_path_factory, embeddings, kind):
    from realm_tf.operations.build_index import BuildIndex

    output = str(tmp_path_factory.mktemp("world") / kind)
    BuildIndex(embeddings=embeddings, output=output, kind=kind).run()
    return output


@pytest.fixture(scope="session")
def brute_force_index_dir(tmp_path_factory, embeddings_dir):
    """What `realm index --kind brute_force` makes of the embeddings."""
    return _build_index(tmp_path_factory, embeddings_dir, "brute_force")


@pytest.fixture(scope="session")
def ivf_index_dir(tmp_path_factory, embeddings_dir):
    """What `realm index --kind ivf` makes of the embeddings."""
    return _build_index(tmp_path_factory, embeddings_dir, "ivf")


@pytest.fixture(scope="session")
def scann_index_dir(tmp_path_factory, embeddings_dir):
    """What `realm index --kind scann` makes of the embeddings."""
    import keras

    if keras.backend.backend() != "tensorflow":
        pytest.skip("ScaNN's op needs the TensorFlow backend")
    return _build_index(tmp_path_factory, embeddings_dir, "scann")
