"""Requests nobody should send: the right status, no crash, no hang."""

import json

import grpc
import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from rest_client import Client
from stock_requests import predict_request

from realm_tf.serving import server
from realm_tf.serving.client import RealmClient
from realm_tf.serving.request_handler import RequestHandler

_CODE = grpc.StatusCode
_MAX_BYTES = 4 << 20
_QUESTION = "who wrote frankenstein?"
few = settings(
    max_examples=150,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def fuzzed(saved_model):
    """A server, which answers a question in the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RequestHandler, "max_message_bytes", _MAX_BYTES)
        with server.start(saved_model) as running:
            yield running
            with RealmClient(running.target) as client:
                assert client.ask([_QUESTION])[0].answer == "Mary Shelley"
            status, document = Client(running).post({"inputs": [_QUESTION]})
            assert status == 200
            assert document["outputs"]["answer"] == ["Mary Shelley"]


@pytest.fixture(scope="module")
def predict(fuzzed):
    """Sends bytes; gives the status."""
    with grpc.insecure_channel(fuzzed.target) as channel:
        call = channel.unary_unary(
            "/tensorflow.serving.PredictionService/Predict"
        )
        # Longer than any of these requests takes; a hang would pass it.
        yield lambda request: call.future(request, timeout=20).code()


@few
@given(st.binary(max_size=300), st.integers(0, 40), st.integers(0, 5))
def test_grpc(predict, data, position, num_cut):
    # Bytes, and a request that others have been written into.
    valid = predict_request(_QUESTION).SerializeToString()
    position = min(position, len(valid))
    torn = valid[:position] + data + valid[position + num_cut :]
    for request in (data, torn):
        assert predict(request) in (
            _CODE.OK,
            _CODE.INVALID_ARGUMENT,
            _CODE.NOT_FOUND,
            _CODE.FAILED_PRECONDITION,
            # What gRPC says of bytes that are no message.
            _CODE.INTERNAL,
        )


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
        *("/v1/models/realm:predict", "/v1/models/realm/versions/2:predict"),
        "/v1/models/realm/versions/7:predict",
        *("/v1/models/realm/labels/a:predict", "/v1/models/other:predict"),
        *("/v1/models/realm:classify", "/v1/models/realm/metadata"),
        "/v1/models/%00",
        "/v1/models/realm/versions/99999999999999999999999:predict",
        "/v2/health",
    ]
)


@few
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH"]), _PATHS, _BODIES
)
def test_rest(fuzzed, method, path, body):
    try:
        status, _, answer = Client(fuzzed).call(method, path, body)
    except ConnectionError:
        # A server may hang up on a body that it will not read.
        assert len(body) > _MAX_BYTES
        return
    assert status in (200, 400, 404, 405, 413, 501)
    if status != 200:
        assert json.loads(answer)["error"]
