import asyncio
import threading
import time

import grpc
import numpy as np
import pytest
from scripted_server import Script
from scripted_server import echo
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import predict_pb2

from realm_tf.serving.client import ModelVersionStatus
from realm_tf.serving.client import RealmClient
from realm_tf.serving.client import RealmServerError
from realm_tf.serving.client import RetrievedBlock
from realm_tf.serving.tensors import encode_tensor

KEY = "0123456789abcdef-secret"


def sent(script):
    """The requests a script was sent, as TF Serving's messages."""
    return [
        predict_pb2.PredictRequest.FromString(request)
        for _, request, _, _ in script.calls
    ]


def test_blocks_and_embeddings_are_read():
    values = {
        "block_id": np.array([[3, -1], [-1, -1]]),
        "score": np.array([[1.5, 0.0], [0.0, 0.0]], np.float32),
        "title": np.array([[b"T", b""], [b"", b""]], object),
        "text": np.array([["é".encode(), b""], [b"", b""]], object),
        "embedding": np.array([[1, 2.5], [0, 0]], np.float32),
    }

    def respond(method, request):
        response = predict_pb2.PredictResponse()
        for name, array in values.items():
            response.outputs[name].CopyFrom(encode_tensor(array))
        return response.SerializeToString()

    with (
        Script(respond=respond) as script,
        RealmClient(script.target) as client,
    ):
        retrieved = client.retrieve(["a", ""])
        embeddings = client.embed(["a", ""])
    # An earlier export, without URLs.
    assert retrieved == [[RetrievedBlock(3, 1.5, "T", "é")], []]
    assert retrieved[0][0].url == ""
    assert embeddings == [[1.0, 2.5], [0.0, 0.0]]
    names = [request.model_spec.signature_name for request in sent(script)]
    assert names == ["retrieve", "embed_query"]


def test_a_version_that_failed_is_told():
    response = get_model_status_pb2.GetModelStatusResponse()
    for version, state, code in ((3, 10, 0), (2, 50, 9), (1, 77, 99)):
        one = response.model_version_status.add(version=version)
        one.state = state
        one.status.error_code = code
        one.status.error_message = f"of {version}"
    with (
        Script(respond=lambda *_: response.SerializeToString()) as script,
        RealmClient(script.target, model="m", version=3) as client,
    ):
        assert client.status() == [
            ModelVersionStatus(3, "START", "OK", "of 3"),
            ModelVersionStatus(2, "END", "FAILED_PRECONDITION", "of 2"),
            ModelVersionStatus(1, "UNKNOWN", "99", "of 1"),
        ]
    ((method, request, _, _),) = script.calls
    assert method == "/tensorflow.serving.ModelService/GetModelStatus"
    spec = get_model_status_pb2.GetModelStatusRequest.FromString(
        request
    ).model_spec
    assert (spec.name, spec.version.value) == ("m", 3)


def test_long_lists_are_sent_in_parts_to_the_version():
    questions = [f"question {number}" for number in range(40)]
    with (
        Script(respond=echo) as script,
        RealmClient(script.target, batch_size=16, version=0) as client,
    ):
        answers = client.ask(questions)
    assert [a.answer for a in answers] == questions
    sizes = [len(r.inputs["question"].string_val) for r in sent(script)]
    assert sizes == [16, 16, 8]
    spec = sent(script)[0].model_spec
    assert spec.HasField("version") and spec.version.value == 0


def test_a_busy_server_is_asked_again():
    busy = grpc.StatusCode.RESOURCE_EXHAUSTED
    away = grpc.StatusCode.UNAVAILABLE
    started = time.monotonic()
    with (
        Script(away, busy, away, respond=echo) as script,
        RealmClient(script.target) as client,
    ):
        (answer,) = client.ask(["x"])
    assert answer.answer == "x"
    assert len(script.calls) == 4
    assert len({request for _, request, _, _ in script.calls}) == 1
    # Pauses of about 0.1, 0.2 and 0.4 s.
    assert time.monotonic() - started > 0.2


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_it_is_given_up_after_some_attempts(max_attempts):
    codes = [grpc.StatusCode.RESOURCE_EXHAUSTED] * 10
    with (
        Script(*codes) as script,
        RealmClient(script.target, max_attempts=max_attempts) as client,
        pytest.raises(RealmServerError, match="as told") as caught,
    ):
        client.ask(["x"])
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert len(script.calls) == max_attempts


def test_other_failures_are_final():
    with (
        Script(grpc.StatusCode.INTERNAL, respond=echo) as script,
        RealmClient(script.target) as client,
        pytest.raises(RealmServerError) as caught,
    ):
        client.ask(["x"])
    assert caught.value.code == "INTERNAL"
    assert len(script.calls) == 1


def test_a_slow_server_is_given_up():
    given_up = threading.Event()

    def wait(method, request):
        given_up.wait()
        return b""

    with (
        Script(respond=wait) as script,
        RealmClient(script.target, timeout_seconds=0.2) as client,
    ):
        with pytest.raises(RealmServerError, match="within 0.2 s") as caught:
            client.ask(["x"])
        given_up.set()
        # It is not asked again.
        assert len(script.calls) <= 1
    assert caught.value.code == "DEADLINE_EXCEEDED"


def test_the_key_is_sent_and_never_shown():
    refused = grpc.StatusCode.UNAUTHENTICATED
    with (
        Script(refused, respond=echo) as script,
        RealmClient(script.target, api_key=KEY) as client,
    ):
        with pytest.raises(RealmServerError, match="UNAUTHENTICATED") as caught:
            client.ask(["x"])
        client.ask(["x"])
        shown = [str(caught.value), repr(caught.value), repr(client)]
    assert KEY not in " ".join(shown)
    assert "model='realm'" in shown[-1]
    keys = [metadata["authorization"] for _, _, metadata, _ in script.calls]
    assert keys == [f"Bearer {KEY}"] * 2


def broken_tensor():
    response = predict_pb2.PredictResponse()
    response.outputs["answer"].dtype = 1
    response.outputs["answer"].tensor_shape.dim.add(size=-1)
    return response.SerializeToString()


@pytest.mark.parametrize(
    "response, call, message",
    [
        (b"\xff\xffnonsense", "ask", "port of TensorFlow Serving's protocol"),
        (b"", "ask", r"gave no answer of a REALM export .KeyError"),
        (broken_tensor(), "ask", "0 values for a tensor"),
        (b"", "retrieve", "block_id"),
        (b"", "embed", "embedding"),
        (b"\xff", "status", "DecodeError"),
    ],
)
def test_a_server_that_sends_nonsense(response, call, message):
    arguments = [] if call == "status" else [["x"]]
    with (
        Script(respond=lambda *_: response) as script,
        RealmClient(script.target) as client,
        pytest.raises(RealmServerError, match=message) as caught,
    ):
        getattr(client, call)(*arguments)
    assert caught.value.code == "UNEXPECTED_RESPONSE"
    assert len(script.calls) == 1


def test_many_coroutines_share_a_connection(running):
    questions = ["who wrote Frankenstein?", "where is the Eiffel Tower?"]

    async def main():
        with RealmClient(running.target) as client:
            return await asyncio.gather(
                *(
                    asyncio.to_thread(client.ask, [questions[i % 2]])
                    for i in range(200)
                )
            )

    answers = [answer.answer for (answer,) in asyncio.run(main())]
    assert answers == ["Mary Shelley", "Paris"] * 100
