import contextlib
import gzip
import http.client
import json
import re
import socket
import threading

import grpc
import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2

from realm_tf.serving.limits import Limits
from realm_tf.serving.metrics import ServingMetrics
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_handler import RequestHandler
from realm_tf.serving.request_log import RequestLog
from realm_tf.serving.rest import app as rest
from realm_tf.serving.rest import requests as rest_requests
from realm_tf.serving.rest import server as rest_server
from realm_tf.serving.rest.server import RestServer
from realm_tf.serving.security import ApiKeys
from realm_tf.serving.servable import SavedModelServable
from realm_tf.serving.versions.table import State
from realm_tf.serving.versions.table import VersionStatus

MAX_BODY_BYTES = 100_000
PREDICT = "/v1/models/realm:predict"
GZIPPED = gzip.compress(b"{}", mtime=0)
# Far more than any test waits for.
ENDLESS = 2**31 - 1


class Manager:
    """One version, in the place of a `ModelManager`."""

    def __init__(self, servable):
        self._servable = servable

    def names(self):
        return ["realm"]

    @contextlib.contextmanager
    def use(self, name, *, version=None, label=None):
        if name != "realm" or version not in (None, 2):
            asked = f"Latest({name})"
            if version is not None:
                asked = f"Specific({name}, {version})"
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Servable not found for request: {asked}",
            )
        if label not in (None, "stable"):
            raise RequestError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"Unrecognized servable version label: {label}",
            )
        yield 2, self._servable

    def status(self, name, *, version=None, label=None):
        with self.use(name, version=version, label=label):
            failed = VersionStatus(1, State.END, 5, "torn")
            return [VersionStatus(2, State.AVAILABLE), failed]


class Client:
    """Talks HTTP/1.1 to a server of this process."""

    def __init__(self, port, handler):
        self.port = port
        self.handler = handler

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def call(self, method, path, body=None, headers=None):
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def get(self, path, **headers):
        status, _, body = self.call("GET", path, headers=headers)
        return status, json.loads(body)

    def post(self, document, path=PREDICT):
        status, _, body = self.call("POST", path, json.dumps(document))
        return status, json.loads(body)


@contextlib.contextmanager
def serving(servable, *, limits=None, api_key=None):
    """A client of the REST API over a servable."""
    log = RequestLog()
    handler = RequestHandler(
        Manager(servable),
        limits=limits or Limits(),
        metrics=ServingMetrics(),
        log=log,
    )
    app = rest.make_app(
        handler,
        max_body_bytes=MAX_BODY_BYTES,
        api_key=api_key,
        default_model="realm",
    )
    server = RestServer(app, rest_server.bind("127.0.0.1", 0))
    try:
        yield Client(int(server.url.rpartition(":")[2]), handler)
    finally:
        server.stop(grace_seconds=10)
        server.join(30)
        log.close()


@pytest.fixture(scope="module")
def servable(saved_model):
    with SavedModelServable(saved_model) as servable:
        yield servable


@pytest.fixture(scope="module")
def client(servable):
    with serving(servable) as client:
        yield client


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
    ):
        status, document = client.post({"instances": instances})
        assert status == 200
        (row,) = document["predictions"]
        assert row["answer"] == "Paris"
        assert row["candidate_log_prob"] == rows["candidate_log_prob"][1]


def test_a_single_output_and_a_scalar(client):
    status, document = client.post({"signature_name": "slow", "inputs": 3})
    assert (status, document) == (200, {"outputs": pytest.approx(1 / 64)})


def test_infinity_stands_bare(client):
    body = json.dumps({"inputs": ["?"]})
    _, headers, answer = client.call("POST", PREDICT, body)
    assert b"-Infinity, -Infinity" in answer
    assert headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("choice", ["/versions/2", "/labels/stable", ""])
def test_versions_and_labels(client, choice):
    for name in ("realm", "%72ealm"):
        path = f"/v1/models/{name}{choice}:predict"
        status, document = client.post({"instances": ["?"]}, path)
        assert status == 200
        assert document["predictions"][0]["block_id"] == -1


