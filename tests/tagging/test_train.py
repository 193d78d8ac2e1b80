"""Training: a toy file is learned whole; what was done is on record."""

import itertools
import json

import numpy as np
import pytest

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.paths import Path
from realm_tf.configs import tagger as configs
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.operations.train_tagger import TrainTagger
from realm_tf.tagging import conll
from realm_tf.tagging import tagger_directory
from realm_tf.tagging import train


def test_a_toy_file_is_learned_whole(tagger_dir, conll_path):
    metrics = json.loads(Path(f"{tagger_dir}/metrics.json").read_text())
    one = {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    scores = {
        "LOC": {**one, "num_entities": 7},
        "PER": {**one, "num_entities": 4},
        "all": {**one, "num_entities": 11},
    }
    assert metrics == {"dev": scores, "test": scores}
    # What was saved is what was measured.
    tagger = tagger_directory.load(tagger_dir)
    assert tagger.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    sentences = conll.read_sentences(conll_path)
    assert train.evaluate(tagger, sentences, batch_size=1) == scores


def test_the_metadata_says_what_was_done(tagger_dir, start_dir, conll_path):
    metadata = artifact.read(tagger_dir, kind="tagger")
    history = metadata["history"]
    assert len(history) == configs.RECIPES["tiny"].num_epochs
    assert history[-1]["loss"] < 0.2 * history[0]["loss"]
    assert max(row["dev_f1"] for row in history) == 1.0
    assert metadata["f1"] == {"dev": 1.0, "test": 1.0}
    assert metadata["counts"]["sentences"] == 12 * 7
    assert metadata["counts"]["words"] == 12 * 38
    digest = fingerprints.fingerprint(Path(conll_path).read_bytes())
    assert metadata["parents"] == {
        "model": artifact.read(start_dir, kind="model")["fingerprint"],
        "train": fingerprints.fingerprint(
            *[Path(conll_path).read_bytes()] * 12
        ),
        "dev": digest,
        "test": digest,
    }


def _train(start_dir, conll_path, output, *overrides):
    made = TrainTagger(
        train=[conll_path, conll_path],
        dev=conll_path,
        model=start_dir,
        output=str(output),
        recipe="tiny",
        set=overrides,
    ).run(verbose=0)
    return made.metadata


@pytest.mark.slow
def test_the_best_epoch_is_kept(start_dir, conll_path, tmp_path, monkeypatch):
    scores = iter([0.3, 0.6, 0.6])
    kept = []

    def evaluate(tagger, sentences, *, batch_size):
        # Three epochs; what is measured after them is what is kept.
        kept.append(np.asarray(tagger.model.get_layer("labels").kernel))
        return {"all": {"f1": next(scores, 0.1)}}

    monkeypatch.setattr(train, "evaluate", evaluate)
    _train(start_dir, conll_path, tmp_path / "tagger", "num_epochs=3")
    np.testing.assert_array_equal(kept[3], kept[1])
    assert np.abs(kept[2] - kept[1]).max() > 1e-4
    found = tagger_directory.load(str(tmp_path / "tagger"))
    np.testing.assert_array_equal(
        np.asarray(found.model.get_layer("labels").kernel), kept[1]
    )


@pytest.fixture(scope="module")
def batches(start_dir, conll_path):
    sentences = conll.read_sentences(conll_path)
    recipe = configs.RECIPES["tiny"]
    tagger = tagger_directory.from_model(
        model_directory.load(start_dir), train._labels(sentences), recipe
    )
    return sentences, tagger, train.TaggedBatches(sentences, tagger, recipe)


def test_an_epoch_holds_each_word_once(batches):
    sentences, tagger, made = batches
    # First wordpieces of what is no wordpiece as a whole.
    first = {"flows": "flow", "numbers": "number"}
    orders = []
    for number in (0, 1):
        found, order = [], []
        epoch = list(
            itertools.islice(made.batches(number * len(made)), len(made))
        )
        assert len(epoch) == len(made) == 3
        for inputs, labels, weights in epoch:
            for row in range(len(labels)):
                at = np.flatnonzero(weights[row])
                words = [
                    tagger.tokenizer.vocabulary[i]
                    for i in inputs["token_ids"][row, at]
                ]
                tags = [tagger.labels[i] for i in labels[row, at]]
                found.append((words, tags))
                order.append(words)
            assert set(np.unique(weights)) == {0.0, 1.0}
        expected = [
            ([first.get(w, w.lower()) for w in s.words], list(s.tags))
            for s in sentences
        ]
        assert sorted(found) == sorted(expected)
        orders.append(order)
    assert orders[0] != orders[1]


def test_what_cannot_be_measured_is_refused(start_dir, conll_path, tmp_path):
    other, nothing = tmp_path / "other", tmp_path / "nothing"
    other.write_text("Ada B-person\n")
    nothing.write_text("Ada O\n")
    output = tmp_path / "tagger"

    def run(dev, test=None):
        TrainTagger(
            train=conll_path,
            dev=str(dev),
            test=test,
            model=start_dir,
            output=str(output),
            recipe="tiny",
        ).run()

    with pytest.raises(InputError, match="other holds .* person.* LOC, PER"):
        run(other)
    with pytest.raises(InputError, match="nothing marks no entity"):
        run(conll_path, str(nothing))
    assert not output.exists()
