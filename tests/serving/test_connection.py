from concurrent import futures

import grpc
import pytest

from realm_tf import cli
from realm_tf.errors import InputError
from realm_tf.serving import server
from realm_tf.serving.client import RealmClient
from realm_tf.serving.client import RealmServerError
from realm_tf.serving.client import wire

KEY = "0123456789abcdef-secret"


@pytest.fixture(scope="module")
def files(certificates):
    """A function that gives the path of a file."""
    return lambda name: str(certificates / name)


class Status(grpc.GenericRpcHandler):
    """Answers every call with the status of version 4."""

    def service(self, details):
        response = wire.GetModelStatusResponse()
        response.model_version_status.add(version=4, state=30)
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: response.SerializeToString()
        )


@pytest.fixture(scope="module")
def serve(files):
    """A function that starts a server and gives its port."""
    servers = []

    def start(credentials=None):
        one = grpc.server(futures.ThreadPoolExecutor(2))
        one.add_generic_rpc_handlers([Status()])
        servers.append(one)
        port = (
            one.add_secure_port("localhost:0", credentials)
            if credentials
            else one.add_insecure_port("localhost:0")
        )
        one.start()
        return port

    yield start
    for one in servers:
        one.stop(0).wait()


def server_credentials(files, *, client_ca=None):
    def read(name):
        with open(files(name), "rb") as file:
            return file.read()

    return grpc.ssl_server_credentials(
        [(read("server.key"), read("server.pem"))],
        root_certificates=client_ca and read(client_ca),
        require_client_auth=client_ca is not None,
    )


def version(port, **options):
    """The version that a client is told."""
    with RealmClient(
        f"localhost:{port}", max_attempts=1, timeout_seconds=10, **options
    ) as client:
        return client.status()[0].version


def test_tls_with_the_right_authority(serve, files):
    port = serve(server_credentials(files))
    assert version(port, tls_ca=files("ca.pem")) == 4
    for options in ({"tls_ca": files("client.pem")}, {"tls": True}):
        with pytest.raises(RealmServerError) as caught:
            version(port, **options)
        assert caught.value.code == "UNAVAILABLE"
    with pytest.raises(RealmServerError, match="Either both sides speak TLS"):
        version(port)


def test_tls_where_there_is_none(serve, files):
    with pytest.raises(
        RealmServerError, match="Either both sides speak TLS"
    ) as caught:
        version(serve(), tls_ca=files("ca.pem"))
    assert "WRONG_VERSION_NUMBER" in caught.value.message


def test_a_server_that_asks_for_a_certificate(serve, files):
    port = serve(server_credentials(files, client_ca="ca.pem"))
    trust = {"tls_ca": files("ca.pem")}
    own = {
        "client_certificate": files("client.pem"),
        "client_key": files("client.key"),
    }
    assert version(port, **trust, **own) == 4
    with pytest.raises(RealmServerError) as caught:
        version(port, **trust)
    assert caught.value.code == "UNAVAILABLE"


@pytest.mark.parametrize(
    "certificate, key",
    [("client.pem", "server.key"), ("client.pem", "client.locked")],
)
def test_certificates_that_cannot_be_used(files, certificate, key):
    with pytest.raises(InputError, match="cannot be used for TLS") as caught:
        RealmClient(
            "localhost:1",
            tls=True,
            client_certificate=files(certificate),
            client_key=files(key),
        )
    assert files(certificate) in str(caught.value)
    assert "a key without a passphrase" in str(caught.value)


def test_realm_ask_over_tls_with_a_key(saved_model, files, tmp_path, capsys):
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text(f"# replaced each year\n{KEY}\n")
    wrong.write_text(f"{KEY}x\n")
    with server.start(
        saved_model,
        host="localhost",
        rest_port="none",
        tls=(files("server.pem"), files("server.key")),
        api_key_file=str(right),
    ) as running:
        command = ["ask", "who wrote Frankenstein?", "--server"]
        command += [running.target, "--tls-ca", files("ca.pem")]
        assert cli.main([*command, "--api-key-file", str(right)]) == 0
        assert "A: Mary Shelley" in capsys.readouterr().out
        assert cli.main([*command, "--api-key-file", str(wrong)]) == 2
        assert cli.main(command) == 2
    errors = capsys.readouterr().err
    assert errors.count("refused (UNAUTHENTICATED)") == 2
    assert errors.count("\n") == 2
    assert KEY not in errors


def test_no_proxy_leads_to_this_machine(serve, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy", "grpc_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert version(serve()) == 4
    with (
        RealmClient("realm.invalid:8500", max_attempts=1) as client,
        pytest.raises(RealmServerError, match="the variable http_proxy; name"),
    ):
        client.status()


@pytest.mark.parametrize("broken", [f"{KEY}\n", f"{KEY}é", f"{KEY} x"])
def test_keys_that_no_header_carries(broken):
    with pytest.raises(InputError, match="`api_key` must be") as caught:
        RealmClient("localhost:1", api_key=broken)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"timeout_seconds": 0}, "`timeout_seconds` must be positive"),
        ({"timeout_seconds": float("inf")}, "must be positive and finite"),
        ({"max_attempts": 6}, "`max_attempts` must be between 1 and 5"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"client_key": "k"}, "certificate and its key go together"),
        ({"tls_ca": __file__}, "certificates in PEM form"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        RealmClient("127.0.0.1:1", **arguments)


def test_a_certificate_that_is_not_there(tmp_path):
    absent = str(tmp_path / "absent.pem")
    with pytest.raises(InputError, match=f"{absent} .* for TLS .No such file"):
        RealmClient("127.0.0.1:1", tls_ca=absent)


def test_a_certificate_is_of_use_over_tls_only(files):
    with pytest.raises(InputError, match="of use over TLS only"):
        RealmClient(
            "localhost:1",
            client_certificate=files("client.pem"),
            client_key=files("client.key"),
        )
