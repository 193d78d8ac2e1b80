import base64
import functools
import gzip
import json
import re

import grpc
import pytest
from google.protobuf import json_format
from rest_client import PREDICT
from rest_client import Client
from tensorflow_serving.apis import get_model_metadata_pb2

from realm_tf.serving.request_error import RequestError
from realm_tf.serving.servable import SavedModelServable


@pytest.fixture(scope="module")
def client(running):
    return Client(running)


def nested(rank):
    """A string in so many lists."""
    return functools.reduce(lambda inner, _: [inner], range(rank), "x")


def test_columns_are_answered_by_columns(client, rows):
    status, document = client.post(
        {"inputs": {"question": ["who wrote Frankenstein?", "?"]}}
    )
    assert status == 200
    outputs = document["outputs"]
    assert sorted(outputs) == sorted(rows)
    # Version 2 scores 100 higher.
    assert outputs["score"] == [112.5, 0.0]
    for name in set(rows) - {"score"}:
        assert outputs[name] == [rows[name][0], rows[name][2]]


def test_rows_are_answered_by_rows(client, rows):
    for instances in (
        ["where is the eiffel tower?"],
        [{"question": "where is the eiffel tower?"}],
        [{"b64": base64.b64encode(b"where is the eiffel tower?").decode()}],
    ):
        status, document = client.post({"instances": instances})
        assert status == 200
        (row,) = document["predictions"]
        assert row["answer"] == "Paris"
        assert row["candidate_log_prob"] == rows["candidate_log_prob"][1]


def test_a_single_output_and_a_scalar(client):
    status, document = client.post({"signature_name": "slow", "inputs": 3})
    assert (status, document) == (200, {"outputs": pytest.approx(1 / 64)})


def test_infinity_is_written_bare(client):
    body = json.dumps({"inputs": ["?"]})
    _, headers, answer = client.call("POST", PREDICT, body)
    assert b"-Infinity, -Infinity" in answer
    assert headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("choice", ["/versions/2", ""])
def test_names_and_versions(client, choice):
    for name in ("realm", "%72ealm"):
        path = f"/v1/models/{name}{choice}:predict"
        status, document = client.post({"instances": ["?"]}, path)
        assert status == 200
        assert document["predictions"][0]["block_id"] == -1


@pytest.mark.parametrize(
    "path, body, status, words",
    [
        (
            "/v1/models/realm/versions/9:predict",
            {"instances": ["x"]},
            404,
            "Servable not found for request: Specific(realm, 9)",
        ),
        ("/v1/models/realm/labels/a:predict", {}, 400, "Malformed request"),
        (
            PREDICT,
            {"instances": ["x"], "signature_name": "nope"},
            400,
            'Serving signature name: "nope" not found in signature def',
        ),
        (PREDICT, {}, 400, "one of the keys 'inputs' and 'instances'"),
        (PREDICT, [], 400, "must be a JSON object"),
        (PREDICT, {"instances": []}, 400, "at least one entry"),
        (PREDICT, {"inputs": {"x": 1}}, 400, "the inputs question"),
        (PREDICT, {"inputs": [1.5]}, 400, "type float where string was"),
        (PREDICT, {"inputs": [{"b64": "$"}]}, 400, "unable to base64 decode"),
        (PREDICT, {"inputs": [["x"]]}, 400, "must be string of shape (None,)"),
        (PREDICT, {"inputs": nested(64)}, 400, "must be string of shape"),
        (PREDICT, {"inputs": nested(500)}, 400, "type list where string"),
        (PREDICT, {"inputs": [["x"], []]}, 400, "type list where string"),
        (
            PREDICT,
            {"inputs": 2**40, "signature_name": "slow"},
            400,
            "is no int32",
        ),
        (
            PREDICT,
            {"inputs": True, "signature_name": "slow"},
            400,
            "type bool where int32 was expected",
        ),
        ("/v1/models/realm:classify", {}, 501, "takes tf.Examples"),
    ],
)
def test_requests_that_are_refused(client, path, body, status, words):
    answered, document = client.post(body, path)
    assert answered == status
    assert list(document) == ["error"]
    assert words in document["error"]


