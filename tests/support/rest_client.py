"""A client of the REST API that knows nothing of it."""

import contextlib
import http.client
import json

PREDICT = "/v1/models/realm:predict"


class Client:
    """Talks HTTP/1.1 to a server of this process."""

    def __init__(self, running):
        self.port = int(running.rest_url.rpartition(":")[2])

    def call(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=30
        )
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def get(self, path, **headers):
        status, _, body = self.call("GET", path, headers=headers)
        return status, json.loads(body)

    def post(self, document, path=PREDICT):
        status, _, body = self.call("POST", path, json.dumps(document))
        return status, json.loads(body)
