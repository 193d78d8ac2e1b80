"""What happens to every HTTP request: its host is checked, headers are set."""

import asyncio
import ipaddress
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse

from realm_tf.serving.options import ServerOptions
from realm_tf.serving.request_log import choose_request_id

REQUEST_ID = "X-Request-Id"
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
        request_id = choose_request_id(headers.get(REQUEST_ID))
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_headers(message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = request_id
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
