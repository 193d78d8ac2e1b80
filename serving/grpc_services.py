"""TF Serving's gRPC services over a request handler."""

import grpc
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from realm_tf.export import signatures
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
    """Looks for a key, keeps a record, makes of an error the call's status.

    The method gets the `RequestRecord` beside the context.
    """

    def handle(self, request, context):
        headers = dict(context.invocation_metadata())
        request_id = choose_request_id(headers.get(REQUEST_ID))
        context.set_trailing_metadata(((REQUEST_ID, request_id),))
        spec = getattr(request, "model_spec", None)
        record = RequestRecord(
            method.__name__, ENTRYPOINT, spec.name if spec else "", request_id
        )
        try:
            record.required_filter = self._handler.check_key(
                headers,
                RequestRecord(record.method, ENTRYPOINT, peer=context.peer()),
            )
            with self._handler.recorded(record):
                return method(self, request, context, record)
        except RequestError as error:
            details = error.message.encode()[:_MAX_DETAILS_BYTES]
            context.abort(error.code, details.decode("utf-8", "ignore"))

    return handle


def _unimplemented(name: str, message: str):
    """A method that is refused."""

    def refuse(self, request, context, record):
        raise RequestError(grpc.StatusCode.UNIMPLEMENTED, message)

    refuse.__name__ = name
    return _answering(refuse)


def _version(spec) -> int | None:
    """The version that a `ModelSpec` names."""
    if spec.WhichOneof("version_choice") == "version_label":
        raise invalid(_NO_LABELS)
    return spec.version.value if spec.HasField("version") else None


class GrpcServices(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    """TF Serving's `PredictionService` and `ModelService`.

    Args:
        handler: `RequestHandler`.
    """

    Classify = _unimplemented("Classify", NO_EXAMPLES)
    Regress = _unimplemented("Regress", NO_EXAMPLES)
    MultiInference = _unimplemented("MultiInference", NO_EXAMPLES)
    HandleReloadConfigRequest = _unimplemented(
        "HandleReloadConfigRequest", _NO_RELOAD
    )

    def __init__(self, handler: RequestHandler):
        self._handler = handler

    @_answering
    def Predict(self, request, context, record):
        spec = request.model_spec

        def read(definitions) -> PredictRequest:
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
        _, outputs = self._handler.predict(
            record,
            read,
            version=_version(spec),
            timeout_seconds=seconds if seconds < _NO_DEADLINE_SECONDS else None,
            required_filter=record.required_filter,
        )
        response = predict_pb2.PredictResponse()
        response.model_spec.name = spec.name
        response.model_spec.version.value = record.version
        response.model_spec.signature_name = (
            record.signature or signatures.DEFAULT
        )
        for name, array in outputs.items():
            response.outputs[name].CopyFrom(encode_tensor(array))
        return response

    @_answering
    def GetModelMetadata(self, request, context, record):
        if list(request.metadata_field) != [_METADATA_FIELD]:
            raise invalid(
                f"metadata_field is {list(request.metadata_field)}: "
                f"expected {_METADATA_FIELD}, the only one there is."
            )
        spec, signatures = describe_model(
            self._handler, record, version=_version(request.model_spec)
        )
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.CopyFrom(spec)
        response.metadata[_METADATA_FIELD].Pack(signatures)
        return response

    @_answering
    def GetModelStatus(self, request, context, record):
        return status_response(
            self._handler, record, version=_version(request.model_spec)
        )


def describe_model(
    handler: RequestHandler, record: RequestRecord, *, version: int | None
) -> tuple:
    """`ModelSpec` and `SignatureDefMap` of a model.

    Args:
        handler: `RequestHandler`.
        record: `RequestRecord`. Names the model; gets the version.
        version: int. `None` is the one that is served.

    Raises:
        RequestError: if it is not served.
    """
    with handler.versions.use(record.model, version=version) as used:
        record.version, servable = used
        definitions = servable.signature_defs
    spec = model_pb2.ModelSpec(name=record.model)
    spec.version.value = record.version
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for key, definition in definitions.items():
        signatures.signature_def[key].CopyFrom(definition)
    return spec, signatures


def status_response(
    handler: RequestHandler, record: RequestRecord, *, version: int | None
):
    """`GetModelStatusResponse` of a model, highest version first.

    Args:
        handler: `RequestHandler`.
        record: `RequestRecord`. Names the model.
        version: int. `None` is all.

    Raises:
        RequestError: if there is none.
    """
    response = get_model_status_pb2.GetModelStatusResponse()
    for found in handler.versions.status(record.model, version=version):
        item = response.model_version_status.add(
            version=found.number, state=int(found.state)
        )
        # Even an empty one, which means OK.
        item.status.SetInParent()
        item.status.error_code = found.error_code
        item.status.error_message = found.error_message
    return response
