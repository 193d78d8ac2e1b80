import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import error_codes_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import predict_pb2

from realm_tf.serving import client
from realm_tf.serving.client import wire
from realm_tf.serving.tensors import encode_tensor

VALUES = [
    (tf.string, [[b"a", b"", b"\xff"], [b"caf\xc3\xa9", b"x" * 300, b"\0"]]),
    (tf.float32, [[1.5, -0.0, 3.0], [2.0**-100, 2.0, -7.25]]),
    (tf.int64, [[1, -2, 3], [2**63 - 1, -(2**63), 0]]),
    (tf.bool, [[True, False], [False, True]]),
]


@pytest.mark.parametrize("dtype, values", VALUES)
def test_decodes_what_servers_encode(dtype, values):
    array = np.array(values, dtype.as_numpy_dtype)
    theirs = encode_tensor(array)
    ours = wire.Tensor.FromString(theirs.SerializeToString())
    assert client.decode_tensor(ours) == values
    # And back: not a byte is lost.
    assert ours.SerializeToString() == theirs.SerializeToString()


def test_encoded_strings_are_tensorflows():
    texts = ["who?", "", "Café 東京 🏯", "lone \ud800 surrogate"]
    ours = client.encode_strings(texts)
    theirs = tf.make_tensor_proto(
        [t.encode("utf-8", "replace") for t in texts], tf.string
    )
    assert ours.SerializeToString() == theirs.SerializeToString()


def test_predict_messages_are_equal_on_the_wire():
    ours = wire.PredictRequest()
    theirs = predict_pb2.PredictRequest()
    for request in (ours, theirs):
        request.model_spec.name = "realm"
        request.model_spec.version.value = 3
        request.model_spec.signature_name = "serving_default"
    ours.inputs.add(key="question", value=client.encode_strings(["a", "b"]))
    theirs.inputs["question"].CopyFrom(tf.make_tensor_proto(["a", "b"]))
    assert ours.SerializeToString() == theirs.SerializeToString()
    parsed = predict_pb2.PredictRequest.FromString(ours.SerializeToString())
    assert parsed == theirs

    response = predict_pb2.PredictResponse()
    response.model_spec.version.value = 3
    scores = np.array([1.5, 2.5], np.float32)
    response.outputs["score"].CopyFrom(encode_tensor(scores))
    ours = wire.PredictResponse.FromString(response.SerializeToString())
    assert client.decode_tensor(ours.outputs[0].value) == [1.5, 2.5]
    assert ours.SerializeToString() == response.SerializeToString()


def test_status_messages_are_equal_on_the_wire():
    ours = wire.GetModelStatusRequest()
    theirs = get_model_status_pb2.GetModelStatusRequest()
    for request in (ours, theirs):
        request.model_spec.name = "realm"
        request.model_spec.version.value = 7
    assert ours.SerializeToString() == theirs.SerializeToString()

    response = get_model_status_pb2.GetModelStatusResponse()
    states = get_model_status_pb2.ModelVersionStatus.State
    for version, state in enumerate(states.values()):
        one = response.model_version_status.add(version=version, state=state)
        one.status.error_code = error_codes_pb2.UNAVAILABLE
        one.status.error_message = "é" * version
    ours = wire.GetModelStatusResponse.FromString(response.SerializeToString())
    assert [one.version for one in ours.model_version_status] == list(range(6))
    assert ours.model_version_status[2].status.error_code == 14
    assert ours.SerializeToString() == response.SerializeToString()
    assert {number: name for name, number in states.items()} == {
        state.value: state.name for state in client.State
    }


def test_decodes_scalars_and_empty_tensors():
    def decode(proto):
        ours = wire.Tensor.FromString(proto.SerializeToString())
        return client.decode_tensor(ours)

    assert decode(tf.make_tensor_proto(2.5)) == 2.5
    assert decode(tf.make_tensor_proto(b"one")) == b"one"
    empty = np.zeros([2, 0, 3], np.int64)
    assert decode(tf.make_tensor_proto(empty)) == [[], []]
    assert decode(tf.make_tensor_proto([], tf.string, shape=[0])) == []


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"dtype": 2}, "dtype 2 is none of"),
        ({"dtype": 1, "float_val": [1.0] * 4}, "4 values for a tensor of"),
        ({"dtype": 7}, "0 values for"),
    ],
)
def test_refuses_broken_tensors(fields, message):
    tensor = wire.Tensor(**fields)
    tensor.tensor_shape.dim.add(size=3)
    with pytest.raises(ValueError, match=message):
        client.decode_tensor(tensor)
