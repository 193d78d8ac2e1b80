import hashlib
import importlib.util
import json
import shutil

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from realm_tf.errors import InputError
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.servable import SavedModelServable


def questions(*texts):
    return {"question": np.array([t.encode() for t in texts], dtype=object)}


@pytest.fixture(scope="module")
def servable(saved_model):
    with SavedModelServable(saved_model) as servable:
        yield servable


@pytest.mark.parametrize(
    "inputs, arguments, code, message",
    [
        (
            questions("x"),
            {"signature": "__saved_model_init_op"},
            "FAILED_PRECONDITION",
            r'"__saved_model_init_op" not found. .* {serving_default, slow}',
        ),
        (
            questions("x"),
            {"signature": "serving_default_filtered"},
            "INVALID_ARGUMENT",
            "Nothing can be filtered here: the corpus has no fields",
        ),
        (
            {"steps": np.array(-1, np.int32)},
            {"signature": "slow"},
            "INVALID_ARGUMENT",
            "steps are negative",
        ),
    ],
)
def test_requests_that_do_not_fit(servable, inputs, arguments, code, message):
    with pytest.raises(RequestError, match=message) as caught:
        servable.run(inputs, **arguments)
    assert caught.value.code == grpc.StatusCode[code]


def test_an_output_that_is_not_there_is_refused(servable):
    complaint = "alias not found in signature: nope"
    with pytest.raises(RequestError, match=complaint) as caught:
        servable.check(questions("x"), output_filter=["nope"])
    assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def copied(saved_model, tmp_path):
    """A copy of version 2 to add files to."""
    shutil.copytree(f"{saved_model}/2", tmp_path / "2")
    (tmp_path / "2" / "assets.extra").mkdir()
    return tmp_path / "2"


def write_warm_up(directory, logs):
    path = str(directory / "assets.extra" / "tf_serving_warmup_requests")
    with tf.io.TFRecordWriter(path) as writer:
        for log in logs:
            writer.write(log.SerializeToString())


def predict_log(*texts, signature=""):
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = signature
    request.inputs["question"].CopyFrom(
        tf.make_tensor_proto(list(texts), tf.string)
    )
    return log


def test_warm_up_replays_the_models_own_requests(copied, monkeypatch):
    runs = []
    with SavedModelServable(str(copied)) as servable:
        run = servable.run

        def record(inputs, *, signature):
            runs.append((signature, inputs["question"].tolist()))
            return run(inputs, signature=signature)

        monkeypatch.setattr(servable, "run", record)
        # Without any it has nothing to do.
        servable.warm_up()
        assert runs == []
        logs = [
            predict_log("a", "b"),
            predict_log("c", signature="serving_default"),
        ]
        write_warm_up(copied, logs)
        servable.warm_up()
        assert runs == [("", [b"a", b"b"]), ("serving_default", [b"c"])]
        write_warm_up(copied, [predict_log("a", signature="nope")])
        with pytest.raises(InputError, match='warm-up .* "nope" not found'):
            servable.warm_up()
        path = copied / "assets.extra" / "tf_serving_warmup_requests"
        path.write_bytes(b"no TFRecord at all")
        with pytest.raises(InputError, match="fails on the warm-up"):
            servable.warm_up()


def test_an_exact_search_goes_through_the_filter(tmp_path):
    """So that one graph is optimised, and not two; a filter of nothing."""
    text = tf.TensorSpec([None], tf.string)
    module = tf.Module()
    module.asked = tf.function(
        lambda question: {"answer": question + " without"}
    ).get_concrete_function(question=text)
    module.filtered = tf.function(
        lambda question, filter: {"answer": question + filter}
    ).get_concrete_function(question=text, filter=text)
    tf.saved_model.save(
        module,
        str(tmp_path / "1"),
        signatures={
            "serving_default": module.asked,
            "serving_default_filtered": module.filtered,
        },
    )
    inputs = questions("a", "b")
    with SavedModelServable(str(tmp_path)) as servable:
        for kind, found in (
            ("brute_force", [b"a", b"b"]),
            ("ivf", [b"a without", b"b without"]),
        ):
            servable.card = {"index": kind}
            assert servable.run(inputs)["answer"].tolist() == found
            with pytest.raises(RequestError, match="expected the inputs"):
                servable.run({**inputs, "filter": inputs["question"]})


def test_the_card_and_its_checksums(servable, copied):
    assert servable.card == {}
    path = copied / "assets.extra" / "card.json"
    name = "variables/variables.index"
    digest = hashlib.sha256((copied / name).read_bytes()).hexdigest()
    card = {"index": "scann", "num_blocks": 7, "files": {name: digest}}
    path.write_text(json.dumps(card))
    with SavedModelServable(str(copied)) as with_card:
        assert with_card.card == card
    for text in ("{", "[]", "{}"):
        path.write_text(text)
        with pytest.raises(InputError, match="expected the card that"):
            SavedModelServable(str(copied))
    path.write_text(json.dumps(card))
    with (copied / name).open("ab") as file:
        file.write(b"x")
    message = "variables.index is missing or not as it was written. Export"
    with pytest.raises(InputError, match=message):
        SavedModelServable(str(copied))


def test_broken_saved_models_are_refused(tmp_path):
    (tmp_path / "1").mkdir()
    file = tmp_path / "1" / "saved_model.pb"
    file.write_bytes(b"\xff" * 10)
    with pytest.raises(InputError, match="does not load: Read less bytes"):
        SavedModelServable(str(tmp_path))
    file.write_bytes(b"")
    with pytest.raises(InputError, match="does not load"):
        SavedModelServable(str(tmp_path))


def test_scann_is_loaded_only_if_needed(copied, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "scann" else find_spec(name),
    )
    card = copied / "assets.extra" / "card.json"
    card.write_text('{"index": "ivf", "files": {}}')
    SavedModelServable(str(copied)).close()
    card.write_text('{"index": "scann", "files": {}}')
    with pytest.raises(InputError, match="package scann is not installed"):
        SavedModelServable(str(copied))
