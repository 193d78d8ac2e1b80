"""`realm chunk` over real pages.

REALM_DATA_DIR names a directory with wiki.xml.bz2, a MediaWiki export of 206
pages of the English Wikipedia, and corpus.jsonl.gz, rows with "text".
"""

import gzip
import itertools
import json
import os
import pathlib
import re

import pytest
import tokenizers

from realm_tf.operations.chunk import Chunk

pytestmark = pytest.mark.data

RESIDUE = ("[[", "{{", "}}", "|", "File:", "<ref", "==")


@pytest.fixture(scope="module")
def data_dir():
    directory = os.environ.get("REALM_DATA_DIR")
    if not directory:
        pytest.skip("REALM_DATA_DIR is not set")
    return pathlib.Path(directory)


@pytest.fixture(scope="module")
def dump(data_dir):
    return str(data_dir / "wiki.xml.bz2")


@pytest.fixture(scope="module")
def vocab(data_dir, tmp_path_factory):
    """Wordpieces of the corpus, about as many as BERT's."""
    trained = tokenizers.BertWordPieceTokenizer(lowercase=True)
    with gzip.open(data_dir / "corpus.jsonl.gz", "rt") as file:
        trained.train_from_iterator(
            (json.loads(row)["text"] for row in itertools.islice(file, 20_000)),
            vocab_size=30_000,
            show_progress=False,
        )
    folder = tmp_path_factory.mktemp("vocabulary")
    trained.save_model(str(folder))
    return str(folder / "vocab.txt")


@pytest.fixture(scope="module")
def found(dump, vocab, tmp_path_factory):
    output = str(tmp_path_factory.mktemp("real") / "blocks")
    return list(Chunk(input=dump, output=output, vocab=vocab).run().read())


def test_no_markup_is_left(found):
    texts = [block.text for block in found]
    num_words = sum(len(text.split()) for text in texts)
    residue = {mark: sum(t.count(mark) for t in texts) for mark in RESIDUE}

    assert num_words > 100_000
    assert 1000 * sum(residue.values()) / num_words < 0.5, residue


def test_links_are_in_the_text(found):
    links = [
        block.text[start:limit]
        for block in found
        for start, limit in zip(
            block.link_starts, block.link_limits, strict=True
        )
    ]

    assert len(links) > 5000
    odd = [text for text in links if re.search(r"^\W*$|^\s|\s$", text)]
    assert len(odd) < len(links) / 100
