"""The SavedModel's signatures, and that it says what the Python code says."""

import dataclasses
import hashlib
import json
import os
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from realm_tf.answering.answerer import NUM_ALTERNATIVES
from realm_tf.answering.answerer import Answerer
from realm_tf.answering.corpus import Corpus
from realm_tf.answering.predict import Predictor
from realm_tf.artifacts import artifact
from realm_tf.artifacts import index_files
from realm_tf.artifacts import model_directory
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError
from realm_tf.export import saved_model
from realm_tf.operations.export import Export
from realm_tf.serving.answers import to_answers

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="a SavedModel is made with the TensorFlow backend",
)

NUM_BLOCKS = 11
# Version: blocks read.
NUM_READ = {1: 15, 2: 5}
# Name: (type, rank).
OUTPUTS = {
    "serving_default": {
        "answer": (tf.string, 1),
        "score": (tf.float32, 1),
        "confidence": (tf.float32, 1),
        "block_id": (tf.int64, 1),
        "title": (tf.string, 1),
        "text": (tf.string, 1),
        "url": (tf.string, 1),
        "start": (tf.int64, 1),
        "limit": (tf.int64, 1),
        "nbest_answer": (tf.string, 2),
        "nbest_score": (tf.float32, 2),
        "candidate_block_id": (tf.int64, 2),
        "candidate_title": (tf.string, 2),
        "candidate_text": (tf.string, 2),
        "candidate_url": (tf.string, 2),
        "candidate_answer": (tf.string, 2),
        "candidate_log_prob": (tf.float32, 2),
    },
    "retrieve": {
        "block_id": (tf.int64, 2),
        "score": (tf.float32, 2),
        "title": (tf.string, 2),
        "text": (tf.string, 2),
        "url": (tf.string, 2),
    },
    "embed_query": {"embedding": (tf.float32, 2)},
    "embed_block": {"embedding": (tf.float32, 2)},
}
INPUTS = {
    "serving_default": ["question"],
    "retrieve": ["question"],
    "embed_query": ["question"],
    "embed_block": ["text", "title"],
}


@pytest.fixture(scope="module", params=[1, 2], ids=["brute_force", "scann"])
def version(request):
    return request.param


@pytest.fixture(scope="module")
def signatures(exported, version):
    loaded = tf.saved_model.load(f"{exported}/{version}")
    # Kept: its variables go with it.
    return loaded, loaded.signatures


@pytest.fixture(scope="module")
def ask(signatures):
    def ask(questions, name="serving_default"):
        outputs = signatures[1][name](
            question=tf.constant(questions, tf.string)
        )
        return {key: value.numpy() for key, value in outputs.items()}

    return ask


@pytest.fixture(scope="module")
def corpus(model_dir, blocks_dir, brute_force_index_dir, exported):
    return Corpus.load(model_dir, blocks_dir, brute_force_index_dir)


def _decode(value):
    return [v.decode("utf-8") for v in value]


def test_the_signatures_are_those_of_the_contract(signatures):
    assert set(signatures[1]) == set(OUTPUTS)
    for name, outputs in OUTPUTS.items():
        signature = signatures[1][name]
        found = {
            key: (spec.dtype, spec.shape.rank)
            for key, spec in signature.structured_outputs.items()
        }
        assert found == outputs, name
        _, inputs = signature.structured_input_signature
        assert sorted(inputs) == INPUTS[name]
        for spec in inputs.values():
            assert spec.dtype == tf.string and spec.shape.as_list() == [None]