@pytest.mark.parametrize(
    "body, words",
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"\xff", "can't decode byte"),
        (b"[" * 100_000, "JSON Parse error"),
        (b'{"inputs": ' + b"9" * 5000 + b"}", "JSON Parse error"),
    ],
)
def test_bodies_that_are_no_json(client, body, words):
    status, _, answer = client.call("POST", PREDICT, body)
    assert status == 400
    assert words in json.loads(answer)["error"]


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("GET", "/v1/models", 400),
        ("GET", "/v1/foo", 400),
        ("GET", PREDICT, 400),
        ("PUT", PREDICT, 405),
        ("POST", "/", 405),
        ("GET", "/nothing", 404),
        ("GET", "/../rest_api.py", 404),
    ],
)
def test_requests_for_nothing(client, method, path, status):
    answered, headers, body = client.call(method, path)
    words = {"error": f"Malformed request: {method} {path}"}
    assert (answered, json.loads(body)) == (status, words)
    assert ("Allow" in headers) == (status == 405)


def test_status(client):
    expected = {
        "model_version_status": [
            {
                "version": "2",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
    for choice in ("", "/versions/2"):
        assert client.get(f"/v1/models/realm{choice}") == (200, expected)
    assert client.get("/v1/models/other")[0] == 404
    assert client.get("/v1/models/realm/versions/7")[0] == 404
    assert client.call("HEAD", "/v1/models/realm")[0] == 200


def test_metadata_holds_the_signatures(client, saved_model):
    status, document = client.get("/v1/models/realm/versions/2/metadata")
    assert status == 200
    assert document["model_spec"] == {
        "name": "realm",
        "version": "2",
        "signature_name": "",
    }
    signatures = document["metadata"]["signature_def"]
    question = signatures["signature_def"]["serving_default"]["inputs"]
    assert question["question"]["dtype"] == "DT_STRING"
    assert question["question"]["tensor_shape"] == {
        "dim": [{"size": "-1", "name": ""}],
        "unknown_rank": False,
    }
    parsed = get_model_metadata_pb2.SignatureDefMap()
    json_format.ParseDict(signatures, parsed)
    with SavedModelServable(saved_model) as servable:
        assert dict(parsed.signature_def) == servable.signature_defs


def test_headers(client):
    body = json.dumps({"inputs": ["x"]})
    _, headers, _ = client.call(
        "POST", PREDICT, body, {"X-Request-Id": "mine-1"}
    )
    assert headers["X-Request-Id"] == "mine-1"
    assert re.fullmatch(r"predict;dur=\d+\.\d", headers["Server-Timing"])
    assert headers["X-Content-Type-Options"] == "nosniff"
    # No page of another site may read an answer.
    assert "Access-Control-Allow-Origin" not in headers
    _, headers, _ = client.call(
        "POST", PREDICT, "{", {"X-Request-Id": "two words"}
    )
    assert re.fullmatch("[0-9a-f]{16}", headers["X-Request-Id"])
    _, headers, _ = client.call("GET", "/")
    known = {"If-None-Match": headers["ETag"]}
    assert client.call("GET", "/", headers=known)[0] == 304
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Referrer-Policy"] == "no-referrer"
    policy = headers["Content-Security-Policy"].split("; ")
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in headers["Content-Security-Policy"]


def test_answers_are_packed_and_requests_are_not(client):
    body = json.dumps({"inputs": ["?"] * 20}).encode()
    status, headers, answer = client.call(
        "POST", PREDICT, body, {"Accept-Encoding": "gzip"}
    )
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    outputs = json.loads(gzip.decompress(answer))["outputs"]
    assert outputs["answer"] == [""] * 20
    status, _, answer = client.call(
        "POST", PREDICT, gzip.compress(body), {"Content-Encoding": "gzip"}
    )
    assert status == 415
    assert "'gzip' is not supported" in json.loads(answer)["error"]


@pytest.mark.parametrize(
    "error, status, message",
    [
        (RequestError(grpc.StatusCode.DEADLINE_EXCEEDED, "late"), 504, "late"),
        (ZeroDivisionError(), 500, "Internal error; "),
    ],
)
def test_a_run_that_fails(serve, fake_servable, error, status, message):
    fake_servable.error = error
    fake_servable.let_go.set()
    client = serve()
    answered, document = client.post({"inputs": ["?"]})
    assert answered == status
    assert document["error"].startswith(message)
    # It is not the end.
    assert client.get("/v1/models/realm")[0] == 200


def test_about_says_what_the_page_shows(serve, fake_servable):
    fake_servable.card = {
        "num_blocks": 12,
        "index": "ivf",
        "evidence_license": "CC BY-SA 4.0",
        "example_questions": ["Who?"],
        "files": {},
    }
    about = {
        "model": "realm",
        "version": 1,
        "num_blocks": 12,
        "index": "ivf",
        "evidence_license": "CC BY-SA 4.0",
        "example_questions": ["Who?"],
        # An earlier export has none.
        "example_titles": None,
        "fields": None,
        "documents": False,
    }
    assert serve().get("/about.json") == (200, about)
