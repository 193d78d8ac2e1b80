"""Describes TF Serving's services to gRPC's reflection.

The modules of tensorflow-serving-api that should (prediction_service_pb2,
model_service_pb2) set `has_options`, which protobuf no longer lets them, and
so cannot be imported. Their messages' modules can.

References:
    tensorflow/serving, tensorflow_serving/apis: prediction_service.proto and
    model_service.proto.
"""

from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from tensorflow_serving.apis import classification_pb2
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import inference_pb2
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import regression_pb2

_PACKAGE = "tensorflow.serving"
# (file, service): {method: (what its messages' names begin with, module)}.
_SERVICES = {
    ("prediction_service.proto", "PredictionService"): {
        "Classify": ("Classification", classification_pb2),
        "Regress": ("Regression", regression_pb2),
        "Predict": ("Predict", predict_pb2),
        "MultiInference": ("MultiInference", inference_pb2),
        "GetModelMetadata": ("GetModelMetadata", get_model_metadata_pb2),
    },
    ("model_service.proto", "ModelService"): {
        "GetModelStatus": ("GetModelStatus", get_model_status_pb2),
        "HandleReloadConfigRequest": ("ReloadConfig", model_management_pb2),
    },
}


def register() -> list[str]:
    """Adds the services to protobuf's default pool; again changes nothing.

    Returns:
        list of str, the services' full names.
    """
    names = []
    for (file_name, service_name), methods in _SERVICES.items():
        file = descriptor_pb2.FileDescriptorProto(
            name=f"tensorflow_serving/apis/{file_name}",
            package=_PACKAGE,
            syntax="proto3",
        )
        service = file.service.add(name=service_name)
        for method, (message, module) in methods.items():
            file.dependency.append(module.DESCRIPTOR.name)
            service.method.add(
                name=method,
                input_type=f".{_PACKAGE}.{message}Request",
                output_type=f".{_PACKAGE}.{message}Response",
            )
        descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
        names.append(f"{_PACKAGE}.{service_name}")
    return names
