"""Tables made without TensorFlow are those of the layers."""

import backends
import numpy as np
import pytest
import tensorflow as tf

import realm_tf as realm
from realm_tf.answering import corpus as corpora
from realm_tf.artifacts.live_corpus import LiveCorpus
from realm_tf.artifacts.objects import Model
from realm_tf.export import card
from realm_tf.export import runtime
from realm_tf.export.corpus_part import CorpusPart
from realm_tf.export.corpus_tables import LEAST_ROWS
from realm_tf.export.field_table import FieldTable
from realm_tf.operations.embed import Embed
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.text.tokenizer import Tokenizer

pytestmark = backends.exports
FIELDS = ["tags", "date"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, model_dir):
    root = tmp_path_factory.mktemp("tables")
    (root / "nile.md").write_text(
        "---\ntags: [a, b]\ndate: 2024-05-01\n---\n# Nile\n"
        "The Nile flows to Egypt. It is in Rome.\n## End\nÉtna is 🔥."
    )
    (root / "ada.txt").write_text("Ada was in London.")
    realm.CreateCorpus(
        documents=str(root),
        output=str(root / "corpus"),
        model=model_dir,
        fields=FIELDS,
    ).run()
    return LiveCorpus(root / "corpus")


def test_the_variables_are_those_of_the_layers(corpus, model_dir):
    state, model = corpus.state(), Model(model_dir)
    records = state.records(capacity=LEAST_ROWS)
    tokenizer = Tokenizer.from_file(
        model.vocabulary, lowercase=model.config["lowercase"]
    )
    titles = corpora.title_ids(records, tokenizer)
    rows, num_blocks = state.embeddings(), state.num_blocks
    left = LEAST_ROWS - num_blocks
    part = CorpusPart(
        records,
        index=BruteForce(np.pad(rows, [(0, left), (0, 0)])),
        block_table=corpora.block_table(records),
        lexical=corpora.lexical(corpora.postings(records, titles, tokenizer)),
        block_ids=np.pad(state.block_ids(), (0, left), constant_values=-1),
        fields=FieldTable(FIELDS, [*state.fields(), *[{}] * left]),
    )
    version = corpus.version(1)
    reader = tf.train.load_checkpoint(version.file(runtime.VARIABLES))
    wanted = {
        f"{runtime.CORPUS}{name}/.ATTRIBUTES/VARIABLE_VALUE": variable
        for name, variable in part.named().items()
    }
    names = reader.get_variable_to_shape_map()
    assert {n for n in names if n.startswith(runtime.CORPUS)} == set(wanted)
    for name, variable in wanted.items():
        found = reader.get_tensor(name)
        assert found.dtype == variable.numpy().dtype, name
        np.testing.assert_array_equal(found, variable.numpy(), name)
    parts = card.read(version.path)["parts"]
    sizes = part.sizes()
    assert {name: parts[name] for name in sizes} == sizes
    assert set(parts) == {*sizes, "towers and reader"}


def test_the_graph_embeds_as_the_model(corpus, model_dir, tmp_path):
    ((segment, _),) = corpus.state().segments
    embed = Embed(
        model=model_dir,
        blocks=segment.blocks,
        output=str(tmp_path / "rows"),
        precision=corpus.manifest().settings["precision"],
    )
    rows = embed.run()
    assert rows.fingerprint == segment.embeddings.fingerprint
    np.testing.assert_allclose(
        segment.embeddings.read(), rows.read(), atol=1e-5
    )
