"""TF Serving's gRPC services and grpc.health.v1 on a port."""

from concurrent import futures

import grpc
from grpc_health.v1 import health
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc

from realm_tf.artifacts.paths import Path
from realm_tf.export import signatures
from realm_tf.serving.metrics import REQUEST_ID_HEADER
from realm_tf.serving.metrics import RequestRecord
from realm_tf.serving.metrics import choose_request_id
from realm_tf.serving.options import ServerOptions
from realm_tf.serving.protos import get_model_metadata_pb2
from realm_tf.serving.protos import get_model_status_pb2
from realm_tf.serving.protos import model_pb2
from realm_tf.serving.protos import model_service_pb2_grpc
from realm_tf.serving.protos import predict_pb2
from realm_tf.serving.protos import prediction_service_pb2_grpc
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import invalid
from realm_tf.serving.request_handler import RequestHandler
from realm_tf.serving.tensors import PredictRequest
from realm_tf.serving.tensors import decode_tensor
from realm_tf.serving.tensors import encode_tensor

ENTRYPOINT = "GRPC"
_METADATA_FIELD = "signature_def"
# gRPC carries details, percent-encoded, in a header of at most 8 kB.
_MAX_DETAILS_BYTES = 1024
# gRPC tells a missing deadline as one of 3e11 years.
_NO_DEADLINE_SECONDS = 1e9
NOT_SERVED = (
    "This server answers Predict, GetModelMetadata and GetModelStatus: no "
    "signature of REALM takes tf.Examples. It follows one base path; serve "
    "several models with TensorFlow Serving."
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
        request_id = choose_request_id(headers.get(REQUEST_ID_HEADER))
        context.set_trailing_metadata(((REQUEST_ID_HEADER, request_id),))
        record = RequestRecord(
            method.__name__, ENTRYPOINT, request.model_spec.name, request_id
        )
        try:
            self._handler.check_key(headers, record, context.peer())
            with self._handler.recorded(record):
                return method(self, request, context, record)
        except RequestError as error:
            details = error.message.encode()[:_MAX_DETAILS_BYTES]
            context.abort(error.code, details.decode("utf-8", "ignore"))

    return handle


def _refuse(self, request, context):
    """What TF Serving has and this server has not."""
    context.abort(grpc.StatusCode.UNIMPLEMENTED, NOT_SERVED)


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

    Classify = Regress = MultiInference = HandleReloadConfigRequest = _refuse

    def __init__(self, handler: RequestHandler):
        self._handler = handler

    @_answering
    def Predict(self, request, context, record):
        spec = request.model_spec

        def read(definitions) -> PredictRequest:
            return PredictRequest(
                {
                    name: decode_tensor(name, proto)
                    for name, proto in request.inputs.items()
                },
                spec.signature_name,
                tuple(request.output_filter),
            )

        seconds = context.time_remaining()
        with self._handler.admitted():
            _, outputs = self._handler.predict(
                record,
                read,
                version=_version(spec),
                timeout_seconds=(
                    seconds if seconds < _NO_DEADLINE_SECONDS else None
                ),
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


_CHANNEL_OPTIONS = (
    # As TF Serving (main.cc) for answers: the largest int32.
    ("grpc.max_send_message_length", 2**31 - 1),
    # Or a second server on the port would get half of the calls.
    ("grpc.so_reuseport", 0),
    # Clients that say nothing, or are gone without a word (our choice).
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)
# The empty name is the server as a whole.
_HEALTH_NAMES = (
    "",
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
)


class GrpcServer:
    """The services on a port.

    Args:
        handler: `RequestHandler`.
        options: `ServerOptions`.

    Attributes:
        target: str. `"HOST:PORT"`.

    Raises:
        RuntimeError: if the port has been taken since it was looked at.
    """

    def __init__(self, handler: RequestHandler, options: ServerOptions):
        self._handler = handler
        # TensorFlow computes outside the interpreter lock, in threads of its
        # own; these wait for it, or for a batch.
        threads = futures.ThreadPoolExecutor(options.num_threads, "grpc")
        self._server = grpc.server(
            threads,
            options=(
                *_CHANNEL_OPTIONS,
                ("grpc.max_receive_message_length", handler.max_message_bytes),
            ),
        )
        host = f"[{options.host}]" if ":" in options.host else options.host
        wanted = f"{host}:{options.grpc_port}"
        if options.tls:
            chain, key = (Path(path).read_bytes() for path in options.tls)
            ca = options.tls_client_ca
            credentials = grpc.ssl_server_credentials(
                [(key, chain)],
                root_certificates=Path(ca).read_bytes() if ca else None,
                require_client_auth=ca is not None,
            )
            port = self._server.add_secure_port(wanted, credentials)
        else:
            port = self._server.add_insecure_port(wanted)
        self.target = f"{host}:{port}"
        self._health = health.HealthServicer()
        self.update_health()
        services = GrpcServices(handler)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            services, self._server
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            services, self._server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._server.start()

    def update_health(self) -> None:
        """grpc.health.v1: SERVING while a request would be answered."""
        status = (
            health_pb2.HealthCheckResponse.SERVING
            if self._handler.is_ready()
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in _HEALTH_NAMES:
            self._health.set(name, status)

    def stop(self, *, grace_seconds: float):
        """Refuses new calls and lets running ones finish.

        Args:
            grace_seconds: float. Calls still running after it are
                cancelled.

        Returns:
            threading.Event, set when none is left.
        """
        self._health.enter_graceful_shutdown()
        return self._server.stop(grace_seconds)