@pytest.mark.parametrize(
    "path, body, status, words",
    [
        (
            "/v1/models/other:predict",
            {"instances": ["x"]},
            404,
            "Servable not found for request: Latest(other)",
        ),
        (
            "/v1/models/realm/versions/9:predict",
            {"instances": ["x"]},
            404,
            "Servable not found for request: Specific(realm, 9)",
        ),
        (
            "/v1/models/realm/labels/canary:predict",
            {"instances": ["x"]},
            400,
            "Unrecognized servable version label: canary",
        ),
        (
            "/v1/models/realm/versions/9223372036854775808:predict",
            {},
            400,
            "Failed to convert version: 9223372036854775808 to numeric.",
        ),
        (
            "/v1/models/realm/version/2:predict",
            {},
            400,
            "Malformed request: POST /v1/models/realm/version/2:predict",
        ),
        (
            "/v1/models/realm",
            {},
            400,
            "Malformed request: POST /v1/models/realm",
        ),
        (
            PREDICT,
            {"instances": ["x"], "signature_name": "nope"},
            400,
            'Serving signature name: "nope" not found in signature def',
        ),
        (PREDICT, {}, 400, "Missing 'inputs' or 'instances' key"),
        (
            PREDICT,
            {"inputs": ["x"], "signature_name": 1},
            400,
            "'signature_name' key must be a string value.",
        ),
        (
            PREDICT,
            {"inputs": [1.5]},
            400,
            "JSON Value: 1.5 Type: Number is not of expected type: string",
        ),
        (PREDICT, {"inputs": [["x"]]}, 400, "must be of shape (None,)"),
        (
            PREDICT,
            {"inputs": -1, "signature_name": "slow"},
            400,
            "steps are negative",
        ),
        (
            PREDICT,
            {"inputs": ["x"] * 129},
            400,
            "has 129 rows, more than the 128",
        ),
        (
            PREDICT,
            {"instances": [1], "signature_name": "slow"},
            400,
            "must be of shape ()",
        ),
        (
            "/v1/models/realm:classify",
            {"examples": [{"x": 1}]},
            400,
            "Expected classification signature method_name to be "
            "tensorflow/serving/classify. Was: tensorflow/serving/predict",
        ),
        (
            "/v1/models/realm:regress",
            {"examples": [{"x": 1}], "signature_name": "nope"},
            400,
            "No signature was found with the name: nope",
        ),
        (
            "/v1/models/realm:regress",
            {"instances": [1]},
            400,
            "key 'examples' is expected and was not found",
        ),
    ],
)
def test_requests_that_are_refused(client, path, body, status, words):
    answered, document = client.post(body, path)
    assert answered == status
    assert list(document) == ["error"]
    assert words in document["error"]


@pytest.mark.parametrize(
    "method, path, status, words",
    [
        ("GET", "/v1/models", 400, "Missing model name in request."),
        ("GET", "/v1/foo", 400, "Malformed request: GET /v1/foo"),
        ("GET", PREDICT, 400, f"Malformed request: GET {PREDICT}"),
        ("PUT", PREDICT, 405, f"Malformed request: PUT {PREDICT}"),
        ("POST", "/", 405, "Malformed request: POST /"),
        ("GET", "/nothing", 404, "Malformed request: GET /nothing"),
        ("GET", "/../rest.py", 404, "Malformed request: GET /../rest.py"),
        ("POST", PREDICT, 400, "JSON Parse error: The document is empty"),
    ],
)
def test_requests_for_nothing(client, method, path, status, words):
    answered, headers, body = client.call(method, path)
    assert (answered, json.loads(body)) == (status, {"error": words})
    assert ("Allow" in headers) == (status == 405)


def test_status(client):
    expected = {
        "model_version_status": [
            {
                "version": "2",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            },
            {
                "version": "1",
                "state": "END",
                "status": {"error_code": "NOT_FOUND", "error_message": "torn"},
            },
        ]
    }
    for choice in ("", "/versions/2", "/labels/stable"):
        assert client.get(f"/v1/models/realm{choice}") == (200, expected)
    # What clients that read it as a proto make of it.
    response = get_model_status_pb2.GetModelStatusResponse()
    json_format.ParseDict(expected, response)
    assert [s.state for s in response.model_version_status] == [30, 50]
    assert client.get("/v1/models/other")[0] == 404
    assert client.call("HEAD", "/v1/models/realm")[0] == 200


def test_metadata_holds_the_signatures(client, servable):
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
    assert dict(parsed.signature_def) == servable.signature_defs


