"""The gRPC services as a stock client sees them, over a fake servable."""

import grpc
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha import reflection_pb2_grpc
from tensorflow_serving.apis import classification_pb2
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import inference_pb2
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.apis import regression_pb2

CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"
PREDICT = "tensorflow/serving/predict"


@pytest.fixture
def channel(serve_fake, fake_servable):
    fake_servable.let_go.set()
    with grpc.insecure_channel(serve_fake().target) as channel:
        yield channel


@pytest.fixture
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture
def model_stub(channel):
    return model_service_pb2_grpc.ModelServiceStub(channel)


def assert_refused(call, request, code, message):
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=10)
    assert caught.value.code() == grpc.StatusCode[code]
    assert caught.value.details() == message


def with_spec(message, **model_spec):
    message.model_spec.name = model_spec.pop("name", "realm")
    version = model_spec.pop("version", None)
    if version is not None:
        message.model_spec.version.value = version
    for field, value in model_spec.items():
        setattr(message.model_spec, field, value)
    return message


def predict_request(**model_spec):
    request = with_spec(predict_pb2.PredictRequest(), **model_spec)
    request.inputs["question"].CopyFrom(tf.make_tensor_proto(["x"], tf.string))
    return request


@pytest.mark.parametrize(
    "make, word, method_name",
    [
        (classification_pb2.ClassificationRequest, "classification", CLASSIFY),
        (regression_pb2.RegressionRequest, "regression", REGRESS),
    ],
)
def test_classify_and_regress_of_a_predict_signature(
    stub, make, word, method_name
):
    call = stub.Classify if method_name == CLASSIFY else stub.Regress
    for request, code, message in (
        (make(), "INVALID_ARGUMENT", "Missing ModelSpec"),
        (
            with_spec(make(), name="other"),
            "NOT_FOUND",
            "Servable not found for request: Latest(other)",
        ),
        (
            with_spec(make(), signature_name="nope"),
            "INVALID_ARGUMENT",
            "No signature was found with the name: nope",
        ),
        (
            with_spec(make(), version=1),
            "INVALID_ARGUMENT",
            f"Expected {word} signature method_name to be {method_name}. "
            f"Was: {PREDICT}",
        ),
    ):
        assert_refused(call, request, code, message)


def multi_inference(*tasks):
    request = inference_pb2.MultiInferenceRequest()
    for method_name, spec in tasks:
        with_spec(request.tasks.add(method_name=method_name), **spec)
    return request


@pytest.mark.parametrize(
    "tasks, code, message",
    [
        ([], "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        (
            [(CLASSIFY, {"name": "other"})],
            "NOT_FOUND",
            "Servable not found for request: Latest(other)",
        ),
        (
            [(CLASSIFY, {})],
            "INVALID_ARGUMENT",
            f"Expected classification signature method_name to be {CLASSIFY}. "
            f"Was: {PREDICT}",
        ),
        (
            [(REGRESS, {})],
            "INVALID_ARGUMENT",
            f"Expected regression signature method_name to be {REGRESS}. "
            f"Was: {PREDICT}",
        ),
        (
            [(REGRESS, {"signature_name": "nope"})],
            "INVALID_ARGUMENT",
            "Requested signature not found in model graph: nope",
        ),
        (
            [(PREDICT, {})],
            "UNIMPLEMENTED",
            f"Unsupported signature method_name: {PREDICT}",
        ),
    ],
)
def test_multi_inference(stub, tasks, code, message):
    assert_refused(stub.MultiInference, multi_inference(*tasks), code, message)


def test_metadata_errors(stub):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    call = stub.GetModelMetadata
    assert_refused(call, request, "INVALID_ARGUMENT", "Missing ModelSpec")
    with_spec(request)
    assert_refused(
        call,
        request,
        "INVALID_ARGUMENT",
        "GetModelMetadataRequest must specify at least one metadata_field",
    )
    request.metadata_field.append("nope")
    assert_refused(
        call,
        request,
        "INVALID_ARGUMENT",
        "Metadata field nope is not supported",
    )


def test_status_errors(model_stub):
    request = get_model_status_pb2.GetModelStatusRequest()
    call = model_stub.GetModelStatus
    assert_refused(call, request, "INVALID_ARGUMENT", "Missing ModelSpec")
    assert_refused(
        call,
        with_spec(request, version=9),
        "NOT_FOUND",
        "Could not find version 9 of model realm",
    )
    assert_refused(
        call,
        with_spec(request, version_label="stable"),
        "INVALID_ARGUMENT",
        "Unrecognized servable version label: stable",
    )


def test_reload_needs_a_list_of_models(model_stub):
    call = model_stub.HandleReloadConfigRequest
    request = model_management_pb2.ReloadConfigRequest()
    for _ in range(2):
        assert_refused(
            call,
            request,
            "INVALID_ARGUMENT",
            "ServerModelConfig type not supported by "
            "HandleReloadConfigRequest. Only ModelConfigList is currently "
            "supported",
        )
        request.config.custom_model_config.SetInParent()


def test_reload_to_no_models(model_stub, stub):
    request = model_management_pb2.ReloadConfigRequest()
    request.config.model_config_list.SetInParent()
    response = model_stub.HandleReloadConfigRequest(request, timeout=10)
    assert response.HasField("status")
    assert response.status.error_code == 0
    assert_refused(
        stub.Predict,
        predict_request(),
        "NOT_FOUND",
        "Servable not found for request: Latest(realm)",
    )


def test_the_request_id_comes_back(stub):
    _, call = stub.Predict.with_call(
        predict_request(), timeout=10, metadata=(("x-request-id", "mine"),)
    )
    assert dict(call.trailing_metadata())["x-request-id"] == "mine"
    call = stub.Predict.future(
        predict_request(name="other"),
        timeout=10,
        metadata=(("x-request-id", "x" * 500),),
    )
    assert call.code() == grpc.StatusCode.NOT_FOUND
    made = dict(call.trailing_metadata())["x-request-id"]
    assert len(made) == 16


def test_long_errors_are_cut(stub):
    call = stub.Predict.future(predict_request(name="é" * 5000), timeout=10)
    assert call.code() == grpc.StatusCode.NOT_FOUND
    assert 1000 < len(call.details().encode()) <= 1024


def test_reflection_tells_services_and_their_messages(channel):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(
            file_containing_symbol="tensorflow.serving.PredictionService"
        ),
        reflection_pb2.ServerReflectionRequest(
            file_containing_symbol="tensorflow.serving.ModelService"
        ),
    ]
    listed, file, model_file = stub.ServerReflectionInfo(
        iter(requests), timeout=10
    )
    names = {found.name for found in listed.list_services_response.service}
    assert names == {
        "tensorflow.serving.PredictionService",
        "tensorflow.serving.ModelService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    described = descriptor_pb2.FileDescriptorProto.FromString(
        file.file_descriptor_response.file_descriptor_proto[0]
    )
    (service,) = described.service
    assert "Predict" in [method.name for method in service.method]
    described = descriptor_pb2.FileDescriptorProto.FromString(
        model_file.file_descriptor_response.file_descriptor_proto[0]
    )
    (service,) = described.service
    assert {method.name: method.output_type for method in service.method} == {
        "GetModelStatus": ".tensorflow.serving.GetModelStatusResponse",
        "HandleReloadConfigRequest": (
            ".tensorflow.serving.ReloadConfigResponse"
        ),
    }