def test_the_shapes_of_what_comes_out(ask, version):
    for batch_size in (1, 3):
        outputs = ask(["Where was Ada?"] * batch_size)
        for name, value in outputs.items():
            width = {
                "nbest": (NUM_ALTERNATIVES,),
                "candidate": (NUM_READ[version],),
            }.get(name.split("_")[0], ())
            assert value.shape == (batch_size, *width), name
        retrieved = ask(["Where was Ada?"] * batch_size, "retrieve")
        for value in retrieved.values():
            assert value.shape == (batch_size, NUM_BLOCKS)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_answers_are_those_of_the_python_code(
    exported,
    asked,
    version,
    model_dir,
    blocks_dir,
    brute_force_index_dir,
    ivf_index_dir,
    evaluation_dir,
):
    arguments = {
        1: {"num_reader_blocks": 15},
        2: {},
        3: {"quantize": "bfloat16", "calibrated_by": evaluation_dir},
    }
    answerer = Answerer(
        model_dir,
        blocks_dir,
        ivf_index_dir if version == 3 else brute_force_index_dir,
        **arguments[version],
    )
    found = answerer.ask(asked)
    loaded = tf.saved_model.load(f"{exported}/{version}")
    outputs = loaded.signatures["serving_default"](question=tf.constant(asked))
    wanted = to_answers(
        {name: value.numpy().tolist() for name, value in outputs.items()},
        count=len(asked),
    )
    for python, graph in zip(found, wanted, strict=True):
        for name in ("score", "confidence"):
            assert getattr(python, name) == pytest.approx(
                getattr(graph, name), abs=1e-4
            )
        for name, numbers in (("nbest", "score"), ("candidates", "log_prob")):
            of_python, of_graph = (
                [dataclasses.asdict(each) for each in getattr(answer, name)]
                for answer in (python, graph)
            )
            assert [each.pop(numbers) for each in of_python] == pytest.approx(
                [each.pop(numbers) for each in of_graph], abs=1e-4
            )
            for each in (*of_python, *of_graph):
                each.pop("url", None)
            assert of_python == of_graph
        same = {"score": 0, "confidence": 0, "nbest": (), "candidates": ()}
        assert dataclasses.replace(python, **same) == dataclasses.replace(
            graph, **same
        )
    assert found[3].answer == "" and found[3].block_id == -1
    assert answerer.ask(asked[0]) == found[0]


def test_the_evidence_is_the_blocks_own(ask, corpus, asked):
    records = corpus.records
    outputs = ask(asked)
    for row, block in enumerate(outputs["block_id"]):
        if block < 0:
            continue
        text = outputs["text"][row].decode("utf-8")
        assert text == records.texts[block]
        assert outputs["title"][row].decode("utf-8") == records.titles[block]
        assert outputs["url"][row].decode("utf-8") == records.urls[block]
        answer = outputs["answer"][row].decode("utf-8")
        start, limit = outputs["start"][row], outputs["limit"][row]
        assert (
            text[start:limit]
            == answer
            == _decode(outputs["nbest_answer"][row])[0]
        )
        assert outputs["nbest_score"][row, 0] == outputs["score"][row]
        assert np.all(np.diff(outputs["nbest_score"][row]) <= 0)
        for place, candidate in enumerate(outputs["candidate_block_id"][row]):
            if candidate >= 0:
                for name in ("title", "text", "url"):
                    value = outputs[f"candidate_{name}"][row, place]
                    assert (
                        value.decode("utf-8")
                        == (getattr(records, f"{name}s")[candidate])
                    )
        log_probs = outputs["candidate_log_prob"][row]
        assert np.exp(log_probs).sum() == pytest.approx(1.0, abs=1e-5)


def test_fewer_blocks_than_are_read_are_padded(ask, version):
    outputs = ask(["Where was Ada?"])
    num_padded = max(0, NUM_READ[version] - NUM_BLOCKS)
    padded = outputs["candidate_block_id"][0] == -1
    assert padded.tolist() == [False] * (NUM_READ[version] - num_padded) + (
        [True] * num_padded
    )
    for name in ("title", "text", "answer"):
        assert set(outputs[f"candidate_{name}"][0][padded]) <= {b""}
    assert np.all(outputs["candidate_log_prob"][0][padded] == -np.inf)


@pytest.mark.parametrize("question", ["", " \t\n "])
def test_an_empty_question_has_no_answer(ask, question):
    outputs = ask([question, "fire"])
    for name, expected in (
        ("answer", b""),
        ("title", b""),
        ("text", b""),
        ("url", b""),
        ("score", 0.0),
        ("confidence", 0.0),
        ("block_id", -1),
        ("start", 0),
        ("limit", 0),
    ):
        assert outputs[name][0] == expected, name
    assert set(outputs["candidate_block_id"][0]) == {-1}
    assert set(outputs["candidate_answer"][0]) == {b""}
    assert set(outputs["nbest_answer"][0]) == {b""}
    assert outputs["block_id"][1] >= 0 and outputs["answer"][1] != b""
    assert set(ask([question], "retrieve")["block_id"][0]) == {-1}


@pytest.mark.parametrize("signature", ["serving_default", "retrieve"])
def test_no_question_is_an_empty_batch(ask, signature):
    one, none = ask(["fire"], signature), ask([], signature)
    assert {name: value.shape for name, value in none.items()} == {
        name: (0, *value.shape[1:]) for name, value in one.items()
    }


