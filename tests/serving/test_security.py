import re
import ssl
import urllib.error
import urllib.request

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from rest_client import Client
from stock_requests import predict_request
from tensorflow_serving.apis import prediction_service_pb2_grpc

from realm_tf import cli
from realm_tf.errors import InputError
from realm_tf.serving import server
from realm_tf.serving.access import key_of
from realm_tf.serving.access import read_api_keys
from realm_tf.serving.client import RealmClient
from realm_tf.serving.client import RealmServerError

OLD, NEW = "old-key-0123456789", "new-key-0123456789"


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"# of the web page\n{OLD}\n\n  {NEW}  \n")
    return str(path)


@pytest.mark.parametrize(
    "headers, accepted",
    [
        ((f"Bearer {OLD}", None), True),
        ((f"bearer  {NEW}", None), True),
        ((None, NEW), True),
        ((None, None), False),
        (("", ""), False),
        ((OLD, None), False),
        ((f"Basic {OLD}", None), False),
        ((f"Bearer {OLD[:-1]}", None), False),
        ((f"Bearer {OLD}x", None), False),
        (("Bearer # of the web page", None), False),
        (("Bearer \udcff", None), False),
        ((f"Bearer {OLD}", "wrong"), True),
    ],
)
def test_keys_of_a_file(key_file, headers, accepted):
    names = ("authorization", "x-api-key")
    sent = {k: v for k, v in zip(names, headers, strict=True) if v is not None}
    found = key_of(sent, read_api_keys(key_file))
    assert (found in (OLD, NEW)) is accepted
    assert found is not None or not accepted


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "holds no key"),
        (b"# only words\n", "holds no key"),
        (f"{OLD}\nshort".encode(), "line 2: expected at least 16 printable"),
        (b"with spaces in between", "line 1: expected"),
        (f"{OLD} in between".encode(), "line 1: expected .* a filter such as"),
        (f"{OLD} a=b; c".encode(), "line 1: expected .* a filter such as"),
        ("schlüssel-schlüssel".encode(), "line 1: expected"),
        (
            f"{OLD} a=b\n{NEW}\n{OLD}".encode(),
            "line 3: .* stand in no line before",
        ),
        (b"\xff" * 20, "cannot be read"),
    ],
)
def test_mistakes_in_a_key_file(tmp_path, content, message):
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_api_keys(str(path))
    assert "short" not in str(caught.value)


def tls_files(certificates, **options):
    """The options of TLS."""
    files = (str(certificates / f"server.{end}") for end in ("pem", "key"))
    return {"tls": tuple(files), **options}


def predict(channel, **options):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    response = stub.Predict(predict_request("x"), timeout=10, **options)
    return list(response.outputs["question"].string_val)


def get(url, context):
    """The status of a GET over TLS, which no proxy of the environment sees."""
    proxies = urllib.request.ProxyHandler({})
    https = urllib.request.HTTPSHandler(context=context)
    with urllib.request.build_opener(proxies, https).open(url) as response:
        return response.status


@pytest.fixture
def locked(serve_fake, fake_servable, key_file):
    """A server that wants a key."""
    fake_servable.let_go.set()
    return serve_fake(api_key_file=key_file)


def refusals(running):
    """The requests without a key that the metrics count, by entrypoint."""
    text = running.handler.render_metrics()[0].decode()
    pattern = r'realm_refused_keys_total\{entrypoint="(\w+)"\} (\d+)'
    return dict(re.findall(pattern, text))


