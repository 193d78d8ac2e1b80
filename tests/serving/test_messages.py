import numpy as np
import pytest
import tensorflow as tf
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
        request.model_spec.signature_name = "serving_default"
    ours.inputs.add(key="question", value=client.encode_strings(["a", "b"]))
    theirs.inputs["question"].CopyFrom(tf.make_tensor_proto(["a", "b"]))
    assert ours.SerializeToString() == theirs.SerializeToString()
    parsed = predict_pb2.PredictRequest.FromString(ours.SerializeToString())
    assert parsed == theirs

    response = predict_pb2.PredictResponse()
    scores = np.array([1.5, 2.5], np.float32)
    response.outputs["score"].CopyFrom(encode_tensor(scores))
    ours = wire.PredictResponse.FromString(response.SerializeToString())
    assert client.decode_tensor(ours.outputs[0].value) == [1.5, 2.5]
    assert ours.SerializeToString() == response.SerializeToString()