def test_every_status_has_its_http_status():
    errors = {code for code in grpc.StatusCode if code != grpc.StatusCode.OK}
    assert set(rest._HTTP_STATUS) == errors


def test_metrics_count_what_was_asked(client):
    def count(status):
        answered, headers, body = client.call("GET", rest.METRICS_PATH)
        assert answered == 200
        assert headers["Content-Type"].startswith("text/plain")
        name = ":tensorflow:serving:request_count"
        labels = rf'model_name="realm",status="{status}"'
        found = re.search(rf"{name}\{{{labels}\}} (\S+)", body.decode())
        return float(found[1]) if found else 0.0

    before = count("OK"), count("INVALID_ARGUMENT")
    client.post({"instances": ["x"]})
    # One refused by the handler and one that never came so far.
    client.post({"instances": [1]})
    client.call("POST", PREDICT, "{")
    assert (count("OK"), count("INVALID_ARGUMENT")) == (
        before[0] + 1,
        before[1] + 2,
    )


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


def test_long_bodies_are_refused(client):
    too_long = b'{"inputs": ["' + b"x" * MAX_BODY_BYTES + b'"]}'
    words = {
        "error": f"The request body is longer than {MAX_BODY_BYTES} bytes."
    }
    # Known from its header, found while it is read, found when unpacked.
    for body, headers in (
        (too_long, {}),
        (iter([too_long[:60_000], too_long[60_000:]]), {}),
        (gzip.compress(too_long), {"Content-Encoding": "gzip"}),
    ):
        status, _, answer = client.call("POST", PREDICT, body, headers)
        assert (status, json.loads(answer)) == (413, words)


