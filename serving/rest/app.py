"""TF Serving's REST API, version 1, and the web page, over a request handler.

GET /v1/models/M[/versions/V|/labels/L][/metadata], POST the same with
:predict, :classify or :regress, GET /monitoring/prometheus/metrics. Beside
them GET / is a page to ask on and /about.json what it says about the model.

References:
    [RESTful API](https://www.tensorflow.org/tfx/serving/api_rest). Paths and
    their errors: tensorflow/serving, tensorflow_serving/model_servers/
    http_rest_api_util.cc and http_rest_api_handler.cc; HTTP statuses:
    http_server.cc beside them.
"""

import pathlib
from collections.abc import Mapping

import anyio
import grpc
from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_pb2

from realm_tf.serving import security
from realm_tf.serving.request_error import DEFAULT_SIGNATURE
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.rest import json_text as rest_json
from realm_tf.serving.rest import requests as rest_requests
from realm_tf.serving.rest import tensors as rest_tensors
from realm_tf.serving.rest.headers import HeadersMiddleware

_PAGE_DIRECTORY = pathlib.Path(__file__).with_name("page")
# TF Serving's default (prometheus_exporter.cc).
METRICS_PATH = "/monitoring/prometheus/metrics"
# TF Serving's word for this API in metrics.
_ENTRYPOINT = "REST"
# For status, metrics and refusals while all others wait; our choice.
_NUM_SPARE_THREADS = 16
_HTTP_STATUS = {
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DATA_LOSS: 500,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}
_ERROR_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    # Seconds; our choice, about the time of a batch.
    429: {"Retry-After": "1"},
    503: {"Retry-After": "1"},
}
# Shorter answers gain nothing from gzip; our choice, in bytes.
_MIN_GZIP_BYTES = 1024
# Level 9, the default, takes three times as long for 2 % less; our choice.
_GZIP_LEVEL = 5


def _json(document: Mapping, *, status: int = 200, headers=None) -> Response:
    return Response(
        rest_json.write(document),
        status_code=status,
        headers=headers,
        media_type="application/json",
    )


def _on_request_error(request: Request, error: RequestError) -> Response:
    status = _HTTP_STATUS[error.code]
    return _json(
        {"error": error.message},
        status=status,
        headers=_ERROR_HEADERS.get(status),
    )


def _on_http_error(request: Request, error: HTTPException) -> Response:
    message = error.detail
    if error.status_code in (404, 405):
        path = request.scope["raw_path"].decode("latin-1")
        message = f"Malformed request: {request.method} {path}"
    return _json(
        {"error": message}, status=error.status_code, headers=error.headers
    )


def _on_disconnect(request: Request, error: ClientDisconnect) -> Response:
    # Nobody reads it; only the log of the HTTP server shows the status.
    return Response(status_code=_HTTP_STATUS[grpc.StatusCode.CANCELLED])


def _on_bug(request: Request, error: Exception) -> Response:
    # Starlette raises it again, so that its traceback is logged.
    return _json({"error": "Internal error."}, status=500)


def _to_dict(message) -> dict:
    """A proto as TF Serving writes it: proto names, zeros included."""
    return json_format.MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


