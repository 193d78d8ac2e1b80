"""Headers that every answer over HTTP carries: request id and protection."""

from starlette.datastructures import Headers
from starlette.datastructures import MutableHeaders

from realm_tf.serving.request_log import choose_request_id

REQUEST_ID = "X-Request-Id"
_PROTECTION = {
    # No script or style but the page's own files, whatever a block's text
    # holds; nobody frames the page; links tell others nothing of a question.
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Files of the page are asked for anew, and answered 304 by their ETag.
    "Cache-Control": "no-cache",
}


class HeadersMiddleware:
    """Sets `request.state.request_id` and the headers.

    Args:
        app: ASGI application.
    """

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = choose_request_id(Headers(scope=scope).get(REQUEST_ID))
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_headers(message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = request_id
                for name, value in _PROTECTION.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)
