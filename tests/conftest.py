"""The tiny world: directories as the real commands make them, in seconds.

Six articles of three sentences, a vocabulary that knows all their words, and
a random BERT of 2 layers of width 8. The directories are shared by the whole
session: tests read them and write only under `tmp_path`.
"""

import json
import os
import pathlib
import sys

import numpy as np
import pytest
import stub_hub
from xdist.scheduler import LoadFileScheduling

from realm_tf.text.tokenizer import Tokenizer

# Results are compared to five digits: encoders compute in float32 on any CPU.
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_VNNI"

_TESTS = pathlib.Path(__file__).parent
_FAST = frozenset((_TESTS / "fast.txt").read_text().split())


# Folders whose files share fixtures that take a minute to make.
_IN_ONE_PROCESS = ("export", "tagging")


class _FolderOrFile(LoadFileScheduling):
    """A file's tests run in one process, and those of some folders."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        folder = file.split("/")[1]
        return folder if folder in _IN_ONE_PROCESS else file


def pytest_xdist_make_scheduler(config, log):
    return _FolderOrFile(config, log)


# Of a test that is marked slow, instead of `timeout` in setup.cfg.
_SLOW_TIMEOUT_SECONDS = 3600


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks what `pytest -m fast` runs: files of every folder, see fast.txt."""
    for item in items:
        others = {mark.name for mark in item.iter_markers()}
        if "slow" in others:
            item.add_marker(pytest.mark.timeout(_SLOW_TIMEOUT_SECONDS))
        if _is_fast(item.path) and not others & {"slow", "data", "gpu"}:
            item.add_marker("fast")


def pytest_collection_finish():
    """Whole tracebacks, and a tenth less time in layers and operations."""
    if "keras" in sys.modules:
        sys.modules["keras"].config.disable_traceback_filtering()
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].debugging.disable_traceback_filtering()


def pytest_ignore_collect(collection_path, config):
    """Without importing the others, of which many import TensorFlow."""
    if config.option.markexpr == "fast" and collection_path.is_file():
        return not _is_fast(collection_path) or None
    return None


def _is_fast(path):
    return str(path.relative_to(_TESTS)) in _FAST


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


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """What commands keep for later runs is not that of whoever tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


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
    from realm_tf.operations.chunk import Chunk

    output = str(tmp_path_factory.mktemp("world") / "blocks")
    with pytest.MonkeyPatch.context() as patch:
        pipeline = "realm_tf.beam_pipelines.chunk_wikipedia"
        patch.setattr(f"{pipeline}.BLOCKS_PER_SHARD", 6)
        Chunk(
            input=articles_path,
            output=output,
            vocab=vocabulary_path,
            max_block_length=MAX_BLOCK_LENGTH,
        ).run()
    return output


@pytest.fixture(scope="session")
def annotated_dir(tmp_path_factory, blocks_dir):
    """What `realm annotate --tagger rules` makes of the blocks."""
    from realm_tf.operations.annotate import Annotate

    output = str(tmp_path_factory.mktemp("world") / "annotated")
    Annotate(output=output, tagger="rules", blocks=blocks_dir).run()
    return output


@pytest.fixture(scope="session")
def packed_blocks(blocks_dir):
    """The blocks by id, as training reads them."""
    from realm_tf.artifacts.objects import Blocks

    return Blocks(blocks_dir).records


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory, vocabulary_path):
    """What `realm init --from random` makes: 2 layers of width 8."""
    import tiny_models

    return tiny_models.save(
        vocabulary_path,
        str(tmp_path_factory.mktemp("world") / "model"),
        num_layers=2,
        intermediate_dim=16,
        projection_dim=8,
        seed=3,
    )


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


@pytest.fixture(scope="session")
def letters():
    """A tokenizer of some words and of all letters as pieces of words."""
    from realm_tf.text.tokenizer import Tokenizer

    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] . , ' - the of in was river city"
    words += " cafe 東 京 ##bara"
    return Tokenizer(
        words.split() + list(alphabet) + [f"##{letter}" for letter in alphabet]
    )


@pytest.fixture(scope="session")
def tokenizer(vocabulary_path):
    """The tiny world's."""
    return Tokenizer.from_file(vocabulary_path)


VOCABULARY_SIZE = 60


def randomize_weights(model, *, seed=0, scale=0.4):
    """Normal weights, biases and gains too, so that nothing is neutral."""
    random = np.random.default_rng(seed)
    for variable in model.variables:
        if "seed_generator" in variable.path:
            continue
        value = random.normal(scale=scale, size=variable.shape)
        if variable.path.endswith("gamma"):
            value = value + 1.0
        variable.assign(value.astype("float32"))


@pytest.fixture(scope="session")
def randomize():
    return randomize_weights


@pytest.fixture(scope="session")
def make_encoder():
    """Makes a `BertEncoder` with random weights; arguments override."""
    from realm_tf.models.bert_encoder import BertEncoder

    def make(*, seed=0, **arguments):
        arguments = {
            "vocabulary_size": VOCABULARY_SIZE,
            "num_layers": 2,
            "num_heads": 2,
            "hidden_dim": 8,
            "intermediate_dim": 12,
            "max_sequence_length": 32,
            **arguments,
        }
        encoder = BertEncoder(**arguments)
        randomize_weights(encoder, seed=seed)
        return encoder

    return make


@pytest.fixture(scope="session")
def token_batch():
    """Two rows of `token_ids`, `segment_ids`, `padding_mask`."""
    return {
        "token_ids": np.array(
            [[2, 11, 12, 3, 21, 22, 3], [2, 13, 3, 0, 0, 0, 0]]
        ),
        "segment_ids": np.array([[0, 0, 0, 0, 1, 1, 1], [0] * 7]),
        "padding_mask": np.array([[1] * 7, [1, 1, 1, 0, 0, 0, 0]]),
    }


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A `StubHub` that the hub's library asks, with a cache of its own."""
    with stub_hub.serving() as running:
        stub_hub.attach(running, monkeypatch, tmp_path / "hub_cache")
        yield running
