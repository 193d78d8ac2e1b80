"""TF Serving's gRPC services over loaded SavedModels."""

import math
from collections.abc import Mapping

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from serving import messages
from serving.servable import DEFAULT_SIGNATURE
from serving.servable import RequestError
from serving.servable import SavedModelServable

_METADATA_FIELD = "signature_def"
_INVALID = grpc.StatusCode.INVALID_ARGUMENT
# gRPC carries details, percent-encoded, in a header of at most 8 kB.
_MAX_DETAILS_BYTES = 1024
# TensorFlow fills a tensor of any shape from one value, so a request of a
# few bytes could ask for terabytes. Our choice.
_MAX_FILLED_ELEMENTS = 1 << 16
# gRPC tells a missing deadline as one of 3e11 years.
_NO_DEADLINE_SECONDS = 1e9
# As TF Serving's default: clients read these fields directly.
_VALUE_FIELDS = {
    tf.float32: "float_val",
    tf.float64: "double_val",
    tf.int32: "int_val",
    tf.int64: "int64_val",
    tf.bool: "bool_val",
    tf.string: "string_val",
}


def decode_tensor(name: str, proto) -> np.ndarray:
    """An input as TensorFlow reads it, in either encoding.

    Args:
        name: str. The input's name, for errors.
        proto: `tensorflow.TensorProto`.

    Returns:
        numpy array; strings as bytes in an array of dtype object.

    Raises:
        RequestError: if it is not a tensor.
    """
    try:
        if not tf.as_dtype(proto.dtype).is_numpy_compatible:
            raise ValueError(f"dtype {proto.dtype} holds no values")
        sizes = _known_sizes(proto)
        # Not tf.io.parse_tensor: it logs what it cannot read, questions too.
        if proto.dtype == tf.string.as_datatype_enum and proto.tensor_content:
            strings = messages.split_strings(
                proto.tensor_content, math.prod(sizes)
            )
            return np.array(strings, dtype=object).reshape(sizes)
        return np.asarray(tf.make_ndarray(proto))
    except (TypeError, ValueError) as error:
        raise RequestError(
            _INVALID, f"tensor parsing error: {name}: {error}"
        ) from error


def _known_sizes(proto) -> list[int]:
    """The tensor's shape, if its values can have been sent."""
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or min(sizes, default=0) < 0:
        raise ValueError("its shape is not fully known")
    count = math.prod(sizes)
    # No value takes less than a byte in either encoding.
    if count > max(proto.ByteSize(), _MAX_FILLED_ELEMENTS):
        raise ValueError(
            f"its shape {sizes} needs {count} values, which were not sent"
        )
    return sizes


def encode_tensor(array: np.ndarray):
    """An output in repeated fields, as TF Serving sends it.

    Args:
        array: numpy array; strings as bytes in an array of dtype object.

    Returns:
        `tensorflow.TensorProto`.
    """
    dtype = tf.as_dtype(array.dtype)
    if dtype not in _VALUE_FIELDS:
        return tf.make_tensor_proto(array)
    proto = tf.make_tensor_proto([], dtype=dtype, shape=[0])
    proto.tensor_shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
    getattr(proto, _VALUE_FIELDS[dtype]).extend(array.ravel().tolist())
    return proto


