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
import contextlib
import functools
import ipaddress
import os
import pathlib
import re
import socket
import ssl
import threading
import time
from urllib.parse import parse_qs
from urllib.parse import unquote
from urllib.parse import urlsplit

import anyio
import grpc
import uvicorn
from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.responses import PlainTextResponse
from starlette.responses import Response
from starlette.routing import Mount
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol

from realm_tf.serving import documents
from realm_tf.serving import grpc_server
from realm_tf.serving import tensors
from realm_tf.serving.client import MODEL_NAME
from realm_tf.serving.metrics import REQUEST_ID_HEADER
from realm_tf.serving.metrics import RequestRecord
from realm_tf.serving.metrics import choose_request_id
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import invalid
from realm_tf.serving.request_handler import RequestHandler
from realm_tf.serving.tensors import Answer

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
# Of a document: shown with its styles, and without scripts, forms or frames.
_SANDBOX = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'"
)
# With a key.
_MOST_FORM_BYTES = 4096
# Of a call of a tool (our choice).
_MOST_TOOL_BYTES = 1 << 20
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


def _question_about(title: str) -> str:
    """A question for the page, from the lowest heading of a document."""
    heading = title.rpartition(": ")[2]
    is_question = heading.endswith("?")
    return heading if is_question else f"What about {heading}?"


def _on_request_error(request: Request, error: RequestError) -> Response:
    status = error.http_status or _HTTP_STATUS.get(error.code, 500)
    return Answer(
        {"error": error.message},
        status_code=status,
        headers=_ERROR_HEADERS.get(status),
    )