class RestApi:
    """The endpoints.

    Args:
        handler: `RequestHandler`.
        max_body_bytes: int. The longest request body, unpacked too.
        api_keys: `security.ApiKeys`, or `None`: everybody may ask.
        default_model: str. The model that the page asks.
    """

    def __init__(
        self,
        handler,
        *,
        max_body_bytes: int,
        api_keys: security.ApiKeys | None,
        default_model: str,
    ):
        self._handler = handler
        self._max_body_bytes = max_body_bytes
        self._api_keys = api_keys
        self._default_model = default_model
        self._files = StaticFiles(directory=_PAGE_DIRECTORY)
        # More than requests may be pending, so that one too many is refused
        # and does not wait.
        self._threads = anyio.CapacityLimiter(
            handler.limits.max_pending + _NUM_SPARE_THREADS
        )

    def routes(self) -> list:
        """What is answered; the page's files for every other path."""
        return [
            Route("/v1/{path:path}", self.models, methods=["GET", "POST"]),
            Route(METRICS_PATH, self.metrics, methods=["GET"]),
            Route("/about.json", self.about, methods=["GET"]),
            Route("/", self.page, methods=["GET"]),
            Mount("/", self._files),
        ]

    async def page(self, request: Request) -> Response:
        """The web page, or 304 if the browser has it."""
        return await self._files.get_response("index.html", request.scope)

    async def models(self, request: Request) -> Response:
        """Status, metadata, predict, classify and regress."""
        self._check_access(request)
        if request.method != "POST":
            return await self._in_thread(self._describe, request)
        body = await rest_requests.read_body(request, self._max_body_bytes)
        return await self._in_thread(self._answer, request, body)

    async def _in_thread(self, function, *arguments) -> Response:
        # TensorFlow blocks, and so does the JSON of a large batch.
        return await anyio.to_thread.run_sync(
            function, *arguments, limiter=self._threads
        )

    async def metrics(self, request: Request) -> Response:
        """The handler's metrics in Prometheus' text form."""
        self._check_access(request)
        return await self._in_thread(self._render_metrics)

    async def about(self, request: Request) -> Response:
        """What the page says about the model."""
        self._check_access(request)
        return await self._in_thread(self._about)

    def _render_metrics(self) -> Response:
        content, content_type = self._handler.metrics.render()
        return Response(content, headers={"Content-Type": content_type})

    def _about(self) -> Response:
        name = self._default_model
        version, _ = self._handler.metadata(name)
        card = self._handler.card(name)
        return _json(
            {
                "model": name,
                "version": version,
                "num_blocks": card.get("num_blocks"),
                "index": card.get("index"),
                "evidence_license": card.get("evidence_license"),
                "example_questions": card.get("example_questions", []),
            }
        )

    def _check_access(self, request: Request) -> None:
        sent = request.headers
        if self._api_keys is not None and not self._api_keys.accepts(
            sent.get("authorization"), sent.get("x-api-key")
        ):
            raise RequestError(
                grpc.StatusCode.UNAUTHENTICATED, security.REFUSAL
            )

    def _path(self, request: Request) -> rest_requests.ModelPath:
        path = request.scope["raw_path"].decode("latin-1")
        return rest_requests.parse_path(
            request.method.replace("HEAD", "GET"), path
        )

    def _recorded(
        self, method: str, request: Request, path: rest_requests.ModelPath
    ):
        return self._handler.recorded(
            method,
            model=path.name,
            entrypoint=_ENTRYPOINT,
            request_id=request.state.request_id,
        )

    def _describe(self, request: Request) -> Response:
        path = self._path(request)
        if path.verb == "metadata":
            with self._recorded("GetModelMetadata", request, path):
                return _json(self._metadata(path))
        with self._recorded("GetModelStatus", request, path):
            return _json(self._status(path))

    def _status(self, path: rest_requests.ModelPath) -> dict:
        response = get_model_status_pb2.GetModelStatusResponse()
        for status in self._handler.status(path.name, **path.choice):
            item = response.model_version_status.add()
            item.version = status.version
            item.state = status.state
            item.status.error_code = status.error_code
            item.status.error_message = status.error_message
        return _to_dict(response)

    def _metadata(self, path: rest_requests.ModelPath) -> dict:
        version, definitions = self._handler.metadata(path.name, **path.choice)
        model_spec = model_pb2.ModelSpec(name=path.name)
        model_spec.version.value = version
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, definition in definitions.items():
            signatures.signature_def[name].CopyFrom(definition)
        return {
            "model_spec": _to_dict(model_spec),
            "metadata": {"signature_def": _to_dict(signatures)},
        }

    def _answer(self, request: Request, body: bytes) -> Response:
        path = self._path(request)
        method = path.verb.capitalize()
        encoding = request.headers.get("content-encoding", "")
        body = rest_requests.unpack(
            body, encoding, max_bytes=self._max_body_bytes
        )
        try:
            document = rest_json.parse(body)
            signature = rest_json.signature_name(document)
            if method != "Predict":
                rest_json.check_examples(document)
        except RequestError:
            # The handler records what it is asked, which this never is.
            with self._recorded(method, request, path):
                raise
        asked = {
            **path.choice,
            "signature": signature,
            "entrypoint": _ENTRYPOINT,
            "request_id": request.state.request_id,
        }
        if method == "Predict":
            return self._predict(path, document, asked)
        return self._handler.refuse_examples(method, path.name, **asked)

    def _predict(
        self, path: rest_requests.ModelPath, document: dict, asked: dict
    ):
        prediction = self._handler.predict(
            path.name, lambda: self._inputs(path, document), **asked
        )
        answer = rest_tensors.to_answer(
            prediction.outputs, by_row=rest_tensors.is_by_row(document)
        )
        milliseconds = 1000 * prediction.seconds
        return _json(
            answer, headers={"Server-Timing": f"predict;dur={milliseconds:.1f}"}
        )

    def _inputs(self, path: rest_requests.ModelPath, document: dict) -> dict:
        _, definitions = self._handler.metadata(path.name, **path.choice)
        name = rest_json.signature_name(document) or DEFAULT_SIGNATURE
        if name not in definitions:
            raise rest_json.invalid(
                f'Serving signature name: "{name}" not found in signature def'
            )
        return rest_tensors.to_inputs(document, definitions[name].inputs)


def make_app(
    handler,
    *,
    max_body_bytes: int,
    api_key: security.ApiKeys | None = None,
    default_model: str,
) -> Starlette:
    """The REST API and the page as an ASGI application.

    Args:
        handler: `RequestHandler`.
        max_body_bytes: int. The longest request body, unpacked too.
        api_key: `security.ApiKeys`. Defaults to `None`: everybody may ask.
            The page's own files need none.
        default_model: str. The model that the page asks.

    Returns:
        `Starlette`.
    """
    api = RestApi(
        handler,
        max_body_bytes=max_body_bytes,
        api_keys=api_key,
        default_model=default_model,
    )
    return Starlette(
        routes=api.routes(),
        middleware=[
            Middleware(HeadersMiddleware),
            Middleware(
                GZipMiddleware,
                minimum_size=_MIN_GZIP_BYTES,
                compresslevel=_GZIP_LEVEL,
            ),
        ],
        exception_handlers={
            RequestError: _on_request_error,
            HTTPException: _on_http_error,
            ClientDisconnect: _on_disconnect,
            Exception: _on_bug,
        },
    )