def test_alone_as_in_a_batch(ask, asked):
    batch = ask(asked)
    for row, question in enumerate(asked):
        for name, value in ask([question]).items():
            if value.dtype == object or value.dtype == np.int64:
                np.testing.assert_array_equal(
                    value[0], batch[name][row], err_msg=name
                )
            else:
                np.testing.assert_allclose(
                    value[0], batch[name][row], atol=1e-4, err_msg=name
                )


def test_no_string_is_an_error(ask):
    strings = ["fire " * 4000, "x" * 10_000, b"\xff\xfe broken", "🧑‍🚀"]
    outputs = ask(strings)
    # Cut, and otherwise the same question.
    np.testing.assert_array_equal(
        outputs["answer"][0], ask(["fire " * 62])["answer"][0]
    )


def test_retrieve_is_the_index(ask, corpus):
    question = "What flows to Egypt?"
    (wanted,) = Predictor(corpus).predict([question])
    found = ask([question], "retrieve")
    assert found["block_id"][0].tolist() == wanted.retrieved
    assert _decode(found["title"][0]) == [
        corpus.records.titles[b] for b in wanted.retrieved
    ]
    assert _decode(found["text"][0]) == [
        corpus.records.texts[b] for b in wanted.retrieved
    ]
    assert _decode(found["url"][0]) == [
        corpus.records.urls[b] for b in wanted.retrieved
    ]
    query = ask([question], "embed_query")["embedding"][0]
    table = np.asarray(corpus.index.embeddings)
    np.testing.assert_allclose(
        found["score"][0], table[wanted.retrieved] @ query, atol=1e-5
    )


def test_embed_block_gives_the_rows_of_the_index(
    signatures, corpus, brute_force_index_dir
):
    records = corpus.records
    found = signatures[1]["embed_block"](
        title=tf.constant(records.titles), text=tf.constant(records.texts)
    )
    np.testing.assert_allclose(
        found["embedding"].numpy(),
        index_files.load_embeddings(brute_force_index_dir),
        atol=1e-5,
    )


def test_no_text_is_a_constant_of_the_graph(exported, version, corpus):
    """Graphs end at 2 GB; variables do not."""
    with open(f"{exported}/{version}/saved_model.pb", "rb") as file:
        graph = file.read()
    for text in corpus.records.texts:
        assert text.encode("utf-8") not in graph


def test_every_weight_is_saved_once(exported, version, corpus):
    shapes = [
        shape
        for _, shape in tf.train.list_variables(
            f"{exported}/{version}/variables/variables"
        )
    ]
    encoder = corpus.loaded.model.query_embedder.encoder
    # Of the shared tower and of the reader.
    for rows in (encoder.vocabulary_size, encoder.max_sequence_length):
        assert shapes.count([rows, encoder.hidden_dim]) == 2


def test_each_export_is_a_new_version(
    exported,
    model_dir,
    blocks_dir,
    brute_force_index_dir,
    scann_index_dir,
    ivf_index_dir,
):
    assert sorted(os.listdir(exported)) == ["1", "2", "3"]
    for version, index in enumerate(
        (brute_force_index_dir, scann_index_dir, ivf_index_dir), 1
    ):
        metadata = artifact.read(f"{exported}/{version}", kind="saved_model")
        for name, directory in (
            ("model", model_dir),
            ("blocks", blocks_dir),
            ("index", index),
        ):
            parent = artifact.read(directory, kind=name)
            assert metadata["parents"][name] == parent["fingerprint"]
        assert metadata["num_blocks"] == NUM_BLOCKS


def test_versions_are_counted_by_number(tmp_path):
    def result(output):
        export = Export(model="m", blocks="b", index="i", output=str(output))
        return export.result.path

    assert result(tmp_path / "none") == f"{tmp_path}/none/1"
    for name in ("2", "10", "11.partial", "notes"):
        (tmp_path / name).mkdir()
    assert result(tmp_path) == f"{tmp_path}/10"


def test_what_does_not_match_is_refused(
    exported, tmp_path, model_dir, blocks_dir, scann_index_dir
):
    base = tmp_path / "base"

    def export(**arguments):
        given = {"model": model_dir, "blocks": blocks_dir, "output": str(base)}
        Export(**{**given, "index": scann_index_dir, **arguments}).run()

    aggregated = str(tmp_path / "aggregated")
    with artifact.write(aggregated, kind="evaluation") as stage:
        stage.metadata["calibration"] = {"aggregate_answers": True}
    with pytest.raises(InputError, match="without --aggregate-answers"):
        export(calibration=aggregated)
    with pytest.raises(InputError, match="--reordering int8"):
        export(quantize_embeddings="int8")
    with pytest.raises(InputError, match="is itself a finished directory"):
        export(output=f"{exported}/1")
    with pytest.raises(InputError, match="expected 'index'"):
        export(index=blocks_dir)
    with pytest.raises(InputError, match="num_reader_blocks=0"):
        export(num_reader_blocks=0)
    assert not base.exists()


