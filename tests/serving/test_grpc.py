"""What a stock gRPC client of TF Serving gets from the server."""

import time

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from stock_requests import assert_refused
from stock_requests import predict_request
from stock_requests import slow_request
from tensorflow_serving.apis import classification_pb2
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import inference_pb2
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.apis import regression_pb2


@pytest.fixture(scope="module")
def channel(running):
    with grpc.insecure_channel(running.target) as channel:
        yield channel


@pytest.fixture(scope="module")
def stub(channel):
    """The stock client."""
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def test_stock_client_gets_answers_of_the_highest_version(stub, rows):
    request = predict_request("who wrote FRANKENSTEIN?", "")
    response = stub.Predict(request, timeout=10)
    assert response.model_spec.name == "realm"
    assert response.model_spec.version.value == 2
    assert response.model_spec.signature_name == "serving_default"
    # In repeated fields, which many clients read directly.
    assert list(response.outputs["answer"].string_val) == [b"Mary Shelley", b""]
    assert list(response.outputs["score"].float_val) == [112.5, 0.0]
    assert list(response.outputs["block_id"].int64_val) == [7, -1]
    titles = tf.make_ndarray(response.outputs["candidate_title"])
    assert titles.shape == (2, 3)
    assert titles[0].tolist() == [b"Frankenstein", b"London", b""]
    assert len(response.outputs) == len(rows)


def test_batches_of_any_size(stub):
    for size in (0, 1, 64):
        response = stub.Predict(
            predict_request(*["where is the Eiffel Tower?"] * size), timeout=10
        )
        answers = tf.make_ndarray(response.outputs["answer"])
        assert answers.tolist() == [b"Paris"] * size


def test_long_and_odd_questions_are_answered(stub):
    odd = ["x" * 10_000, "🤷", "\0\x1b"]
    response = stub.Predict(predict_request(*odd), timeout=10)
    assert list(response.outputs["block_id"].int64_val) == [-1, -1, -1]


def test_output_filter_and_version_are_honoured(stub):
    request = predict_request("x", version=2, signature="serving_default")
    request.output_filter.append("block_id")
    response = stub.Predict(request, timeout=10)
    assert list(response.outputs) == ["block_id"]


@pytest.mark.parametrize(
    "request_, code, message",
    [
        (
            predict_request("x", model="other"),
            "NOT_FOUND",
            r"Servable not found for request: Latest\(other\)",
        ),
        (
            predict_request("x", version=1),
            "NOT_FOUND",
            r"Servable not found for request: Specific\(realm, 1\)",
        ),
        (
            predict_request("x", label="stable"),
            "INVALID_ARGUMENT",
            "knows no version labels: .* TensorFlow Serving",
        ),
        (
            predict_request("x", model=""),
            "INVALID_ARGUMENT",
            "ModelSpec has no name specified",
        ),
        (
            predict_request("x", signature="nope"),
            "FAILED_PRECONDITION",
            'Serving signature key \\\\?"nope\\\\?" not found',
        ),
        (slow_request(-1), "INVALID_ARGUMENT", "steps are negative"),
    ],
)
def test_requests_for_something_else(stub, request_, code, message):
    assert_refused(stub.Predict, request_, code, message)


def test_wrong_inputs(stub):
    request = predict_request("x")
    request.inputs["more"].CopyFrom(request.inputs["question"])
    assert_refused(
        stub.Predict, request, "INVALID_ARGUMENT", "Sent extra: {more}"
    )
    request = predict_request("x")
    request.inputs["question"].CopyFrom(tf.make_tensor_proto([1.0, 2.0]))
    assert_refused(
        stub.Predict,
        request,
        "INVALID_ARGUMENT",
        "question must be of dtype string, received float32",
    )
    request.ClearField("inputs")
    assert_refused(
        stub.Predict,
        request,
        "INVALID_ARGUMENT",
        "Missing but required: {question}",
    )
    request = predict_request("x")
    request.output_filter.append("nope")
    assert_refused(stub.Predict, request, "INVALID_ARGUMENT", "nope")


def test_tensors_that_are_none(stub):
    def refused(message):
        assert_refused(stub.Predict, request, "INVALID_ARGUMENT", message)

    request = predict_request("x")
    # Ten bytes must not allocate terabytes.
    request.inputs["question"].tensor_shape.dim[0].size = 10**12
    refused("needs 1000000000000 values, which were not sent")
    request.inputs["question"].tensor_shape.dim[0].size = -5
    refused("tensor parsing error: question")
    request.inputs["question"].dtype = 999
    refused("tensor parsing error: question")
    request.inputs["question"].ClearField("dtype")
    refused("tensor parsing error: question")
    request = predict_request("x")
    for rank, message in ((32, "must be of shape"), (33, "33 dimensions")):
        shape = request.inputs["question"].tensor_shape
        shape.ClearField("dim")
        for _ in range(rank):
            shape.dim.add(size=1)
        refused(message)


