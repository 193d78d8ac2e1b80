"""TF Serving's gRPC services over a request handler."""

import grpc
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from realm_tf.serving.request_error import DEFAULT_SIGNATURE
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import invalid
from realm_tf.serving.request_handler import PredictRequest
from realm_tf.serving.request_handler import RequestHandler
from realm_tf.serving.request_log import RequestRecord
from realm_tf.serving.request_log import choose_request_id
from realm_tf.serving.tensors import decode_tensor
from realm_tf.serving.tensors import encode_tensor

REQUEST_ID = "x-request-id"
ENTRYPOINT = "GRPC"
_METADATA_FIELD = "signature_def"
# gRPC carries details, percent-encoded, in a header of at most 8 kB.
_MAX_DETAILS_BYTES = 1024
# gRPC tells a missing deadline as one of 3e11 years.
_NO_DEADLINE_SECONDS = 1e9
# What the stock server does with the same export.
NO_EXAMPLES = "No signature of REALM takes tf.Examples: use Predict."
_NO_RELOAD = (
    "This server follows the one base path it was started with: write a new "
    "version there, or serve several models with TensorFlow Serving."
)
_NO_LABELS = (
    "This server knows no version labels: name the version, or serve the "
    "model with TensorFlow Serving."
)


def _answering(method):
    """Turns a method's `RequestError` into the call's status.

    The method gets the request's id beside the context.
    """

    def handle(self, request, context):
        sent = dict(context.invocation_metadata()).get(REQUEST_ID)
        request_id = choose_request_id(sent)
        context.set_trailing_metadata(((REQUEST_ID, request_id),))
        try:
            return method(self, request, context, request_id)
        except RequestError as error:
            details = error.message.encode()[:_MAX_DETAILS_BYTES]
            context.abort(error.code, details.decode("utf-8", "ignore"))

    return handle


def _record(method: str, request, request_id: str) -> RequestRecord:
    """What is known of a request before it is answered."""
    spec = getattr(request, "model_spec", None)
    return RequestRecord(
        method, ENTRYPOINT, spec.name if spec else "", request_id
    )


def _unimplemented(name: str, message: str):
    """A method that is refused."""

    def refuse(self, request, context, request_id):
        with self._handler.recorded(_record(name, request, request_id)):
            raise RequestError(grpc.StatusCode.UNIMPLEMENTED, message)

    return _answering(refuse)


def _version(spec) -> int | None:
    """The version that a `ModelSpec` names."""
    if spec.WhichOneof("version_choice") == "version_label":
        raise invalid(_NO_LABELS)
    return spec.version.value if spec.HasField("version") else None


class _Service:
    def __init__(self, handler: RequestHandler):
        self._handler = handler


class PredictionService(
    _Service, prediction_service_pb2_grpc.PredictionServiceServicer
):
    """`tensorflow.serving.PredictionService`.

    Args:
        handler: `RequestHandler`.
    """

    Classify = _unimplemented("Classify", NO_EXAMPLES)
    Regress = _unimplemented("Regress", NO_EXAMPLES)
    MultiInference = _unimplemented("MultiInference", NO_EXAMPLES)

    @_answering
    def Predict(self, request, context, request_id):
        spec = request.model_spec

        def read(signatures) -> PredictRequest:
            if not context.is_active():
                raise RequestError(
                    grpc.StatusCode.CANCELLED, "The client has hung up."
                )
            return PredictRequest(
                {
                    name: decode_tensor(name, proto)
                    for name, proto in request.inputs.items()
                },
                spec.signature_name,
                tuple(request.output_filter),
            )

        seconds = context.time_remaining()
        record = _record("Predict", request, request_id)
        outputs = self._handler.predict(
            record,
            read,
            version=_version(spec),
            timeout_seconds=seconds if seconds < _NO_DEADLINE_SECONDS else None,
        )
        response = predict_pb2.PredictResponse()
        response.model_spec.name = spec.name
        response.model_spec.version.value = record.version
        response.model_spec.signature_name = (
            record.signature or DEFAULT_SIGNATURE
        )
        for name, array in outputs.items():
            response.outputs[name].CopyFrom(encode_tensor(array))
        return response

    @_answering
    def GetModelMetadata(self, request, context, request_id):
        record = _record("GetModelMetadata", request, request_id)
        with self._handler.recorded(record):
            if list(request.metadata_field) != [_METADATA_FIELD]:
                raise invalid(
                    f"metadata_field is {list(request.metadata_field)}: "
                    f"expected {_METADATA_FIELD}, the only one there is."
                )
            spec, signatures = describe_model(
                self._handler,
                request.model_spec.name,
                version=_version(request.model_spec),
                record=record,
            )
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.CopyFrom(spec)
        response.metadata[_METADATA_FIELD].Pack(signatures)
        return response


class ModelService(_Service, model_service_pb2_grpc.ModelServiceServicer):
    """`tensorflow.serving.ModelService`.

    Args:
        handler: `RequestHandler`.
    """

    HandleReloadConfigRequest = _unimplemented(
        "HandleReloadConfigRequest", _NO_RELOAD
    )

    @_answering
    def GetModelStatus(self, request, context, request_id):
        record = _record("GetModelStatus", request, request_id)
        with self._handler.recorded(record):
            return status_response(
                self._handler,
                request.model_spec.name,
                version=_version(request.model_spec),
            )


def describe_model(
    handler: RequestHandler, name: str, *, version: int | None, record
) -> tuple:
    """`ModelSpec` and `SignatureDefMap` of a model.

    Args:
        handler: `RequestHandler`.
        name: str. The model.
        version: int. `None` is the one that is served.
        record: `RequestRecord`. Gets the version.

    Raises:
        RequestError: if it is not served.
    """
    record.version, definitions = handler.metadata(name, version=version)
    spec = model_pb2.ModelSpec(name=name)
    spec.version.value = record.version
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for key, definition in definitions.items():
        signatures.signature_def[key].CopyFrom(definition)
    return spec, signatures


def status_response(handler: RequestHandler, name: str, *, version: int | None):
    """`GetModelStatusResponse` of a model, highest version first.

    Args:
        handler: `RequestHandler`.
        name: str. The model.
        version: int. `None` is all.

    Raises:
        RequestError: if there is none.
    """
    response = get_model_status_pb2.GetModelStatusResponse()
    for found in handler.versions.status(name, version=version):
        item = response.model_version_status.add(
            version=found.number, state=int(found.state)
        )
        # Even an empty one, which means OK.
        item.status.SetInParent()
        item.status.error_code = found.error_code
        item.status.error_message = found.error_message
    return response
