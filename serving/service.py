"""TF Serving's gRPC services over a request handler."""

import grpc
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from realm_tf.serving.request_error import DEFAULT_SIGNATURE
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_handler import EXAMPLE_METHODS
from realm_tf.serving.request_handler import RequestHandler
from realm_tf.serving.request_handler import examples_refusal
from realm_tf.serving.request_log import choose_request_id
from realm_tf.serving.tensors import decode_tensor
from realm_tf.serving.tensors import encode_tensor

REQUEST_ID = "x-request-id"
_ENTRYPOINT = "GRPC"
_METADATA_FIELD = "signature_def"
_INVALID = grpc.StatusCode.INVALID_ARGUMENT
# gRPC carries details, percent-encoded, in a header of at most 8 kB.
_MAX_DETAILS_BYTES = 1024
# gRPC tells a missing deadline as one of 3e11 years.
_NO_DEADLINE_SECONDS = 1e9


def _seconds_left(context) -> float | None:
    """What is left of the client's deadline; `None` if it set none."""
    seconds = context.time_remaining()
    return seconds if seconds < _NO_DEADLINE_SECONDS else None


def _version_choice(model_spec) -> dict:
    """The version of a `ModelSpec` as arguments of the handler."""
    choice = model_spec.WhichOneof("version_choice")
    return {
        "version": model_spec.version.value if choice == "version" else None,
        "label": model_spec.version_label
        if choice == "version_label"
        else None,
    }


def _answering(method):
    """Turns a method's `RequestError` into the call's status.

    The method gets the request's id in place of the context's metadata.
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


class _Service:
    def __init__(self, handler: RequestHandler):
        self._handler = handler

    def _recorded(self, method: str, model: str, request_id: str):
        return self._handler.recorded(
            method, model=model, entrypoint=_ENTRYPOINT, request_id=request_id
        )

    def _model_spec(self, method: str, request, request_id: str):
        """The request's `ModelSpec`, refused if it has none."""
        if not request.HasField("model_spec"):
            with self._recorded(method, "", request_id):
                raise RequestError(_INVALID, "Missing ModelSpec")
        return request.model_spec


class PredictionService(
    _Service, prediction_service_pb2_grpc.PredictionServiceServicer
):
    """`tensorflow.serving.PredictionService`.

    Args:
        handler: `RequestHandler`.
    """

    @_answering
    def Predict(self, request, context, request_id):
        spec = self._model_spec("Predict", request, request_id)

        def decode() -> dict:
            if not context.is_active():
                raise RequestError(
                    grpc.StatusCode.CANCELLED, "The client has hung up."
                )
            return {
                name: decode_tensor(name, proto)
                for name, proto in request.inputs.items()
            }

        prediction = self._handler.predict(
            spec.name,
            decode,
            **_version_choice(spec),
            signature=spec.signature_name,
            output_filter=request.output_filter,
            timeout_seconds=_seconds_left(context),
            entrypoint=_ENTRYPOINT,
            request_id=request_id,
        )
        response = predict_pb2.PredictResponse()
        response.model_spec.name = spec.name
        response.model_spec.version.value = prediction.version
        response.model_spec.signature_name = prediction.signature
        for name, array in prediction.outputs.items():
            response.outputs[name].CopyFrom(encode_tensor(array))
        return response

    @_answering
    def GetModelMetadata(self, request, context, request_id):
        method = "GetModelMetadata"
        spec = self._model_spec(method, request, request_id)
        with self._recorded(method, spec.name, request_id) as record:
            _check_metadata_fields(request.metadata_field)
            record.version, definitions = self._handler.metadata(
                spec.name, **_version_choice(spec)
            )
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, definition in definitions.items():
            signatures.signature_def[name].CopyFrom(definition)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = spec.name
        response.model_spec.version.value = record.version
        response.metadata[_METADATA_FIELD].Pack(signatures)
        return response

    @_answering
    def Classify(self, request, context, request_id):
        self._refuse_examples("Classify", request, request_id)

    @_answering
    def Regress(self, request, context, request_id):
        self._refuse_examples("Regress", request, request_id)

    @_answering
    def MultiInference(self, request, context, request_id):
        first = next((task.model_spec for task in request.tasks), None)
        name = first.name if first is not None else ""
        choice = _version_choice(first) if first is not None else {}
        with self._recorded("MultiInference", name, request_id) as record:
            record.version, definitions = self._handler.metadata(name, **choice)
            for task in request.tasks:
                _check_task(task, name, definitions)
            raise RequestError(_INVALID, "The request has no tasks.")

    def _refuse_examples(self, method: str, request, request_id: str) -> None:
        spec = self._model_spec(method, request, request_id)
        self._handler.refuse_examples(
            method,
            spec.name,
            **_version_choice(spec),
            signature=spec.signature_name,
            entrypoint=_ENTRYPOINT,
            request_id=request_id,
        )


def _check_metadata_fields(fields) -> None:
    if not fields:
        raise RequestError(
            _INVALID,
            "GetModelMetadataRequest must specify at least one metadata_field",
        )
    for field in fields:
        if field != _METADATA_FIELD:
            raise RequestError(
                _INVALID, f"Metadata field {field} is not supported"
            )


def _check_task(task, model: str, definitions) -> None:
    """Refuses a task in the words and order of multi_inference.cc."""
    if not task.model_spec.name:
        raise RequestError(
            _INVALID, "Found ModelSpec with an empty model name."
        )
    if task.model_spec.name != model:
        raise RequestError(
            _INVALID,
            "All ModelSpecs in a MultiInferenceRequest must access the same "
            "model name.",
        )
    signature = task.model_spec.signature_name or DEFAULT_SIGNATURE
    if signature not in definitions:
        raise RequestError(
            _INVALID,
            f"Requested signature not found in model graph: {signature}",
        )
    for method, (_, method_name) in EXAMPLE_METHODS.items():
        if task.method_name == method_name:
            raise examples_refusal(method, definitions[signature])
    raise RequestError(
        grpc.StatusCode.UNIMPLEMENTED,
        f"Unsupported signature method_name: {task.method_name}",
    )


class ModelService(_Service, model_service_pb2_grpc.ModelServiceServicer):
    """`tensorflow.serving.ModelService`.

    Args:
        handler: `RequestHandler`.
    """

    @_answering
    def GetModelStatus(self, request, context, request_id):
        method = "GetModelStatus"
        spec = self._model_spec(method, request, request_id)
        with self._recorded(method, spec.name, request_id):
            statuses = self._handler.status(spec.name, **_version_choice(spec))
        response = get_model_status_pb2.GetModelStatusResponse()
        for status in statuses:
            item = response.model_version_status.add(
                version=status.version, state=int(status.state)
            )
            # Even an empty one, which means OK.
            item.status.SetInParent()
            item.status.error_code = status.error_code
            item.status.error_message = status.error_message
        return response

    @_answering
    def HandleReloadConfigRequest(self, request, context, request_id):
        with self._recorded("HandleReloadConfigRequest", "", request_id):
            kind = request.config.WhichOneof("config")
            if kind != "model_config_list":
                raise RequestError(
                    _INVALID,
                    "ServerModelConfig type not supported by "
                    "HandleReloadConfigRequest. Only ModelConfigList is "
                    "currently supported",
                )
            self._handler.reload(request.config)
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        return response
