"""Requests nobody should send: the right status, no crash, no hang.

A few hundred in the default run; `-m slow` sends 5,000.
"""

import contextlib
import http.client
import json
import urllib.parse

import grpc
import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from stock_requests import predict_request
from tensorflow_serving.apis import predict_pb2

from realm_tf.serving import server
from realm_tf.serving.request_handler import RequestHandler

_CODE = grpc.StatusCode
# Longer than any of these requests takes; a hang would pass it.
_SECONDS = 20
_MAX_BYTES = 4 << 20
_PREDICT = "/tensorflow.serving.PredictionService/Predict"


def _few(num_examples):
    return settings(
        max_examples=num_examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def fuzzed(saved_model):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RequestHandler, "max_message_bytes", _MAX_BYTES)
        with server.start(saved_model) as running:
            yield running


@pytest.fixture(scope="module")
def call(fuzzed):
    """Sends bytes; gives the status and the answer's bytes."""
    with grpc.insecure_channel(fuzzed.target) as channel:
        predict = channel.unary_unary(_PREDICT)

        def send(request: bytes):
            try:
                return _CODE.OK, predict(request, timeout=_SECONDS)
            except grpc.RpcError as error:
                return error.code(), b""

        yield send


def _check_alive(call):
    code, answer = call(
        predict_request("who wrote frankenstein?").SerializeToString()
    )
    response = predict_pb2.PredictResponse.FromString(answer)
    assert code == _CODE.OK
    assert response.outputs["answer"].string_val[0] == b"Mary Shelley"


def _fuzz_grpc(call, num_examples):
    @_few(num_examples)
    @given(st.binary(max_size=300), st.integers(0, 40), st.integers(0, 5))
    def noise(data, position, num_cut):
        # Bytes, and a request that others have been written into.
        valid = predict_request("who wrote frankenstein?").SerializeToString()
        position = min(position, len(valid))
        torn = valid[:position] + data + valid[position + num_cut :]
        for request in (data, torn):
            code, _ = call(request)
            assert code in (
                _CODE.OK,
                _CODE.INVALID_ARGUMENT,
                _CODE.NOT_FOUND,
                _CODE.FAILED_PRECONDITION,
                # What gRPC says of bytes that are no message.
                _CODE.INTERNAL,
            )

    noise()
    _check_alive(call)


def test_grpc(call):
    _fuzz_grpc(call, 150)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["b64", "question", "instances", "inputs", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
_BODIES = st.one_of(
    _JSON.map(lambda value: json.dumps(value).encode()),
    _JSON.map(lambda value: json.dumps({"instances": value}).encode()),
    _JSON.map(lambda value: json.dumps({"inputs": value}).encode()),
    st.binary(max_size=100),
    st.integers(1000, 100_000).map(lambda depth: b"[" * depth),
    st.just(b'{"instances": ["' + b"x" * 2 * _MAX_BYTES + b'"]}'),
)
_PATHS = st.sampled_from(
    [
        "/v1/models/realm:predict",
        "/v1/models/realm/versions/2:predict",
        "/v1/models/realm/versions/7:predict",
        "/v1/models/realm/labels/a:predict",
        "/v1/models/other:predict",
        "/v1/models/realm:classify",
        "/v1/models/realm/metadata",
        "/v1/models/%00",
        "/v1/models/realm/versions/99999999999999999999999:predict",
        "/v2/health",
    ]
)


def _fuzz_rest(fuzzed, num_examples):
    address = urllib.parse.urlsplit(fuzzed.rest_url)

    def call(method, path, body):
        connection = http.client.HTTPConnection(
            address.hostname, address.port, timeout=_SECONDS
        )
        with contextlib.closing(connection):
            try:
                connection.request(method, path, body)
                answer = connection.getresponse()
                return answer.status, answer.read()
            except ConnectionError:
                # A server may hang up on a body that it will not read.
                assert len(body) > _MAX_BYTES
                return 413, b'{"error": "hung up"}'

    @_few(num_examples)
    @given(
        st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH"]),
        _PATHS,
        _BODIES,
    )
    def requests(method, path, body):
        status, answer = call(method, path, body)
        assert status in (200, 400, 404, 405, 413, 501), (method, path, body)
        if status != 200:
            assert json.loads(answer)["error"]

    requests()
    status, answer = call(
        "POST",
        "/v1/models/realm:predict",
        b'{"inputs": {"question": ["who wrote frankenstein?"]}}',
    )
    assert status == 200
    assert json.loads(answer)["outputs"]["answer"] == ["Mary Shelley"]


def test_rest(fuzzed):
    _fuzz_rest(fuzzed, 150)


@pytest.mark.slow
def test_thousands_of_requests(fuzzed, call):
    _fuzz_grpc(call, 2_500)
    _fuzz_rest(fuzzed, 2_500)