def test_grpc_wants_a_key(locked, read_log):
    with grpc.insecure_channel(locked.target) as channel:
        for metadata in (
            (),
            (("authorization", "Bearer wrong"),),
            (("x-api-key", "wrong"),),
            (("authorization-bin", f"Bearer {OLD}".encode()),),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                predict(channel, metadata=metadata)
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
            assert "needs an API key" in caught.value.details()
        for metadata in (
            (("authorization", f"Bearer {OLD}"),),
            (("x-api-key", NEW),),
        ):
            assert predict(channel, metadata=metadata) == [b"x"]
    assert refusals(locked) == {"GRPC": "4"}
    refused = [r for r in read_log() if r["status"] == "UNAUTHENTICATED"]
    assert len(refused) == 4
    assert refused[0]["method"] == "Predict"
    assert refused[0]["peer"].startswith("ipv4:127.0.0.1:")


def test_health_checks_need_no_key(locked):
    with grpc.insecure_channel(locked.target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        status = health.Check(health_pb2.HealthCheckRequest())
        assert status.status == health_pb2.HealthCheckResponse.SERVING
    for path in ("/healthz", "/readyz", "/", "/page.js"):
        assert Client(locked).call("GET", path)[0] == 200


def test_rest_wants_the_same_key(locked, read_log):
    paths = (
        "/v1/models/realm",
        "/monitoring/prometheus/metrics",
        "/about.json",
    )
    for path in paths:
        status, body = Client(locked).get(path)
        assert status == 401
        assert "needs an API key" in body["error"]
        for key in ({"x-api-key": NEW}, {"Authorization": f"Bearer {OLD}"}):
            status, *_ = Client(locked).call("GET", path, headers=key)
            assert status == 200
    assert refusals(locked) == {"REST": "3"}
    refused = [r for r in read_log() if r["status"] == "UNAUTHENTICATED"]
    assert [r["method"] for r in refused] == [f"GET {p}" for p in paths]
    assert refused[0]["peer"] == "127.0.0.1"


def test_tls_for_grpc_and_rest(serve_fake, fake_servable, certificates):
    fake_servable.let_go.set()
    running = serve_fake(host="localhost", **tls_files(certificates))
    trusted = certificates / "server.pem"
    credentials = grpc.ssl_channel_credentials(trusted.read_bytes())
    with grpc.secure_channel(running.target, credentials) as channel:
        assert predict(channel) == [b"x"]
    with (
        grpc.insecure_channel(running.target) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        predict(channel)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert running.rest_url.startswith("https://127.0.0.1:")
    url = running.rest_url.replace("127.0.0.1", "localhost")
    context = ssl.create_default_context(cafile=trusted)
    assert get(f"{url}/v1/models/realm", context) == 200
    # Of a probe, which checks no certificate.
    unchecked = ssl._create_unverified_context()
    assert get(f"{running.rest_url}/readyz", unchecked) == 200
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY"):
        get(f"{url}/v1/models/realm", ssl.create_default_context())


def test_rest_clients_without_certificate_are_refused(serve_fake, certificates):
    ca = str(certificates / "client.pem")
    running = serve_fake(**tls_files(certificates, tls_client_ca=ca))
    url = running.rest_url.replace("127.0.0.1", "localhost")
    context = ssl.create_default_context(cafile=certificates / "server.pem")
    # With TLS 1.3 a client learns of it only when it reads.
    with pytest.raises((urllib.error.URLError, ssl.SSLError, OSError)):
        get(f"{url}/v1/models/realm", context)
    context.load_cert_chain(ca, certificates / "client.key")
    assert get(f"{url}/v1/models/realm", context) == 200


def test_our_client_over_tls_with_a_key(
    saved_model, certificates, key_file, tmp_path, capsys
):
    ca = str(certificates / "server.pem")
    own = tuple(str(certificates / f"client.{end}") for end in ("pem", "key"))
    wrong = tmp_path / "wrong"
    wrong.write_text(f"{OLD}x\n")
    with server.start(
        saved_model,
        host="localhost",
        api_key_file=key_file,
        **tls_files(certificates, tls_client_ca=own[0]),
    ) as running:
        command = ["ask", "who wrote Frankenstein?", "--server"]
        command += [running.target, "--tls-ca", ca, "--tls-client", *own]
        assert cli.main([*command, "--api-key-file", key_file]) == 0
        assert "A: Mary Shelley" in capsys.readouterr().out
        assert cli.main([*command, "--api-key-file", str(wrong)]) == 2
        assert cli.main(command) == 2
        errors = capsys.readouterr().err
        assert errors.count("refused (UNAUTHENTICATED)") == 2
        assert errors.count("\n") == 2
        assert OLD not in errors
        # Another authority, no certificate, no TLS.
        for options in (
            {"tls_ca": own[0], "tls_client": own},
            {"tls_ca": ca},
            {},
        ):
            with (
                RealmClient(running.target, api_key=OLD, **options) as client,
                pytest.raises(
                    RealmServerError, match="Either both sides speak TLS"
                ) as caught,
            ):
                client.ask(["x"])
            assert caught.value.code == "UNAVAILABLE"


@pytest.mark.parametrize("key", ["server.key", "client.locked"])
def test_certificates_that_cannot_be_used(certificates, key):
    chain = str(certificates / "client.pem")
    with pytest.raises(InputError, match="cannot be used for TLS") as caught:
        RealmClient(
            "localhost:1",
            tls_ca=str(certificates / "server.pem"),
            tls_client=(chain, str(certificates / key)),
        )
    assert chain in str(caught.value)
    assert "a key without a passphrase" in str(caught.value)
