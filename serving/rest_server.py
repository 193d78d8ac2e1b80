"""TF Serving's REST API, version 1, probes and the web page on a port.

GET /v1/models/M[/versions/V][/metadata], POST /v1/models/M[/versions/V]:predict,
GET /monitoring/prometheus/metrics. Beside them GET / is a page to ask on and
/about.json its facts about the model; /healthz and /readyz are for probes.

References:
    [RESTful API](https://www.tensorflow.org/tfx/serving/api_rest). HTTP
    statuses: tensorflow/serving, tensorflow_serving/model_servers/
    http_server.cc.
"""

import asyncio
import functools
import ipaddress
import pathlib
import re
import socket
import ssl
import threading
import time
from urllib.parse import unquote
from urllib.parse import urlsplit

import anyio
import grpc
import uvicorn
from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.responses import PlainTextResponse
from starlette.responses import Response
from starlette.routing import Mount
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol

from realm_tf.serving import grpc_server
from realm_tf.serving import tensors
from realm_tf.serving.metrics import REQUEST_ID_HEADER
from realm_tf.serving.metrics import RequestRecord
from realm_tf.serving.metrics import choose_request_id
from realm_tf.serving.options import ServerOptions
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import full
from realm_tf.serving.request_error import invalid
from realm_tf.serving.request_handler import RequestHandler
from realm_tf.serving.tensors import Answer

ANY_HOST = "*"
_PROTECTION = {
    # No script or style but the page's own files, whatever a block's text
    # holds; nobody frames the page; links tell others nothing of a question.
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Files of the page are asked for again, and answered 304 by their ETag.
    "Cache-Control": "no-cache",
}
_PROBES = ("/healthz", "/readyz")
PAGE_DIRECTORY = pathlib.Path(__file__).with_name("page")
# TF Serving's default (prometheus_exporter.cc).
METRICS_PATH = "/monitoring/prometheus/metrics"
# TF Serving's word for this API in metrics.
_ENTRYPOINT = "REST"
_METHODS = {None: "GetModelStatus", "metadata": "GetModelMetadata"}
_PATH = re.compile(
    r"/v1/models/([^/:]+)(?:/versions/([0-9]{1,19}))?(?::(predict|classify"
    r"|regress)|/(metadata))?"
)
# For status, metrics and refusals while all others wait; our choice.
_NUM_SPARE_THREADS = 16
# A client that sends its body more slowly is let go; our choice.
_BODY_SECONDS = 30
_HTTP_STATUS = {
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
}
_ERROR_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    # Seconds; our choice, about the time of a batch.
    429: {"Retry-After": "1"},
    503: {"Retry-After": "1"},
}
# Shorter answers gain nothing from gzip. Level 9, the default, takes three
# times as long for 2 % less. Our choice.
_GZIP = {"minimum_size": 1024, "compresslevel": 5}
_OF_CARD = (
    "num_blocks",
    "index",
    "evidence_license",
    "example_questions",
    "example_titles",
    "fields",
)
_OF_DOCUMENTS = ("example_questions", "example_titles")
# uvicorn's own log, beside ours: only what is a defect.
_LOG_LEVEL = "error"
# A connection on which nothing moves for so long, and no request is being
# answered, is closed; our choice.
_STALL_SECONDS = 20.0


class GuardMiddleware:
    """Refuses names of other hosts; sets `request.state.request_id`, headers.

    Another site's page whose name is made to lead here (DNS rebinding) would
    be of the same origin as our page. Its name is in the Host header; an
    address is nobody's name.

    Args:
        app: ASGI application.
        options: `ServerOptions`.
    """

    def __init__(self, app, *, options: ServerOptions):
        self._app = app
        self._hosts = {
            "localhost",
            options.host.lower(),
            socket.gethostname().lower(),
            *(name.lower() for name in options.allowed_hosts),
        }

    async def __call__(self, scope, receive, send) -> None:
        """Answers one request."""
        headers = Headers(scope=scope)
        request_id = choose_request_id(headers.get(REQUEST_ID_HEADER))
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_headers(message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID_HEADER] = request_id
                for name, value in _PROTECTION.items():
                    headers.setdefault(name, value)
            await send(message)

        async def refuse(status: int, message: str) -> None:
            answer = JSONResponse({"error": message}, status_code=status)
            await answer(scope, receive, send_with_headers)

        host = headers.get("host", "")
        if scope["path"] not in _PROBES and not self._is_allowed(host):
            await refuse(
                421,
                f"This server is not known as {host[:100]!r}: start it with "
                "--allowed-hosts NAME to be asked under that name.",
            )
            return
        try:
            await self._app(scope, receive, send_with_headers)
        except asyncio.CancelledError:
            # The server stops, and the request has outlived its grace.
            if not started:
                await refuse(503, "The server is stopping; ask another one.")

    def _is_allowed(self, host: str) -> bool:
        if not host or ANY_HOST in self._hosts:
            return True
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in self._hosts:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _on_request_error(request: Request, error: RequestError) -> Response:
    status = _HTTP_STATUS.get(error.code, 500)
    return Answer(
        {"error": error.message},
        status_code=status,
        headers=_ERROR_HEADERS.get(status),
    )


