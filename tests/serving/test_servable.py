import importlib.util
import threading
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf

from realm_tf.errors import InputError
from serving.servable import RequestError
from serving.servable import SavedModelServable

# Far more than any test waits for.
ENDLESS = np.int32(2**31 - 1)


def questions(*texts):
    return {"question": np.array([t.encode() for t in texts], dtype=object)}


@pytest.fixture(scope="module")
def servable(saved_model):
    with SavedModelServable(saved_model) as servable:
        yield servable


def test_runs_tables_variables_and_text_ops(servable):
    outputs = servable.run(questions("WHO wrote Frankenstein?", "", "who?"))
    assert servable.version == 2
    assert outputs["answer"].tolist() == [b"Mary Shelley", b"", b""]
    assert outputs["score"].tolist() == [112.5, 0.0, 0.0]
    assert outputs["block_id"].tolist() == [7, -1, -1]
    assert outputs["candidate_block_id"].tolist()[0] == [7, 2, -1]
    assert outputs["score"].dtype == np.float32


def test_output_filter_selects(servable):
    outputs = servable.run(questions("x"), output_filter=["url", "score"])
    assert list(outputs) == ["url", "score"]
    assert outputs["url"].tolist() == [b""]


def test_scalars_keep_their_type(servable):
    outputs = servable.run({"steps": np.array(3, np.int32)}, signature="slow")
    assert outputs["value"].shape == ()
    np.testing.assert_allclose(outputs["value"], 1 / 64, rtol=1e-6)


@pytest.mark.parametrize(
    "inputs, arguments, code, message",
    [
        (
            questions("x"),
            {"signature": "nope"},
            "FAILED_PRECONDITION",
            r'key "nope" not found. Expected one of {serving_default, slow}',
        ),
        (
            questions("x"),
            {"signature": "__saved_model_init_op"},
            "FAILED_PRECONDITION",
            "not found",
        ),
        ({}, {}, "INVALID_ARGUMENT", r"Missing but required: {question}"),
        (
            {**questions("x"), "more": np.zeros(1)},
            {},
            "INVALID_ARGUMENT",
            r"Sent extra: {more}",
        ),
        (
            {"question": np.array([1.0], np.float32)},
            {},
            "INVALID_ARGUMENT",
            "question must be of dtype string, received float32",
        ),
        (
            {"question": np.array([[b"x"]], dtype=object)},
            {},
            "INVALID_ARGUMENT",
            r"question must be of shape \(None,\) .*received \(1, 1\)",
        ),
        (
            questions("x"),
            {"output_filter": ["nope"]},
            "INVALID_ARGUMENT",
            "alias not found in signature: nope",
        ),
        (
            questions("x"),
            {"output_filter": ["url", "url"]},
            "INVALID_ARGUMENT",
            "duplicate output tensor alias: url",
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


def test_time_runs_out(servable):
    started = time.monotonic()
    with pytest.raises(RequestError) as caught:
        servable.run(
            {"steps": np.array(ENDLESS)}, signature="slow", timeout_seconds=0.2
        )
    assert caught.value.code == grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - started < 5


def test_close_waits_then_cancels(saved_model):
    servable = SavedModelServable(f"{saved_model}/1")
    assert servable.version == 1
    results = []

    def run_endless():
        try:
            servable.run({"steps": np.array(ENDLESS)}, signature="slow")
        except RequestError as error:
            results.append(error.code)

    thread = threading.Thread(target=run_endless)
    thread.start()
    while not servable._running:
        time.sleep(0.01)
    started = time.monotonic()
    servable.close(grace_seconds=0.3)
    assert 0.3 <= time.monotonic() - started < 5
    thread.join(timeout=5)
    assert results == [grpc.StatusCode.CANCELLED]
    with pytest.raises(RequestError) as caught:
        servable.run(questions("x"))
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE


def test_warm_up_runs_every_signature(servable):
    assert servable.warm_up() > 0


class Broken(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="a")])
    def parse(self, a):
        return {"number": tf.strings.to_number(a)}


def test_a_model_that_fails_at_once_is_refused(tmp_path):
    module = Broken()
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.parse)
    with (
        SavedModelServable(str(tmp_path)) as servable,
        pytest.raises(InputError, match="fails on a first request to"),
    ):
        servable.warm_up()


def test_broken_saved_models_are_refused(tmp_path):
    (tmp_path / "1").mkdir()
    file = tmp_path / "1" / "saved_model.pb"
    file.write_bytes(b"\xff" * 10)
    with pytest.raises(InputError, match="cannot be parsed"):
        SavedModelServable(str(tmp_path))
    file.write_bytes(b"")
    with pytest.raises(InputError, match="does not load"):
        SavedModelServable(str(tmp_path))


def test_scann_is_loaded_only_if_needed(tmp_path, monkeypatch):
    from tensorflow.core.protobuf import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel()
    graph = saved_model.meta_graphs.add().graph_def
    function = graph.library.function.add()
    function.node_def.add(op="Scann>ScannSearchBatched")
    (tmp_path / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="package scann is not installed"):
        SavedModelServable(str(tmp_path))