class Models:
    """The loaded versions by name: what the services look a request up in.

    Args:
        versions: mapping of model name to mapping of version to servable.
    """

    def __init__(self, versions: Mapping[str, Mapping[int, object]]):
        self._versions = {k: dict(v) for k, v in versions.items()}

    def find(self, model_spec) -> tuple[int, SavedModelServable]:
        """The servable that a request asks for.

        Args:
            model_spec: `tensorflow.serving.ModelSpec`. Without a version,
                the highest is meant.

        Returns:
            version, servable.

        Raises:
            RequestError: if it is not loaded.
        """
        name = model_spec.name
        if not name:
            raise RequestError(_INVALID, "ModelSpec has no name specified.")
        if model_spec.WhichOneof("version_choice") == "version_label":
            raise RequestError(
                _INVALID,
                "Unrecognized servable version label: "
                f"{model_spec.version_label}",
            )
        versions = self._versions.get(name, {})
        if model_spec.HasField("version"):
            version = model_spec.version.value
            asked = f"Specific({name}, {version})"
        else:
            version = max(versions, default=None)
            asked = f"Latest({name})"
        if version not in versions:
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Servable not found for request: {asked}",
            )
        return version, versions[version]

    def versions(self, model_spec) -> list[int]:
        """The loaded versions that a status request asks for, highest first.

        Raises:
            RequestError: if there are none.
        """
        name = model_spec.name
        versions = sorted(self._versions.get(name, {}), reverse=True)
        if not versions:
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Could not find any versions of model {name}",
            )
        if not model_spec.HasField("version"):
            return versions
        version = model_spec.version.value
        if version not in versions:
            raise RequestError(
                grpc.StatusCode.NOT_FOUND,
                f"Could not find version {version} of model {name}",
            )
        return [version]


def _seconds_left(context) -> float | None:
    """What is left of the client's deadline; `None` if it set none."""
    seconds = context.time_remaining()
    return seconds if seconds < _NO_DEADLINE_SECONDS else None


def _answering(method):
    """Turns a handler's `RequestError` into the call's status."""

    def handle(self, request, context):
        try:
            if not context.is_active():
                # It waited for a thread longer than its client would.
                raise RequestError(
                    grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline exceeded."
                )
            if not request.HasField("model_spec"):
                raise RequestError(_INVALID, "Missing ModelSpec")
            return method(self, request, context)
        except RequestError as error:
            details = error.message.encode()[:_MAX_DETAILS_BYTES]
            context.abort(error.code, details.decode("utf-8", "ignore"))

    return handle


def _unimplemented(self, request, context):
    context.abort(
        grpc.StatusCode.UNIMPLEMENTED,
        "This server answers Predict, GetModelMetadata and GetModelStatus.",
    )


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """`tensorflow.serving.PredictionService` over `Models`."""

    def __init__(self, models: Models):
        self._models = models

    Classify = Regress = MultiInference = _unimplemented

    @_answering
    def Predict(self, request, context):
        version, servable = self._models.find(request.model_spec)
        signature = request.model_spec.signature_name or DEFAULT_SIGNATURE
        outputs = servable.run(
            {
                name: decode_tensor(name, proto)
                for name, proto in request.inputs.items()
            },
            signature=signature,
            output_filter=request.output_filter,
            timeout_seconds=_seconds_left(context),
        )
        response = predict_pb2.PredictResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = version
        response.model_spec.signature_name = signature
        for name, array in outputs.items():
            response.outputs[name].CopyFrom(encode_tensor(array))
        return response

    @_answering
    def GetModelMetadata(self, request, context):
        if not request.metadata_field:
            raise RequestError(
                _INVALID,
                "GetModelMetadataRequest must specify at least one "
                "metadata_field",
            )
        for field in request.metadata_field:
            if field != _METADATA_FIELD:
                raise RequestError(
                    _INVALID, f"Metadata field {field} is not supported"
                )
        version, servable = self._models.find(request.model_spec)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, definition in servable.signature_defs.items():
            signatures.signature_def[name].CopyFrom(definition)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = version
        response.metadata[_METADATA_FIELD].Pack(signatures)
        return response


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """`tensorflow.serving.ModelService` over `Models`."""

    def __init__(self, models: Models):
        self._models = models

    HandleReloadConfigRequest = _unimplemented

    @_answering
    def GetModelStatus(self, request, context):
        response = get_model_status_pb2.GetModelStatusResponse()
        for version in self._models.versions(request.model_spec):
            status = response.model_version_status.add(version=version)
            status.state = get_model_status_pb2.ModelVersionStatus.AVAILABLE
            # An empty message means OK.
            status.status.SetInParent()
        return response