def _on_http_error(request: Request, error: HTTPException) -> Response:
    message = error.detail
    if error.status_code in (404, 405):
        path = request.scope["raw_path"].decode("latin-1")
        message = f"Malformed request: {request.method} {path}"
    return Answer(
        {"error": message},
        status_code=error.status_code,
        headers=error.headers,
    )


def _to_dict(message) -> dict:
    """A proto as TF Serving writes it: proto names, zeros included."""
    return json_format.MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


async def _read_body(request: Request, most: int) -> bytes:
    """The body, refused as soon as it is too long."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise HTTPException(
            415, f"Content-Encoding {encoding!r} is not supported: send none."
        )
    body = bytearray()
    try:
        with anyio.fail_after(_BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise HTTPException(
                        413, f"The request body is longer than {most} bytes."
                    )
    except TimeoutError as error:
        raise HTTPException(
            408, f"The body did not come within {_BODY_SECONDS} s."
        ) from error
    except ClientDisconnect as error:
        # Nobody reads it.
        raise RequestError(grpc.StatusCode.CANCELLED, "") from error
    return bytes(body)


class RestApi:
    """The REST API and the page; `app` is an ASGI application of them.

    Args:
        handler: `RequestHandler`.
    """

    def __init__(self, handler: RequestHandler):
        self._handler = handler
        # More than requests may be pending, so that one too many is refused
        # and does not wait.
        num_threads = handler.options.max_pending + _NUM_SPARE_THREADS
        self._threads = anyio.CapacityLimiter(num_threads)
        # Bodies take memory, from their first bytes to the answer.
        self._bodies = anyio.CapacityLimiter(num_threads)

    def app(self) -> Starlette:
        """The endpoints; the page's files for every other path."""
        return Starlette(
            routes=[
                Route("/v1/{path:path}", self.models, methods=["GET", "POST"]),
                Route(METRICS_PATH, self.metrics, methods=["GET"]),
                Route("/about.json", self.about, methods=["GET"]),
                # Whether the process answers at all; needs no key.
                Route("/healthz", PlainTextResponse("ok"), methods=["GET"]),
                Route("/readyz", self.readyz, methods=["GET"]),
                Mount("/", StaticFiles(directory=PAGE_DIRECTORY, html=True)),
            ],
            middleware=[
                Middleware(GuardMiddleware, options=self._handler.options),
                Middleware(GZipMiddleware, **_GZIP),
            ],
            exception_handlers={
                RequestError: _on_request_error,
                HTTPException: _on_http_error,
            },
        )

    async def readyz(self, request: Request) -> Response:
        """Whether a question would be answered; needs no key."""
        if self._handler.is_ready():
            return PlainTextResponse("ready")
        return PlainTextResponse("not ready", status_code=503)

    async def models(self, request: Request) -> Response:
        """Status, metadata and predict."""
        required_filter = self._check_access(request)
        sent = request.scope["raw_path"].decode("latin-1")
        match = _PATH.fullmatch(sent)
        verb = match and (match[3] or match[4])
        posted = request.method == "POST"
        if match is None or posted != (verb not in (None, "metadata")):
            raise invalid(f"Malformed request: {request.method} {sent}")
        name = unquote(match[1])
        version = None if match[2] is None else int(match[2])
        known = request, name, version, verb, required_filter
        if not posted:
            return await self._in_thread(self._answer, *known, b"")
        try:
            self._bodies.acquire_nowait()
        except anyio.WouldBlock as error:
            raise full(self._bodies.borrowed_tokens) from error
        try:
            most = self._handler.max_message_bytes
            body = await _read_body(request, most)
            return await self._in_thread(self._answer, *known, body)
        finally:
            self._bodies.release()

    async def metrics(self, request: Request) -> Response:
        """The handler's metrics in Prometheus' text form."""
        self._check_access(request)
        content, content_type = await self._in_thread(
            self._handler.render_metrics
        )
        return Response(content, headers={"Content-Type": content_type})

    async def about(self, request: Request) -> Response:
        """What the page says about the model."""
        is_restricted = bool(self._check_access(request))
        name = self._handler.options.model_name
        with self._handler.versions.use(name) as (version, servable):
            facts = {
                key: servable.card.get(key)
                for key in _OF_CARD
                if not (is_restricted and key in _OF_DOCUMENTS)
            }
        return Answer({"model": name, "version": version, **facts})

    async def _in_thread(self, function, *arguments):
        # TensorFlow blocks, and so does the JSON of a large batch.
        return await anyio.to_thread.run_sync(
            function, *arguments, limiter=self._threads
        )

    def _check_access(self, request: Request) -> str:
        """Of all but the probes and the page's own files; gives the filter of
        what may be seen."""
        record = RequestRecord(
            f"{request.method} {request.url.path}",
            _ENTRYPOINT,
            peer=request.client.host if request.client else "",
        )
        return self._handler.check_key(request.headers, record)

    def _answer(
        self, request, name, version, verb, required_filter, body
    ) -> Response:
        record = RequestRecord(
            _METHODS.get(verb) or verb.capitalize(),
            _ENTRYPOINT,
            name,
            request.state.request_id,
            required_filter=required_filter,
        )
        with self._handler.recorded(record):
            document = self._document(record, version, verb, body)
        headers = None
        if verb == "predict":
            timing = f"predict;dur={record.milliseconds:.1f}"
            headers = {"Server-Timing": timing}
        return Answer(document, headers=headers)

    def _document(self, record, version, verb, body) -> dict:
        if verb is None:
            return _to_dict(
                grpc_server.status_response(
                    self._handler, record, version=version
                )
            )
        if verb == "metadata":
            spec, signatures = grpc_server.describe_model(
                self._handler, record, version=version
            )
            return {
                "model_spec": _to_dict(spec),
                "metadata": {"signature_def": _to_dict(signatures)},
            }
        if verb != "predict":
            raise RequestError(
                grpc.StatusCode.UNIMPLEMENTED, grpc_server.NO_EXAMPLES
            )
        asked, outputs = self._handler.predict(
            record,
            functools.partial(tensors.read_request, body),
            version=version,
            required_filter=record.required_filter,
        )
        return tensors.to_answer(outputs, by_row=asked.by_row)