def _on_http_error(request: Request, error: HTTPException) -> Response:
    path = request.scope["raw_path"].decode("latin-1")
    return Answer(
        {"error": f"Malformed request: {request.method} {path}"},
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
        raise RequestError(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"Content-Encoding {encoding!r} is not supported: send none.",
            http_status=415,
        )
    body = bytearray()
    try:
        with anyio.fail_after(_BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise RequestError(
                        grpc.StatusCode.RESOURCE_EXHAUSTED,
                        f"The request body is longer than {most} bytes.",
                        http_status=413,
                    )
    except TimeoutError as error:
        raise RequestError(
            grpc.StatusCode.DEADLINE_EXCEEDED,
            f"The body did not come within {_BODY_SECONDS} s.",
            http_status=408,
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
        options = handler.options
        self._threads = anyio.CapacityLimiter(options.num_threads)
        self._hosts = {
            "localhost",
            options.host.lower(),
            socket.gethostname().lower(),
            *(name.lower() for name in options.allowed_hosts),
        }

    def app(self) -> Starlette:
        """The endpoints; the page's files for every other path."""
        routes, lifespan = [], None
        if self._handler.options.mcp:
            from realm_tf.serving import mcp_server

            manager = mcp_server.manager(self._handler)

            async def tools(request):
                self._check_access(request)
                # A stream would have nothing to send, and no end.
                if request.method != "POST":
                    raise HTTPException(405)
                # Within the time for a body, which the manager does not limit.
                body = await _read_body(request, _MOST_TOOL_BYTES)
                sent = [{"type": "http.request", "body": body}]

                async def receive():
                    return sent.pop() if sent else await request.receive()

                # It answers as a response does.
                return lambda scope, _, send: manager.handle_request(
                    scope, receive, send
                )

            routes.append(Route("/mcp", tools, methods=["GET", "POST"]))

            def lifespan(app):
                return manager.run()

        return Starlette(
            routes=[
                *routes,
                Route("/v1/{path:path}", self.models, methods=["GET", "POST"]),
                Route(METRICS_PATH, self.metrics, methods=["GET"]),
                Route("/about.json", self.about, methods=["GET"]),
                # Whether the process answers at all; needs no key.
                Route("/healthz", PlainTextResponse("ok"), methods=["GET"]),
                Route("/readyz", self.readyz, methods=["GET"]),
                Route(
                    "/documents/{block_id}",
                    self.document,
                    methods=["GET", "POST"],
                ),
                Mount("/", StaticFiles(directory=PAGE_DIRECTORY, html=True)),
            ],
            middleware=[
                Middleware(BaseHTTPMiddleware, dispatch=self._guard),
                Middleware(GZipMiddleware, **_GZIP),
            ],
            exception_handlers={
                RequestError: _on_request_error,
                HTTPException: _on_http_error,
            },
            lifespan=lifespan,
        )

    async def _guard(self, request: Request, call_next) -> Response:
        """Refuses names of other hosts; sets request id and headers.

        Another site's page whose name is made to lead here (DNS rebinding)
        would be of the same origin as our page. Its name is in the Host header;
        an address is nobody's name.
        """
        request_id = choose_request_id(request.headers.get(REQUEST_ID_HEADER))
        request.state.request_id = request_id
        host = request.headers.get("host", "")
        # A client may send the whole address, as to a proxy (RFC 9112, 3.2.2).
        target = request.scope["raw_path"].decode("latin-1")
        if target.startswith(("http://", "https://")):
            _, _, host, path = f"{target}/".split("/", 3)
            path = f"/{path.removesuffix('/')}"
            request.scope["raw_path"] = path.encode("latin-1")
            request.scope["path"] = unquote(path)
        if request.url.path in _PROBES or self._is_allowed(host):
            try:
                response = await call_next(request)
            except asyncio.CancelledError:
                # The server stops, and the request has outlived its grace.
                message = "The server is stopping; ask another one."
                response = Answer({"error": message}, status_code=503)
        else:
            message = (
                f"This server is not known as {host[:100]!r}: start it with "
                "--allowed-hosts NAME to be asked under that name."
            )
            response = Answer({"error": message}, status_code=421)
        response.headers[REQUEST_ID_HEADER] = request_id
        for name, value in _PROTECTION.items():
            response.headers.setdefault(name, value)
        return response

    def _is_allowed(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or "localhost"
            if name in self._hosts:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    async def readyz(self, request: Request) -> Response:
        """Whether a question would be answered; needs no key."""
        if self._handler.is_ready():
            return PlainTextResponse("ready")
        return PlainTextResponse("not ready", status_code=503)

    async def models(self, request: Request) -> Response:
        """Status, metadata and predict."""
        record = self._check_access(request)
        sent = request.scope["raw_path"].decode("latin-1")
        match = _PATH.fullmatch(sent)
        verb = match and (match[3] or match[4])
        posted = request.method == "POST"
        if match is None or posted != (verb not in (None, "metadata")):
            raise invalid(f"Malformed request: {request.method} {sent}")
        record.method = _METHODS.get(verb) or verb.capitalize()
        record.model = unquote(match[1])
        version = None if match[2] is None else int(match[2])
        with self._handler.recorded(record):
            if not posted:
                return await self._in_thread(
                    self._describe, record, version, verb
                )
            if verb != "predict":
                raise RequestError(
                    grpc.StatusCode.UNIMPLEMENTED, grpc_server.NOT_SERVED
                )
            # A body takes memory, from its first bytes to the answer.
            with self._handler.admitted():
                most = self._handler.max_message_bytes
                body = await _read_body(request, most)
                answer = await self._in_thread(
                    self._predict, record, version, body
                )
        timing = f"predict;dur={record.milliseconds:.1f}"
        answer.headers["Server-Timing"] = timing
        return answer

    async def metrics(self, request: Request) -> Response:
        """The handler's metrics in Prometheus' text form."""
        self._check_access(request)
        content, content_type = self._handler.render_metrics()
        return Response(content, headers={"Content-Type": content_type})

    async def about(self, request: Request) -> Response:
        """What the page says about the model and its documents."""
        is_restricted = bool(self._check_access(request).required_filter)
        with self._handler.versions.use(MODEL_NAME) as (version, servable):
            facts = {
                key: servable.card.get(key)
                for key in _OF_CARD
                if not (is_restricted and key.startswith("example_"))
            }
        served = self._handler.documents
        facts["documents"] = served.exist and not is_restricted
        if facts["documents"]:
            facts["example_questions"] = facts["example_questions"] or list(
                map(_question_about, facts["example_titles"] or ())
            )
            names = facts["fields"] or ()
            # The page can ask without them.
            with contextlib.suppress(RequestError):
                facts["field_values"] = await self._in_thread(
                    served.values, names
                )
        return Answer({"model": MODEL_NAME, "version": version, **facts})

    async def document(self, request: Request) -> Response:
        """The file of a block's document, which can run nothing in a browser.

        A link carries no header: a page with a key sends it as a form does.
        """
        headers = request.headers
        if request.method == "POST":
            form = await _read_body(request, _MOST_FORM_BYTES)
            keys = parse_qs(form.decode("latin-1")).get("key", [""])
            headers = {"x-api-key": keys[0]}
        if self._check_access(request, headers).required_filter:
            raise RequestError(
                grpc.StatusCode.PERMISSION_DENIED,
                "This key sees a part of the documents, and a file may hold "
                "others: ask for a key without a filter.",
            )
        served = self._handler.documents
        block_id = request.path_params["block_id"]
        if not re.fullmatch("[0-9]{1,19}", block_id):
            raise documents.missing(block_id[:100])
        path = await self._in_thread(
            lambda: served.path(served.of_block(int(block_id)))
        )
        kind, is_shown = documents.content_type(path)
        return FileResponse(
            path,
            media_type=kind,
            filename=os.path.basename(path),
            content_disposition_type="inline" if is_shown else "attachment",
            # Browsers show no PDF in a sandbox, and run nothing of one here.
            headers={}
            if kind == documents.PDF
            else {"Content-Security-Policy": _SANDBOX},
        )

    async def _in_thread(self, function, *arguments):
        # TensorFlow blocks, and so does the JSON of a large batch.
        return await anyio.to_thread.run_sync(
            function, *arguments, limiter=self._threads
        )

    def _check_access(self, request: Request, headers=None) -> RequestRecord:
        """Of all but the probes and the page's own files."""
        record = RequestRecord(
            f"{request.method} {request.url.path}",
            _ENTRYPOINT,
            request_id=request.state.request_id,
        )
        peer = request.client.host if request.client else ""
        headers = request.headers if headers is None else headers
        self._handler.check_key(headers, record, peer)
        return record

    def _describe(self, record, version, verb) -> Response:
        """Status or metadata."""
        if verb is None:
            return Answer(
                _to_dict(
                    grpc_server.status_response(
                        self._handler, record, version=version
                    )
                )
            )
        spec, signatures = grpc_server.describe_model(
            self._handler, record, version=version
        )
        return Answer(
            {
                "model_spec": _to_dict(spec),
                "metadata": {"signature_def": _to_dict(signatures)},
            }
        )

    def _predict(self, record, version, body) -> Response:
        asked, outputs = self._handler.predict(
            record,
            functools.partial(tensors.read_request, body),
            version=version,
        )
        return Answer(tensors.to_answer(outputs, by_row=asked.by_row))


class _Protocol(H11Protocol):
    """Closes connections that stall; uvicorn waits for ever for a request's
    first and last bytes, and for a client to read its answer."""

    # Without movement and without a request that is being answered; our choice.
    stall_seconds = 20.0

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._timer = None
        self._look_again(None)

    def connection_lost(self, exc) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        """Lets a client that has sent all of its request read the answer."""
        answers = self.cycle is not None and not self.cycle.response_complete
        if not answers or self.cycle.more_body or self.config.is_ssl:
            return False
        self.cycle.keep_alive = False
        return True

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
            # Beside our log, only what is a defect.
            log_level="error",
            access_log=False,
            lifespan="on" if handler.options.mcp else "off",
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
