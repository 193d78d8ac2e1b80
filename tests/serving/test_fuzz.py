"""Requests nobody should send: the right status, no crash, no hang.

Each request has one defect, drawn with the status that it must get, or is
noise. A few hundred in the default run; `-m slow` sends 10,000.
"""

import contextlib
import http.client
import json
import string
import urllib.parse

import grpc
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from tensorflow_serving.apis import predict_pb2

from realm_tf.serving import server
from realm_tf.serving.request_handler import RequestHandler

_CODE = grpc.StatusCode
# Longer than any of these requests takes; a hang would pass it.
_SECONDS = 20
_MAX_BYTES = 4 << 20
_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_WORDS = st.text(string.ascii_letters, min_size=1, max_size=12)
_STRINGS = st.one_of(
    st.text(max_size=50).map(lambda text: text.encode("utf-8", "replace")),
    # Not UTF-8, and longer than any question.
    st.binary(max_size=50),
    st.just(b"who " * 5000),
)
_KNOWN = {"question", "steps"}


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


def _valid(strings=(b"who wrote frankenstein?",)):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "realm"
    request.inputs["question"].CopyFrom(
        tf.make_tensor_proto(list(strings), tf.string, shape=[len(strings)])
    )
    return request


def _change(field):
    """A function that makes a request with this of the model_spec changed."""

    def set_field(value):
        request = _valid()
        if field == "version":
            request.model_spec.version.value = value
        else:
            setattr(request.model_spec, field, value)
        return request

    return set_field


def _with_input(name, proto):
    request = _valid()
    request.inputs[name].CopyFrom(proto)
    return request


def _tensor(values, dtype, shape):
    proto = tf.make_tensor_proto([], dtype=dtype, shape=[0])
    del proto.tensor_shape.dim[:]
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    proto.string_val.extend(values)
    return proto


_NUMBERS = st.sampled_from([tf.float32, tf.int32, tf.int64, tf.bool])
_DEFECTS = st.one_of(
    st.lists(_STRINGS, min_size=1, max_size=6).map(
        lambda strings: (_valid(strings), _CODE.OK)
    ),
    _WORDS.filter(lambda word: word != "realm").map(
        lambda name: (_change("name")(name), _CODE.NOT_FOUND)
    ),
    st.just((_change("name")(""), _CODE.INVALID_ARGUMENT)),
    st.integers(-(2**63), 2**63 - 1)
    .filter(lambda version: version != 2)
    .map(lambda version: (_change("version")(version), _CODE.NOT_FOUND)),
    _WORDS.map(
        lambda label: (_change("version_label")(label), _CODE.INVALID_ARGUMENT)
    ),
    _WORDS.filter(lambda word: word not in ("slow", "serving_default")).map(
        lambda name: (
            _change("signature_name")(name),
            _CODE.FAILED_PRECONDITION,
        )
    ),
    # An input that the signature has not.
    _WORDS.filter(lambda word: word not in _KNOWN).map(
        lambda name: (
            _with_input(name, tf.make_tensor_proto([b"x"])),
            _CODE.INVALID_ARGUMENT,
        )
    ),
    # Another type, another rank, a shape that does not fit the values.
    _NUMBERS.map(
        lambda dtype: (
            _with_input("question", tf.make_tensor_proto(np.zeros(1), dtype)),
            _CODE.INVALID_ARGUMENT,
        )
    ),
    st.integers(1, 100).map(
        lambda rank: (
            _with_input(
                "question", _tensor([b"x"], tf.string, [1] * (rank + 1))
            ),
            _CODE.INVALID_ARGUMENT,
        )
    ),
    st.lists(st.integers(-(2**62), -1), min_size=1, max_size=3).map(
        lambda shape: (
            _with_input("question", _tensor([b"x"], tf.string, shape)),
            _CODE.INVALID_ARGUMENT,
        )
    ),
    st.integers(1 << 17, 1 << 62).map(
        lambda size: (
            _with_input("question", _tensor([b"x"], tf.string, [size])),
            _CODE.INVALID_ARGUMENT,
        )
    ),
    # More rows than the server takes; longer strings are cut.
    st.integers(129, 400).map(
        lambda rows: (_valid([b"who"] * rows), _CODE.INVALID_ARGUMENT)
    ),
    st.integers(1, 3 << 20).map(lambda size: (_valid([b"x" * size]), _CODE.OK)),
    st.just((_valid([b"x" * _MAX_BYTES]), _CODE.RESOURCE_EXHAUSTED)),
)


def _check_alive(call):
    code, answer = call(_valid().SerializeToString())
    response = predict_pb2.PredictResponse.FromString(answer)
    assert code == _CODE.OK
    assert response.outputs["answer"].string_val[0] == b"Mary Shelley"


def _fuzz_grpc(call, num_examples):
    @_few(num_examples)
    @given(_DEFECTS)
    def defects(drawn):
        request, expected = drawn
        code, _ = call(request.SerializeToString())
        assert code == expected, request

    @_few(num_examples)
    @given(st.binary(max_size=300), st.integers(0, 40), st.integers(0, 5))
    def noise(data, position, num_cut):
        # Bytes, and a request that others have been written into.
        valid = _valid().SerializeToString()
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

    defects()
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
def test_ten_thousand_requests(fuzzed, call):
    _fuzz_grpc(call, 2_500)
    _fuzz_rest(fuzzed, 2_500)