def test_the_card_says_what_the_model_holds(exported, asked):
    card = json.loads(Path(f"{exported}/3/assets.extra/card.json").read_text())
    assert card["num_blocks"] == NUM_BLOCKS
    assert (card["index"], card["quantize"]) == ("ivf", "bfloat16")
    assert card["evidence_license"] == "Our own, CC0 1.0"
    # Those that it answers rightly.
    assert card["example_questions"] == [asked[i] for i in (0, 2, 4)]
    assert card["example_titles"] == ["Ada", "Bach", "Etna", "Moon", "Nile"]
    exact = json.loads(Path(f"{exported}/1/assets.extra/card.json").read_text())
    assert exact["example_questions"] == []
    for name, digest in card["files"].items():
        with open(f"{exported}/3/{name}", "rb") as file:
            assert hashlib.sha256(file.read()).hexdigest() == digest
    written = {
        os.path.relpath(os.path.join(folder, name), f"{exported}/3")
        for folder, _, names in os.walk(f"{exported}/3")
        for name in names
    }
    assert written - set(card["files"]) == {
        "COMPLETED",
        "README.md",
        "metadata.json",
        "assets.extra/card.json",
    }
    text = Path(f"{exported}/3/README.md").read_text()
    assert "License of the texts: Our own, CC0 1.0." in text
    assert "- confidence at temperature 4\n" in text
    assert f"| {'saved_model.pb'} | {card['files']['saved_model.pb']} |" in text


def test_parts_add_up_to_the_variables(exported):
    for version in (1, 2, 3):
        directory = f"{exported}/{version}"
        card = json.loads(
            Path(f"{directory}/assets.extra/card.json").read_text()
        )
        of_numbers = sum(
            tf.as_dtype(dtype).size * int(np.prod(shape))
            for name, dtype, shape in _variables(directory)
            if dtype != tf.string
        )
        parts = card["parts"]
        # Strings: texts, and parts of ScaNN's state.
        rest = sum(parts.values()) - of_numbers
        assert 0 < rest < parts["texts, titles and addresses"] + parts["index"]


def _variables(directory):
    reader = tf.train.load_checkpoint(f"{directory}/variables/variables")
    dtypes = reader.get_variable_to_dtype_map()
    for name, shape in reader.get_variable_to_shape_map().items():
        if name.endswith("VARIABLE_VALUE"):
            yield name, dtypes[name], shape


def test_a_disk_that_is_too_full_is_refused(
    tmp_path, model_dir, blocks_dir, brute_force_index_dir, monkeypatch, capsys
):
    usage = types.SimpleNamespace(free=1000)
    monkeypatch.setattr(saved_model.shutil, "disk_usage", lambda _: usage)
    base = tmp_path / "base"
    export = Export(
        model=model_dir,
        blocks=blocks_dir,
        index=brute_force_index_dir,
        output=str(base),
    )
    with pytest.raises(InputError, match="only 0 MB are free where"):
        export.run()
    assert f"warning: {saved_model.UNTRAINED_READER}" in capsys.readouterr().err
    assert not base.exists()
    # The rest of another export stays.
    (base / "7.partial").mkdir(parents=True)
    with pytest.raises(InputError, match="only 0 MB are free where"):
        export.run()
    assert [each.name for each in base.iterdir()] == ["7.partial"]


def test_a_reader_that_was_never_trained_is_named(
    exported, tmp_path, model_dir, blocks_dir, brute_force_index_dir, capsys
):
    loaded = Model(model_dir).load()
    span_scorer = loaded.model.reader.get_layer("span_scorer")
    span_scorer.layer_norm.beta.assign(span_scorer.layer_norm.beta + 0.1)
    trained = str(tmp_path / "model")
    model_directory.save(loaded, trained)
    made = Export(
        model=trained,
        blocks=blocks_dir,
        index=brute_force_index_dir,
        output=str(tmp_path / "base"),
    ).run()
    assert "warning" not in capsys.readouterr().err
    for directory, warnings in (
        (made, []),
        (f"{exported}/1", [saved_model.UNTRAINED_READER]),
    ):
        card = Path(f"{directory}/assets.extra/card.json").read_text()
        assert json.loads(card)["warnings"] == warnings
        text = Path(f"{directory}/README.md").read_text()
        assert ("**The reader was never trained:" in text) == bool(warnings)
