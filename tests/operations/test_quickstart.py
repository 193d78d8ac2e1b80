"""The whole chain with a tiny random model in MiniLM's place."""

import json

import backends
import pytest
from corpus_words import write_vocabulary

from realm_tf import quickstart
from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import remove
from realm_tf.checkpoints import random_weights
from realm_tf.configs.initial import Random
from realm_tf.operations import quickstart as operation
from realm_tf.operations.quickstart import Quickstart

pytestmark = backends.exports


@pytest.fixture
def tiny_minilm(tmp_path, monkeypatch):
    vocabulary = write_vocabulary(tmp_path, quickstart.CORPUS)

    def minilm(*, wheel, reader_layers, reader, trained_reader, seed):
        assert trained_reader and reader is None
        recipe = Random(
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            intermediate_dim=16,
            projection_dim=8,
        )
        return random_weights.random(recipe, vocabulary, seed=seed)

    monkeypatch.setattr("realm_tf.checkpoints.minilm.minilm", minilm)
    monkeypatch.setattr(operation, "RECIPE", "tiny")
    # It holds for the rest of the process, and other tests time things.
    monkeypatch.setattr(operation, "_make_deterministic", lambda: None)


@pytest.mark.slow
def test_the_chain_runs_and_is_resumed(tmp_path, tiny_minilm, capsys):
    output = tmp_path / "out"
    first = Quickstart(output=output).run()
    shown = capsys.readouterr().out
    for name in (
        *("blocks", "embeddings", "index", "model", "verification"),
        *("evaluation-dev", "evaluation-hybrid"),
        *("evaluation-realm", "evaluation-bm25"),
        "saved_model/1",
    ):
        assert artifact.is_complete(str(output / name)), name
    assert shown.count("p(z|x)") == operation.NUM_ASKED
    assert "https://quickstart.example/wiki/" in shown
    said = Quickstart(output=output).report(first)
    assert f"realm serve --saved-model {output}/saved_model" in said
    recall = first["metrics"]["bm25"]["answer_recall@20"]
    assert 0.5 < recall <= 1.0
    report = json.loads((output / "verification/report.json").read_text())
    assert report["ok"]

    # Interrupted after the evaluation: only what follows runs again.
    remove(str(output / "verification"))
    before = (output / "model/metadata.json").stat().st_mtime_ns
    again = Quickstart(output=output).run()
    shown = capsys.readouterr().out
    assert shown.count("done before") == 10
    assert (output / "model/metadata.json").stat().st_mtime_ns == before
    assert again["metrics"] == first["metrics"]
