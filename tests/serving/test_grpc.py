"""What a stock gRPC client of TF Serving gets from the server."""

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
    response = stub.Predict(request)
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


def test_output_filter_and_version_are_honoured(stub):
    request = predict_request("x", version=2, signature="serving_default")
    request.output_filter.append("block_id")
    response = stub.Predict(request)
    assert list(response.outputs) == ["block_id"]


@pytest.mark.parametrize(
    "changes, code, message",
    [
        ({"model": "other"}, "NOT_FOUND", r"Latest\(other\)"),
        ({"model": ""}, "INVALID_ARGUMENT", "ModelSpec has no name specified"),
        ({"version": 7}, "NOT_FOUND", r"Servable .* Specific\(realm, 7\)"),
        ({"label": "a"}, "INVALID_ARGUMENT", "knows no version labels"),
        ({"signature": "nope"}, "FAILED_PRECONDITION", '"nope" not found'),
        ({"num_rows": 129}, "INVALID_ARGUMENT", "has 129 rows, more than"),
        ({"shape": [-1]}, "INVALID_ARGUMENT", "not fully known"),
        ({"shape": [1 << 40]}, "INVALID_ARGUMENT", "which were not sent"),
        ({"shape": [1, 1]}, "INVALID_ARGUMENT", "must be string of shape"),
        ({"shape": [1] * 40}, "INVALID_ARGUMENT", "must be string of shape"),
        ({"shape": [1] * 100}, "INVALID_ARGUMENT", "tensor parsing error"),
        ({"num_bytes": 65 << 20}, "RESOURCE_EXHAUSTED", "larger than max"),
    ],
)
def test_requests_that_are_refused(stub, changes, code, message):
    changes = dict(changes)
    shape = changes.pop("shape", None)
    texts = ["w" * changes.pop("num_bytes", 3)] * changes.pop("num_rows", 1)
    request = predict_request(*texts, **changes)
    if shape:
        del request.inputs["question"].tensor_shape.dim[:]
        for size in shape:
            request.inputs["question"].tensor_shape.dim.add(size=size)
    assert_refused(stub.Predict, request, code, message)


def test_long_questions_are_cut_before_they_are_read(stub):
    # A megabyte each would take gigabytes to tokenise.
    questions = ["x" * (1 << 20)] * 3 + ["where is the Eiffel Tower?"]
    response = stub.Predict(predict_request(*questions))
    answers = list(response.outputs["answer"].string_val)
    assert answers == [b""] * 3 + [b"Paris"]


def test_strings_in_tensor_content_are_read(stub):
    question = b"where is the eiffel tower?"
    request = predict_request("x")
    request.inputs["question"].ClearField("string_val")
    request.inputs["question"].tensor_content = (
        bytes([len(question)]) + question
    )
    response = stub.Predict(request)
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
    response = stub.GetModelMetadata(request)
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
    (status,) = stub.GetModelStatus(request).model_version_status
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
    request.model_spec.ClearField("version")
    words = "Could not find any versions of model other"
    assert_refused(stub.GetModelStatus, request, "NOT_FOUND", words)
    health = health_pb2_grpc.HealthStub(channel)
    for name in ("", "tensorflow.serving.PredictionService"):
        check = health_pb2.HealthCheckRequest(service=name)
        assert health.Check(check).status == (
            health_pb2.HealthCheckResponse.SERVING
        )


def test_a_deadline_ends_the_run(stub):
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(slow_request(2**31 - 1), timeout=0.3)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    # The server is free again.
    assert stub.Predict(predict_request("x")).outputs


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
