"""The Python client, before a real server and before a scripted one."""

import socket
import threading
import time

import grpc
import numpy as np
import pytest
import python_code
from scripted_server import Script
from scripted_server import echo
from tensorflow_serving.apis import predict_pb2

from realm_tf.answering.answer import Alternative
from realm_tf.errors import InputError
from realm_tf.serving.client import RealmClient
from realm_tf.serving.client import RealmServerError
from realm_tf.serving.client import RetrievedBlock
from realm_tf.serving.client import checked
from realm_tf.serving.client import decode_tensor
from realm_tf.serving.client import to_answers
from realm_tf.serving.client import wire
from realm_tf.serving.tensors import encode_tensor

KEY = "0123456789abcdef-secret"


def test_an_answer_with_its_evidence(running):
    with RealmClient(running.target) as client:
        (answer,) = client.ask(["Who wrote Frankenstein?"])
    # Its other fields are those that test_ask.py reads in a file.
    assert answer.text[answer.start : answer.limit] == "Mary Shelley"
    assert answer.nbest == (
        Alternative("Mary Shelley", 12.5),
        Alternative("1818", 3.0),
    )
    # The padded candidate is left out.
    assert [c.block_id for c in answer.candidates] == [7, 2]
    first, second = answer.candidates
    assert (first.title, first.answer) == ("Frankenstein", "Mary Shelley")
    assert (second.text, second.log_prob) == ("London is large.", -1.0)
    assert (first.url, second.url) == ("https://example.org/frankenstein", "")
    np.testing.assert_allclose(first.probability, np.exp(-0.5), rtol=1e-12)


def test_batches_and_empty_questions(running):
    with RealmClient(running.target) as client:
        assert client.ask([]) == []
        (empty,) = client.ask([""])
        answers = client.ask(["who wrote Frankenstein?", "\ud800"] * 32)
        with pytest.raises(TypeError, match="must be a list of str"):
            client.ask("who?")
    assert (empty.answer, empty.block_id, empty.score) == ("", -1, 0.0)
    assert empty.candidates == () and empty.nbest == ()
    assert [a.answer for a in answers] == ["Mary Shelley", ""] * 32


def test_errors_name_the_server_and_the_way_out(running, monkeypatch):
    # No proxy of the environment is asked.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with (
        RealmClient(running.target, model="other") as client,
        pytest.raises(RealmServerError, match=r"Latest\(other\)") as caught,
    ):
        client.ask(["x"])
    assert caught.value.code == "NOT_FOUND"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{unused.getsockname()[1]}"
        with (
            RealmClient(target, timeout_seconds=5) as client,
            pytest.raises(RealmServerError) as caught,
        ):
            client.ask(["x"])
    assert caught.value.code == "UNAVAILABLE"
    for words in (
        f"No server answers at {target} (",
        "Connection refused",
        "realm serve --saved-model DIR",
    ):
        assert words in caught.value.message


# Runs where TensorFlow cannot be imported.
SCRIPT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocker())
from realm_tf.serving.client import RealmClient
with RealmClient({target!r}) as client:
    print(client.ask(["who wrote Frankenstein?"])[0].answer)
