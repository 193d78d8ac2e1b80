import datetime
from concurrent import futures

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from realm_tf import cli
from realm_tf.serving import messages
from realm_tf.serving import security
from realm_tf.serving import server
from realm_tf.serving.client import RealmClient
from realm_tf.serving.client import RealmServerError
from realm_tf.serving.options import ServerOptions

KEY = "0123456789abcdef-secret"


def write_certificate(folder, name):
    """A self-signed certificate for a host name, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
    for suffix, encryption in (
        ("key", serialization.NoEncryption()),
        ("locked", serialization.BestAvailableEncryption(b"secret")),
    ):
        (folder / f"{name}.{suffix}").write_bytes(
            key.private_bytes(
                pem, serialization.PrivateFormat.PKCS8, encryption
            )
        )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A function that gives the path of a file."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("localhost", "other"):
        write_certificate(folder, name)
    return lambda name: str(folder / name)


class Status(grpc.GenericRpcHandler):
    """Answers every call with the status of version 4."""

    def service(self, details):
        response = messages.GetModelStatusResponse()
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
        [(read("localhost.key"), read("localhost.pem"))],
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
    assert version(port, tls_ca=files("localhost.pem")) == 4
    for options in ({"tls_ca": files("other.pem")}, {"tls": True}):
        with pytest.raises(RealmServerError) as caught:
            version(port, **options)
        assert caught.value.code == "UNAVAILABLE"
    with pytest.raises(RealmServerError, match="speaks TLS needs"):
        version(port)


def test_tls_where_there_is_none(serve, files):
    with pytest.raises(RealmServerError, match="no TLS connection") as caught:
        version(serve(), tls_ca=files("localhost.pem"))
    assert "WRONG_VERSION_NUMBER" in caught.value.message


def test_a_server_that_asks_for_a_certificate(serve, files):
    port = serve(server_credentials(files, client_ca="other.pem"))
    trust = {"tls_ca": files("localhost.pem")}
    own = {
        "client_certificate": files("other.pem"),
        "client_key": files("other.key"),
    }
    assert version(port, **trust, **own) == 4
    with pytest.raises(RealmServerError) as caught:
        version(port, **trust)
    assert caught.value.code == "UNAVAILABLE"


@pytest.mark.parametrize(
    "certificate, key",
    [
        ("other.pem", "localhost.key"),
        ("other.pem", "other.locked"),
        ("other.pem", "other.pem"),
        ("none.pem", "other.key"),
    ],
)
def test_certificates_that_cannot_be_used(files, certificate, key):
    with pytest.raises(ValueError, match="cannot be used for TLS") as caught:
        RealmClient(
            "localhost:1",
            tls=True,
            client_certificate=files(certificate),
            client_key=files(key),
        )
    assert files(certificate) in str(caught.value)
    assert "its key without a passphrase in PEM form" in str(caught.value)


def test_realm_ask_over_tls_with_a_key(saved_model, files, tmp_path, capsys):
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text(f"# replaced each year\n{KEY}\n")
    wrong.write_text(f"{KEY}x\n")
    options = ServerOptions(
        tls=security.TlsFiles(files("localhost.pem"), files("localhost.key")),
        api_keys=security.read_api_keys(str(right)),
    )
    with server.start(
        saved_model, host="localhost", options=options
    ) as running:
        command = ["ask", "who wrote Frankenstein?", "--server"]
        command += [running.target, "--tls-ca", files("localhost.pem")]
        assert cli.main([*command, "--api-key-file", str(right)]) == 0
        assert "A: Mary Shelley" in capsys.readouterr().out
        assert cli.main([*command, "--api-key-file", str(wrong)]) == 2
        assert cli.main(command) == 2
    errors = capsys.readouterr().err
    assert errors.count("refused (UNAUTHENTICATED)") == 2
    assert errors.count("\n") == 2
    assert KEY not in errors


@pytest.mark.parametrize("broken", [f"{KEY}\n", f"{KEY}é", f"{KEY} x"])
def test_keys_that_no_header_carries(broken):
    with pytest.raises(ValueError, match="`api_key` must be") as caught:
        RealmClient("localhost:1", api_key=broken)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"timeout_seconds": 0}, "`timeout_seconds` must be positive"),
        ({"timeout_seconds": float("inf")}, "must be positive and finite"),
        ({"timeout_seconds": float("nan")}, "must be positive and finite"),
        ({"max_attempts": 0}, "`max_attempts` must be at least 1"),
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"version": 1, "label": "a"}, "not both"),
        ({"client_key": "k"}, "`client_key` go together"),
        (
            {"client_key": "k", "client_certificate": "c"},
            "of use over TLS only",
        ),
        ({"tls_ca": "/none.pem"}, "/none.pem cannot be used for TLS .No such"),
        ({"tls_ca": __file__}, "expected certificates in PEM form"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        RealmClient("127.0.0.1:1", **arguments)
