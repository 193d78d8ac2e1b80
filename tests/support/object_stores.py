"""Object stores on this machine, which speak the protocols of real ones.

moto's server is S3, gcp-storage-emulator is Google Cloud Storage. Before each
is a proxy, which a test tells what goes wrong.
"""

import contextlib
import http.client
import http.server
import logging
import os
import socket
import threading
import urllib.parse

import fsspec
import pytest

# As in `paths`, before gcsfs is imported.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

STORES = {"s3": "s3://bucket", "gs": "gs://bucket"}


class Proxy(http.server.ThreadingHTTPServer):
    """Hands requests on to a port of this machine.

    Attributes:
        requests: list of str. Method and path of each.
        fault: function of a request that says what goes wrong: an HTTP
            status, `"cut"` (the connection, in the middle of the request, of
            which a real store keeps nothing), or nothing.
    """

    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port = port
        self.requests = []
        self.fault = lambda request: None
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one_request(self):
        # A test that ends leaves connections behind.
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def _hand_on(self):
        request = f"{self.command} {urllib.parse.unquote(self.path)}"
        self.server.requests.append(request)
        size = int(self.headers.get("Content-Length", 0))
        fault = self.server.fault(request)
        body = self.rfile.read(size // 2 if fault == "cut" else size)
        if fault == "cut":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if isinstance(fault, int):
            self._answer(fault, {}, b"")
            return
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(iter(self._chunk, b""))
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
        connection.putrequest(self.command, self.path, skip_host=True)
        for name, value in self.headers.items():
            if name.lower() == "transfer-encoding":
                name, value = "Content-Length", str(len(body))
            connection.putheader(name, value)
        connection.endheaders(body)
        found = connection.getresponse()
        self._answer(found.status, found.headers, found.read())
        connection.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _hand_on

    def _chunk(self):
        size = int(self.rfile.readline().split(b";")[0], 16)
        found = self.rfile.read(size)
        self.rfile.readline()
        return found

    def _answer(self, status, headers, body):
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def s3():
    """Yields the `Proxy` of an S3 with s3://bucket."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    proxy = Proxy(server.get_host_and_port()[1])
    given = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.server_port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with _used(proxy, given):
        # moto's stores are one for the whole process.
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port)
        connection.request("POST", "/moto-api/reset")
        connection.getresponse().read()
        fsspec.filesystem("s3").mkdir("bucket")
        yield proxy
    server.stop()


@contextlib.contextmanager
def gs():
    """Yields the `Proxy` of a Google Cloud Storage with gs://bucket."""
    emulator = pytest.importorskip("gcp_storage_emulator.server")
    server = emulator.create_server(
        "127.0.0.1", 0, in_memory=True, default_bucket="bucket"
    )
    server.start()
    proxy = Proxy(server._api._httpd.server_port)
    given = {
        "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{proxy.server_port}",
    }
    with _used(proxy, given):
        yield proxy
    server.stop()


@contextlib.contextmanager
def opened(name: str):
    """Yields (address of a bucket, `Proxy`) of a store in `STORES`."""
    with {"s3": s3, "gs": gs}[name]() as proxy:
        yield STORES[name], proxy


@contextlib.contextmanager
def _used(proxy, environment):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        for name in STORES:
            fsspec.get_filesystem_class(name).clear_instance_cache()
        yield proxy
    proxy.shutdown()
    proxy.server_close()