ours = (name for name in sys.modules if name.startswith("realm_tf."))
print(*sorted(name.partition("realm_tf.")[2] for name in ours))
"""


def test_needs_no_tensorflow(running):
    blocked = ("tensorflow", "tensorflow_serving", "keras", "numpy", "rich")
    script = SCRIPT.format(blocked=blocked, target=running.target)
    answer, modules = python_code.run(script).splitlines()
    assert answer == "Mary Shelley"
    assert set(modules.split()) == {
        *("answering", "answering.answer", "errors", "export"),
        *("export.signatures", "serving", "serving.client", "version"),
    }


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
    assert retrieved == [[RetrievedBlock(3, 1.5, "T", "é")], []]
    assert embeddings == [[1.0, 2.5], [0.0, 0.0]]
    names = [request.model_spec.signature_name for request in sent(script)]
    assert names == ["retrieve", "embed_query"]


@pytest.mark.parametrize(
    "values, dtype",
    [
        ([[b"a", b"", b"\xff"], [b"caf\xc3\xa9", b"x" * 300, b"\0"]], object),
        ([[1.5, -0.0, 3.0], [2.0**-100, 2.0, -7.25]], np.float32),
        ([[1, -2, 3], [2**63 - 1, -(2**63), 0]], np.int64),
        ([[True, False], [False, True]], bool),
    ],
)
def test_tensors_are_read_to_the_last_bit(values, dtype):
    proto = encode_tensor(np.array(values, dtype))
    ours = wire.Tensor.FromString(proto.SerializeToString())
    assert decode_tensor(ours) == values


def test_long_lists_are_sent_in_parts():
    questions = [f"question {number} 東京 🏯" for number in range(40)]
    with Script(respond=echo) as script, RealmClient(script.target) as client:
        answers = client.ask(questions)
    assert [a.answer for a in answers] == questions
    sizes = [len(r.inputs["question"].string_val) for r in sent(script)]
    assert sizes == [16, 16, 8]


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


@pytest.mark.parametrize(
    "code, attempts", [("RESOURCE_EXHAUSTED", 5), ("INTERNAL", 1)]
)
def test_a_failure_is_final_at_once_or_after_some_attempts(code, attempts):
    codes = [grpc.StatusCode[code]] * 10
    with (
        Script(*codes) as script,
        RealmClient(script.target) as client,
        pytest.raises(RealmServerError, match="as told") as caught,
    ):
        client.ask(["x"])
    assert caught.value.code == code
    assert len(script.calls) == attempts


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
    keys = [metadata["authorization"] for _, _, metadata, _ in script.calls]
    assert keys == [f"Bearer {KEY}"] * 2
    for broken in (f"{KEY}\n", f"{KEY}é", f"{KEY} x"):
        with pytest.raises(InputError, match="`api_key` must be") as caught:
            RealmClient("localhost:1", api_key=broken)
        assert KEY not in str(caught.value)


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
    ],
)
def test_a_server_that_sends_nonsense(response, call, message):
    with (
        Script(respond=lambda *_: response) as script,
        RealmClient(script.target) as client,
        pytest.raises(RealmServerError, match=message) as caught,
    ):
        getattr(client, call)(["x"])
    assert caught.value.code == "UNEXPECTED_RESPONSE"
    assert len(script.calls) == 1


def outputs(**changes):
    """The columns of one answer, without the URLs of candidates."""
    values = {
        **dict.fromkeys(("answer", "title", "text", "url"), [b""]),
        **dict.fromkeys(("block_id", "start", "limit"), [0]),
        **dict.fromkeys(("score", "confidence"), [0.0]),
        "nbest_answer": [[b""]],
        "nbest_score": [[0.0]],
        "candidate_block_id": [[0]],
        "candidate_title": [[b""]],
        "candidate_text": [[b""]],
        "candidate_answer": [[b""]],
        "candidate_log_prob": [[0.0]],
    }
    return {**values, **changes}


def test_outputs_of_some_exports():
    (plain,) = to_answers(outputs(), count=1)
    assert plain.answered
    # Of an earlier export.
    assert (plain.answer_sentence, plain.is_sentence) == ("", False)
    assert plain.fields == plain.candidates[0].fields == ""
    (found,) = to_answers(
        outputs(
            answered=[False],
            fields=[b"a=1"],
            candidate_fields=[[b"b=2"]],
            candidate_url=[[b"u"]],
        ),
        count=1,
    )
    assert (found.answered, found.fields) == (False, "a=1")
    assert (found.candidates[0].fields, found.candidates[0].url) == ("b=2", "u")


@pytest.mark.parametrize(
    "broken, count, message",
    [
        ({"title": None}, 1, "'title'"),
        ({}, 2, "out of range"),
        ({"score": 1.0}, 1, "float"),
        ({"candidate_answer": [[b"", b""]]}, 1, "is longer"),
        ({"candidate_answer": [b""]}, 1, "is shorter"),
        ({"answer": [b"", b""]}, 1, "is longer"),
    ],
)
def test_outputs_that_are_none(broken, count, message):
    values = {k: v for k, v in outputs(**broken).items() if v is not None}
    with pytest.raises(RealmServerError, match=message) as caught, checked("m"):
        to_answers(values, count=count)
    assert caught.value.code == "UNEXPECTED_RESPONSE"
    assert "m gave no answer of a REALM export" in caught.value.message


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"timeout_seconds": 0}, "`timeout_seconds` must be positive"),
        ({"timeout_seconds": float("inf")}, "must be positive and finite"),
        ({"tls_client": ("c", "k")}, "A client's certificate needs `tls_ca`"),
        ({"tls_ca": __file__}, "certificates in PEM form"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        RealmClient("127.0.0.1:1", **arguments)