class _Protocol(H11Protocol):
    """Closes connections that stall; uvicorn waits for ever for a request's
    first and last bytes, and for a client to read its answer."""

    stall_seconds = _STALL_SECONDS

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._timer = None
        self._look_again(None)

    def connection_lost(self, exc) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _look_again(self, before) -> None:
        unsent = self.transport.get_write_buffer_size()
        now = (self.cycle, unsent)
        answering = self.cycle is not None and not self.cycle.response_complete
        if now == before and not answering:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(
            self.stall_seconds, self._look_again, now
        )


class RestServer:
    """The REST API and the page on a port, from a thread.

    Args:
        handler: `RequestHandler`.
        bound: socket, of `options.bind`; this closes it.

    Attributes:
        url: str. `"http://HOST:PORT"`.
    """

    def __init__(self, handler: RequestHandler, bound: socket.socket):
        host, port = bound.getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        ca = handler.options.tls_client_ca
        certificate, key = handler.options.tls or (None, None)
        self.url = f"{'https' if certificate else 'http'}://{address}:{port}"
        self._config = uvicorn.Config(
            RestApi(handler).app(),
            http=_Protocol,
            log_config=None,
            log_level=_LOG_LEVEL,
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            server_header=False,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            ssl_ca_certs=ca,
            ssl_cert_reqs=ssl.CERT_REQUIRED if ca else ssl.CERT_NONE,
        )
        self._server = uvicorn.Server(self._config)
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [bound]},
            name="rest",
            daemon=True,
        )
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        if not self._server.started:
            raise RuntimeError("The HTTP server did not start.")

    def stop(self, *, grace_seconds: float) -> None:
        """Refuses new requests; running ones may finish. Does not wait.

        Args:
            grace_seconds: float. How long they may take.
        """
        self._config.timeout_graceful_shutdown = grace_seconds
        self._server.should_exit = True

    def join(self, timeout_seconds: float) -> None:
        """Waits for the last request.

        Args:
            timeout_seconds: float. At most so long.
        """
        self._thread.join(timeout_seconds)
