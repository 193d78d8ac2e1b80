"""Who and what the REST port keeps out, and when it gives up."""

import contextlib
import json
import socket
import threading
from concurrent import futures

import pytest
from rest_client import PREDICT
from rest_client import Client
from waiting import wait_for

from realm_tf.serving import rest_server
from realm_tf.serving.request_handler import RequestHandler


def head(length):
    """What comes before a body of so many bytes."""
    lines = (
        f"POST {PREDICT} HTTP/1.1",
        *("Host: localhost", f"Content-Length: {length}", "", ""),
    )
    return "\r\n".join(lines).encode()


@contextlib.contextmanager
def sent(client, data):
    """Yields a connection on which these bytes were sent."""
    with socket.create_connection(("127.0.0.1", client.port)) as peer:
        peer.sendall(data)
        yield peer


def test_a_body_is_not_parsed_before_it_is_admitted(serve, fake_servable):
    client = serve(max_pending=1)
    first = threading.Thread(target=client.post, args=({"inputs": ["?"]},))
    first.start()
    assert fake_servable.started.acquire()
    status, headers, body = client.call("POST", PREDICT, "no json")
    assert (status, headers["Retry-After"]) == (429, "1")
    assert "try again later" in json.loads(body)["error"]
    # The server itself goes on.
    assert client.get("/v1/models/realm")[0] == 200
    fake_servable.let_go.set()
    first.join()


def test_silent_connections_keep_nobody_out(serve, fake_servable):
    client = serve(max_pending=1)
    fake_servable.let_go.set()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(sent(client, b""))
        assert client.call("GET", "/healthz")[0] == 200
        assert client.post({"inputs": ["?"]})[0] == 200


def test_bodies_that_are_being_sent_are_counted(serve, fake_servable):
    client = serve(max_pending=17)
    fake_servable.let_go.set()
    with contextlib.ExitStack() as stack:
        for _ in range(17):
            stack.enter_context(sent(client, head(9) + b"{"))
        wait_for(lambda: client.post({"inputs": ["?"]})[0] == 429)
        assert client.call("GET", "/healthz")[0] == 200
    wait_for(lambda: client.post({"inputs": ["?"]})[0] == 200)


def test_long_bodies_are_refused(serve, monkeypatch):
    monkeypatch.setattr(RequestHandler, "max_message_bytes", 100_000)
    client = serve()
    too_long = b'{"inputs": ["' + b"x" * 100_000 + b'"]}'
    # Its length is told before, or not.
    for body in (too_long, iter([too_long[:60_000], too_long[60_000:]])):
        status, _, answer = client.call("POST", PREDICT, body)
        assert status == 413
        assert "longer than 100000 bytes" in json.loads(answer)["error"]


def test_a_body_is_parsed_in_less_than_a_second(serve):
    """31 MB of empty lists held up every other request for 8 s."""
    body = b'{"inputs": [' + b"[]," * 1_400_000 + b"[]]}"
    assert serve().call("POST", PREDICT, body)[0] == 413


def test_clients_that_hang_up_break_nothing(serve, fake_servable):
    client = serve()
    with sent(client, head(17) + b'{"inputs"'):
        pass
    with sent(client, head(17) + b'{"inputs": ["?"]}'):
        assert fake_servable.started.acquire()
    fake_servable.let_go.set()
    assert client.post({"inputs": ["?"]})[0] == 200


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET /heal",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal",
    ],
)
def test_sockets_that_stall_are_closed(serve, monkeypatch, data):
    monkeypatch.setattr(rest_server._Protocol, "stall_seconds", 0.2)
    with (
        sent(serve(), data) as peer,
        contextlib.suppress(ConnectionResetError),
    ):
        while peer.recv(1000):
            pass


def test_answers_are_not_held_back(serve, monkeypatch):
    """Else a kept connection waits 40 ms for each of them."""
    found = []

    class Protocol(rest_server._Protocol):
        def connection_made(self, transport):
            super().connection_made(transport)
            option = socket.IPPROTO_TCP, socket.TCP_NODELAY
            found.append(transport.get_extra_info("socket").getsockopt(*option))

    monkeypatch.setattr(rest_server, "_Protocol", Protocol)
    assert serve().call("GET", "/healthz")[0] == 200
    assert found == [1]


def test_a_client_that_closes_its_side_gets_its_answer(serve, fake_servable):
    client, body = serve(), b'{"inputs": ["?"]}'
    with sent(client, head(len(body)) + body) as peer:
        peer.shutdown(socket.SHUT_WR)
        assert fake_servable.started.acquire()
        fake_servable.let_go.set()
        answer = b"".join(iter(lambda: peer.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert json.loads(answer.rpartition(b"\r\n\r\n")[2]) == {"outputs": ["?"]}
    # One that will send no more of its body gets none.
    with sent(client, head(99) + body) as peer:
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(1000) == b""


@pytest.mark.parametrize(
    "target, host, status",
    [
        ("http://localhost:8501/v1/models/realm?a=b", "evil.example", 200),
        ("https://127.0.0.1/v1/models/realm", "localhost", 200),
        ("http://localhost", "localhost", 200),
        ("http://evil.example/v1/models/realm", "localhost", 421),
        ("ftp://localhost/v1/models/realm", "localhost", 404),
    ],
)
def test_a_target_may_be_the_whole_address(serve, target, host, status):
    assert serve().call("GET", target, headers={"Host": host})[0] == status


def test_a_body_that_stalls_is_refused(serve, monkeypatch):
    monkeypatch.setattr(rest_server, "_BODY_SECONDS", 0.2)
    with sent(serve(), head(17) + b"{") as peer:
        assert peer.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_request_that_takes_longer_than_a_stall_is_answered(
    serve, fake_servable, monkeypatch
):
    connections = []

    class Protocol(rest_server._Protocol):
        def connection_made(self, transport):
            super().connection_made(transport)
            connections.append(self)

    monkeypatch.setattr(rest_server, "_Protocol", Protocol)
    client = serve()
    with futures.ThreadPoolExecutor(1) as pool:
        posted = pool.submit(client.post, {"inputs": ["?"]})
        assert fake_servable.started.acquire()
        (connection,) = connections
        looked = threading.Event()

        def look_again():
            """As if nothing had moved since the last look."""
            connection._look_again((connection.cycle, 0))
            looked.set()

        connection.loop.call_soon_threadsafe(look_again)
        looked.wait()
        fake_servable.let_go.set()
        assert posted.result() == (200, {"outputs": ["?"]})


@pytest.mark.parametrize(
    "host, status",
    [
        ("localhost:8501", 200),
        ("127.0.0.1", 200),
        ("[::1]:8501", 200),
        ("192.0.2.7:80", 200),
        (socket.gethostname(), 200),
        ("realm.example:8501", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("[evil", 421),
    ],
)
def test_names_of_other_hosts_are_refused(serve, host, status):
    client = serve(allowed_hosts=("Realm.example",))
    answered, body = client.get("/v1/models/realm", Host=host)
    assert answered == status
    if status == 421:
        assert "--allowed-hosts" in body["error"]
        # Probes come by any name.
        assert client.call("GET", "/readyz", headers={"Host": host})[0] == 200


def test_probes(serve_fake):
    running = serve_fake()
    client = Client(running)

    def probe(name):
        return client.call("GET", f"/{name}")[0]

    assert (probe("healthz"), probe("readyz")) == (200, 200)
    running.handler.is_draining = True
    assert (probe("healthz"), probe("readyz")) == (200, 503)
    status, body = client.post({"inputs": ["?"]})
    assert status == 503
    assert "is stopping" in body["error"]
