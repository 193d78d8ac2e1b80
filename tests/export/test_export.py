"""What `realm export` writes around the graph, and what it refuses."""

import dataclasses
import hashlib
import json
import os
import types

import backends
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from realm_tf.answering.calibration import Calibration
from realm_tf.artifacts import artifact
from realm_tf.artifacts import model_card
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError
from realm_tf.export import card
from realm_tf.export import saved_model
from realm_tf.operations.export import Export

pytestmark = backends.exports

NUM_BLOCKS = 11


def _card(directory):
    return json.loads(Path(f"{directory}/assets.extra/card.json").read_text())


def _variables(directory):
    reader = tf.train.load_checkpoint(f"{directory}/variables/variables")
    dtypes = reader.get_variable_to_dtype_map()
    for name, shape in reader.get_variable_to_shape_map().items():
        if name.endswith("VARIABLE_VALUE"):
            yield name, dtypes[name], shape


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
    exported, tmp_path, model_dir, blocks_dir, scann_index_dir, evaluation_dir
):
    base = tmp_path / "base"

    def export(**arguments):
        given = {"model": model_dir, "blocks": blocks_dir, "output": str(base)}
        Export(**{**given, "index": scann_index_dir, **arguments}).run()

    fitted = dataclasses.asdict(Calibration(0.0, 1.0))
    for model, found, message in (
        ("0" * 16, fitted, "is of another model than"),
        (
            Model(model_dir).fingerprint,
            fitted | {"aggregate_answers": False},
            "holds no calibration of this version",
        ),
    ):
        path = str(tmp_path / model)
        with artifact.write(
            path,
            kind="evaluation",
            parameters={"retriever": "realm"},
            parents={"model": model},
        ) as stage:
            stage.metadata["calibration"] = found
        with pytest.raises(InputError, match=message):
            export(calibration=path)
    # Its scores have BM25's part in them.
    with pytest.raises(InputError, match="is of --retriever hybrid, not realm"):
        export(calibration=evaluation_dir)
    with pytest.raises(InputError, match="--reordering int8"):
        export(quantize_embeddings="int8")
    with pytest.raises(InputError, match="is itself a finished directory"):
        export(output=f"{exported}/1")
    with pytest.raises(InputError, match="expected 'index'"):
        export(index=blocks_dir)
    with pytest.raises(InputError, match="num_reader_blocks=0"):
        export(num_reader_blocks=0)
    assert not any(base.glob("*"))


def test_the_card_says_what_the_model_holds(exported, asked):
    card = _card(f"{exported}/3")
    assert card["num_blocks"] == NUM_BLOCKS
    assert (card["index"], card["quantize"]) == ("ivf", "bfloat16")
    assert card["evidence_license"] == "Our own, CC0 1.0"
    # Those that it answers rightly.
    assert card["example_questions"] == [asked[i] for i in (0, 2, 4)]
    assert card["example_titles"] == ["Ada", "Bach", "Etna", "Moon", "Nile"]
    exact = _card(f"{exported}/1")
    assert exact["example_questions"] == []
    assert exact["warnings"] == [saved_model.UNTRAINED_READER]
    text = Path(f"{exported}/1/README.md").read_text()
    assert "**The reader was never trained:" in text
    for name, digest in card["files"].items():
        with open(f"{exported}/3/{name}", "rb") as file:
            assert hashlib.sha256(file.read()).hexdigest() == digest
    written = {
        os.path.relpath(os.path.join(folder, name), f"{exported}/3")
        for folder, _, names in os.walk(f"{exported}/3")
        for name in names
    }
    assert written - set(card["files"]) == {
        *("COMPLETED", "README.md", "metadata.json", "assets.extra/card.json")
    }
    text = Path(f"{exported}/3/README.md").read_text()
    assert "License of the texts: Our own, CC0 1.0." in text
    assert (
        "- confidence fitted to 100 questions, `answered` from 0.300 on\n"
    ) in text
    assert (
        "search: ivf, embeddings as bfloat16, with BM25 of wordpieces at "
        "weight 2\n"
    ) in text


def test_parts_add_up_to_the_variables(exported):
    for version in (1, 2, 3):
        directory = f"{exported}/{version}"
        card = _card(directory)
        of_numbers = sum(
            tf.as_dtype(dtype).size * int(np.prod(shape))
            for name, dtype, shape in _variables(directory)
            if dtype != tf.string
        )
        parts = card["parts"]
        # Strings: texts, and parts of ScaNN's state.
        rest = sum(parts.values()) - of_numbers
        assert 0 < rest < parts["texts, titles and addresses"] + parts["index"]


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
    assert not any(base.iterdir())


def test_the_card_names_the_languages_of_the_model(exported, tmp_path):
    facts = card.read(f"{exported}/1")
    facts["model_card"]["languages"] = ["de", "vi"]
    (tmp_path / "assets.extra").mkdir()
    card.write(str(tmp_path), facts)
    header = model_card.read_header((tmp_path / card.README).read_text())
    assert header["languages"] == ("de", "vi")


def test_examples_are_right_by_the_rules_of_their_language():
    """Articles do not count: "der" is one in German, and none in English."""
    asked = [
        Question(text, ("Nil",), line={"language": language})
        for text, language in (("Wer?", "DE-at"), ("Who?", "EN"))
    ]
    expected = [{"answer": "der Nil"}] * 2
    assert saved_model._answered_rightly(asked, expected) == ["Wer?"]


def _requests(path):
    for record in tf.data.TFRecordDataset(path):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        yield (
            request.model_spec.signature_name,
            {
                name: [s.decode() for s in tf.make_ndarray(proto)]
                for name, proto in request.inputs.items()
            },
        )


def test_the_warm_up_asks_what_users_ask(exported):
    found = list(_requests(f"{exported}/2/{card.WARM_UP_FILE}"))
    question = {"question": ["Ada"]}
    assert found == [("serving_default", question), ("retrieve", question)]