def test_long_questions_are_cut_before_they_are_read(stub):
    # A megabyte each would take gigabytes to tokenise.
    questions = ["x" * (1 << 20)] * 20 + ["where is the Eiffel Tower?"]
    response = stub.Predict(predict_request(*questions), timeout=20)
    answers = list(response.outputs["answer"].string_val)
    assert answers == [b""] * 20 + [b"Paris"]


def test_strings_in_tensor_content_are_read(stub):
    question = b"where is the eiffel tower?"
    request = predict_request("x")
    request.inputs["question"].ClearField("string_val")
    request.inputs["question"].tensor_content = (
        bytes([len(question)]) + question
    )
    response = stub.Predict(request, timeout=10)
    assert list(response.outputs["answer"].string_val) == [b"Paris"]


def test_metadata_holds_the_signatures(stub):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "realm"
    for fields in ([], ["nope"]):
        request.metadata_field[:] = fields
        assert_refused(
            stub.GetModelMetadata,
            request,
            "INVALID_ARGUMENT",
            "expected signature_def",
        )
    request.metadata_field[:] = ["signature_def"]
    response = stub.GetModelMetadata(request, timeout=10)
    assert response.model_spec.version.value == 2
    packed = response.metadata["signature_def"]
    assert packed.type_url == (
        "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    )
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert packed.Unpack(signatures)
    default = signatures.signature_def["serving_default"]
    assert default.inputs["question"].dtype == tf.string.as_datatype_enum
    assert default.method_name == "tensorflow/serving/predict"
    request.model_spec.name = "other"
    assert_refused(stub.GetModelMetadata, request, "NOT_FOUND", "Latest")


def test_status_and_health(channel):
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "realm"
    (status,) = stub.GetModelStatus(request, timeout=10).model_version_status
    assert status.version == 2
    assert status.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE
    assert status.status.error_code == 0
    request.model_spec.version.value = 9
    assert_refused(
        stub.GetModelStatus, request, "NOT_FOUND", "version 9 of model realm"
    )
    request.model_spec.name = "other"
    assert_refused(
        stub.GetModelStatus, request, "NOT_FOUND", "version 9 of model other"
    )
    health = health_pb2_grpc.HealthStub(channel)
    for name in ("", "tensorflow.serving.PredictionService"):
        check = health_pb2.HealthCheckRequest(service=name)
        assert health.Check(check, timeout=10).status == (
            health_pb2.HealthCheckResponse.SERVING
        )


def test_a_deadline_ends_the_run(stub):
    started = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(slow_request(2**31 - 1), timeout=0.3)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - started < 5
    # The server is free again.
    assert stub.Predict(predict_request("x"), timeout=5).outputs


def test_many_clients_at_once_get_their_own_answers(stub):
    texts = ["who wrote Frankenstein?", "where is the Eiffel Tower?", "?"]
    expected = [b"Mary Shelley", b"Paris", b""]
    calls = [
        (i % 3, stub.Predict.future(predict_request(texts[i % 3]), timeout=20))
        for i in range(200)
    ]
    for kind, call in calls:
        answers = call.result().outputs["answer"].string_val
        assert list(answers) == [expected[kind]]


def test_what_the_stock_server_is_for(channel, stub):
    model_stub = model_service_pb2_grpc.ModelServiceStub(channel)
    reload = model_management_pb2.ReloadConfigRequest()
    for call, request, message in [
        (stub.Classify, classification_pb2.ClassificationRequest(), "Predict"),
        (stub.Regress, regression_pb2.RegressionRequest(), "Predict"),
        (stub.MultiInference, inference_pb2.MultiInferenceRequest(), "Predict"),
        (
            model_stub.HandleReloadConfigRequest,
            reload,
            "several models with TensorFlow Serving",
        ),
    ]:
        assert_refused(call, request, "UNIMPLEMENTED", message)


def test_the_request_id_comes_back(stub):
    _, call = stub.Predict.with_call(
        predict_request("x"), timeout=10, metadata=(("x-request-id", "mine"),)
    )
    assert dict(call.trailing_metadata())["x-request-id"] == "mine"
    call = stub.Predict.future(
        predict_request("x", model="é" * 5000),
        timeout=10,
        metadata=(("x-request-id", "x" * 500),),
    )
    assert call.code() == grpc.StatusCode.NOT_FOUND
    made = dict(call.trailing_metadata())["x-request-id"]
    assert len(made) == 16
    # Long errors are cut.
    assert 1000 < len(call.details().encode()) <= 1024