def test_gzip_both_ways(client):
    body = gzip.compress(json.dumps({"inputs": ["?"] * 20}).encode())
    status, headers, answer = client.call(
        "POST",
        PREDICT,
        body,
        {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"},
    )
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    outputs = json.loads(gzip.decompress(answer))["outputs"]
    assert outputs["answer"] == [""] * 20


@pytest.mark.parametrize(
    "body, encoding, status, words",
    [
        (b"{}", "gzip", 400, "The body is not gzip"),
        (GZIPPED[:-5], "gzip", 400, "cut off"),
        (GZIPPED + b"x", "gzip", 400, "more follows it"),
        (b"{}", "br", 415, "Content-Encoding 'br' is not supported"),
    ],
    ids=["not gzip", "cut off", "too long", "brotli"],
)
def test_encodings_that_are_refused(client, body, encoding, status, words):
    answered, _, answer = client.call(
        "POST", PREDICT, body, {"Content-Encoding": encoding}
    )
    assert answered == status
    assert words in json.loads(answer)["error"]


def test_a_body_of_exactly_the_limit_is_unpacked():
    packed = gzip.compress(b"x" * 1000)
    assert rest_requests.unpack(packed, "gzip", max_bytes=1000) == b"x" * 1000
    with pytest.raises(Exception, match="longer than 999 bytes"):
        rest_requests.unpack(packed, "gzip", max_bytes=999)


def test_time_runs_out(servable):
    with serving(
        servable, limits=Limits(default_timeout_seconds=0.2)
    ) as client:
        status, document = client.post(
            {"signature_name": "slow", "inputs": ENDLESS}
        )
    assert status == 504
    assert "error" in document


class HeldServable:
    """Holds each run until it is let go."""

    directory = "held"
    card = {
        "num_blocks": 12,
        "index": "ivf",
        "evidence_license": "CC BY-SA 4.0",
        "example_questions": ["Who?"],
        "files": {},
    }

    def __init__(self, servable):
        self.signature_defs = servable.signature_defs
        self._servable = servable
        self.started = threading.Semaphore(0)
        self.let_go = threading.Event()

    def run(self, inputs, **arguments):
        self.started.release()
        assert self.let_go.wait(timeout=30)
        return self._servable.run(inputs, **arguments)


@pytest.fixture
def held(servable):
    held = HeldServable(servable)
    yield held
    held.let_go.set()


def test_one_request_too_many_is_told_at_once(held):
    with serving(held, limits=Limits(max_pending=1)) as client:
        answers = []
        first = threading.Thread(
            target=lambda: answers.append(client.post({"inputs": ["?"]}))
        )
        first.start()
        assert held.started.acquire(timeout=30)
        status, headers, body = client.call(
            "POST", PREDICT, json.dumps({"inputs": ["?"]})
        )
        assert (status, headers["Retry-After"]) == (429, "1")
        assert "try again later" in json.loads(body)["error"]
        # The server itself goes on.
        assert client.get("/v1/models/realm")[0] == 200
        held.let_go.set()
        first.join(timeout=30)
        assert answers[0][0] == 200


def test_clients_that_hang_up_break_nothing(held):
    request = (
        f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n\r\n"
    ).encode()
    with serving(held) as client:
        for sent in (request + b'{"inputs"', request + b'{"inputs": ["?"]}'):
            with socket.create_connection(("127.0.0.1", client.port)) as peer:
                peer.sendall(sent)
                if sent.endswith(b"}"):
                    assert held.started.acquire(timeout=30)
        held.let_go.set()
        assert client.post({"inputs": ["?"]})[0] == 200


def test_about_says_what_the_page_shows(held):
    with serving(held) as client:
        assert client.get("/about.json") == (
            200,
            {
                "model": "realm",
                "version": 2,
                "num_blocks": 12,
                "index": "ivf",
                "evidence_license": "CC BY-SA 4.0",
                "example_questions": ["Who?"],
            },
        )


def test_a_model_without_a_card(client, monkeypatch, servable):
    monkeypatch.setattr(servable, "card", {}, raising=False)
    _, about = client.get("/about.json")
    assert about["example_questions"] == []
    assert about["num_blocks"] is about["evidence_license"] is None


def test_a_defect_is_an_error_and_not_the_end(held):
    held.run = lambda *unused, **more: 1 / 0
    held.card = None
    with serving(held) as client:
        status, document = client.post({"inputs": ["?"]})
        assert status == 500
        assert document["error"].startswith("Internal error; ")
        assert client.get("/about.json") == (500, {"error": "Internal error."})
        assert client.get("/v1/models/realm")[0] == 200


def test_api_keys(servable):
    key = "k" * 32
    with serving(servable, api_key=ApiKeys([key])) as client:
        for path in ("/v1/models/realm", rest.METRICS_PATH, "/about.json"):
            status, headers, body = client.call("GET", path)
            assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
            assert "API key" in json.loads(body)["error"]
            for sent in (
                {"Authorization": f"Bearer {key}"},
                {"X-Api-Key": key},
            ):
                assert client.call("GET", path, headers=sent)[0] == 200
        wrong = {"X-Api-Key": key[1:]}
        assert client.call("POST", PREDICT, "{}", wrong)[0] == 401
        # The page asks for the key itself.
        for path in ("/", "/page.js", "/page.css", "/icon.svg"):
            assert client.call("GET", path)[0] == 200


def test_realm_serve_answers_over_rest(running):
    client = Client(int(running.rest_url.rpartition(":")[2]), running.handler)
    status, document = client.get("/v1/models/realm")
    (version,) = document["model_version_status"]
    assert (status, version["version"]) == (200, "2")
    assert version["state"] == "AVAILABLE"
    status, document = client.post(
        {"instances": ["where is the eiffel tower?"]}
    )
    assert (status, document["predictions"][0]["answer"]) == (200, "Paris")
    assert b"<title>Ask a question</title>" in client.call("GET", "/")[2]


_SEGMENTS = st.sampled_from(
    ["v1", "models", "realm", "versions", "labels", "2", "9" * 30, "metadata"]
    + ["realm:predict", "2:predict", "realm:classify", "%", "%ff", "a b", ".."]
)
_BODIES = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda key, value: json.dumps({key: value}).encode(),
        st.sampled_from(["instances", "inputs", "examples"]),
        st.recursive(
            st.none() | st.integers() | st.floats() | st.text(max_size=3),
            lambda v: (
                st.lists(v, max_size=3)
                | st.dictionaries(st.sampled_from(["b64", "question"]), v)
            ),
        ),
    ),
)


@settings(
    max_examples=300,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    st.just(PREDICT)
    | st.lists(_SEGMENTS, max_size=6).map(lambda s: "/" + "/".join(s)),
    _BODIES,
)
def test_no_request_is_a_defect(client, method, path, body):
    path = path.replace(" ", "%20")
    status, _, answer = client.call(method, path, body)
    assert status in (200, 400, 404, 405)
    if status != 200:
        assert json.loads(answer)["error"]
