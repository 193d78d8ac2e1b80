"""Requests made of tensorflow-serving-api alone, for tests of the server."""

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2


def predict_request(*questions, model="realm", signature="", **model_spec):
    """Questions for a model; of a `version` or `label` if one is given."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    if "version" in model_spec:
        request.model_spec.version.value = model_spec["version"]
    if "label" in model_spec:
        request.model_spec.version_label = model_spec["label"]
    request.inputs["question"].CopyFrom(
        tf.make_tensor_proto(list(questions), tf.string, [len(questions)])
    )
    return request


def slow_request(steps):
    """What takes as long as it has steps."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "realm"
    request.model_spec.signature_name = "slow"
    request.inputs["steps"].CopyFrom(tf.make_tensor_proto(steps, tf.int32))
    return request


def assert_refused(call, request, code, message):
    """Calls, and expects a status by name and a text that matches."""
    with pytest.raises(grpc.RpcError, match=message) as caught:
        call(request)
    assert caught.value.code() == grpc.StatusCode[code]
