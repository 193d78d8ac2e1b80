import json
import ssl
import urllib.error
import urllib.request

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha import reflection_pb2_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from realm_tf.errors import InputError
from realm_tf.serving import security
from realm_tf.serving.security import ApiKeys
from realm_tf.serving.security import TlsFiles

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
    assert security.read_api_keys(key_file).accepts(*headers) is accepted


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "holds no key"),
        (b"# only words\n", "holds no key"),
        (f"{OLD}\nshort".encode(), "line 2 is no key"),
        (b"with spaces in between", "line 1 is no key"),
        ("schlüssel-schlüssel".encode(), "line 1 is no key"),
        (b"\xff" * 20, "cannot be read"),
    ],
)
def test_mistakes_in_a_key_file(tmp_path, content, message):
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        security.read_api_keys(str(path))
    assert "short" not in str(caught.value).replace("too short", "")


def test_a_key_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        security.read_api_keys(str(tmp_path / "none"))


def tls_files(certificates, certificate="server", key="server", **options):
    return TlsFiles(
        str(certificates / f"{certificate}.pem"),
        str(certificates / f"{key}.key"),
        **options,
    )


def test_tls_files_are_checked(certificates, tmp_path):
    ca = str(certificates / "ca.pem")
    tls_files(certificates, client_ca=ca).check()
    with pytest.raises(InputError, match="--tls-certificate .* cannot be used"):
        tls_files(certificates, key="client").check()
    with pytest.raises(InputError, match="--tls-certificate .* cannot be used"):
        tls_files(certificates, certificate="none").check()
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(InputError, match="--tls-client-ca .* cannot be used"):
        tls_files(certificates, client_ca=str(tmp_path / "ca.pem")).check()


def predict(channel, **options):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "realm"
    request.inputs["question"].CopyFrom(tf.make_tensor_proto(["x"], tf.string))
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    response = stub.Predict(request, timeout=10, **options)
    return list(response.outputs["question"].string_val)


def get(url, *, context=None, **headers):
    """The status of a GET."""
    request = urllib.request.Request(url, headers=headers)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=context),
    )
    try:
        with opener.open(request, timeout=10) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.fixture
def locked(serve_fake, fake_servable):
    """A server that wants a key."""
    fake_servable.let_go.set()
    return serve_fake(api_keys=ApiKeys([OLD, NEW]), rest_port=0)


def test_grpc_wants_a_key(locked):
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


def test_streams_want_a_key_and_health_checks_do_not(locked):
    with grpc.insecure_channel(locked.target) as channel:
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        requests = [reflection_pb2.ServerReflectionRequest(list_services="")]
        with pytest.raises(grpc.RpcError) as caught:
            list(reflection.ServerReflectionInfo(iter(requests), timeout=10))
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        answers = reflection.ServerReflectionInfo(
            iter(requests), timeout=10, metadata=(("x-api-key", OLD),)
        )
        assert len(list(answers)) == 1
        health = health_pb2_grpc.HealthStub(channel)
        status = health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert status.status == health_pb2.HealthCheckResponse.SERVING


def test_rest_wants_the_same_key(locked):
    for path in ("/v1/models/realm", "/monitoring/prometheus/metrics"):
        status, body = get(locked.rest_url + path)
        assert status == 401
        assert "needs an API key" in json.loads(body)["error"]
        assert get(locked.rest_url + path, **{"x-api-key": NEW})[0] == 200
        bearer = {"Authorization": f"Bearer {OLD}"}
        assert get(locked.rest_url + path, **bearer)[0] == 200


def channel_credentials(certificates, client=None):
    return grpc.ssl_channel_credentials(
        (certificates / "ca.pem").read_bytes(),
        client and (certificates / f"{client}.key").read_bytes(),
        client and (certificates / f"{client}.pem").read_bytes(),
    )


def secure_channel(running, credentials):
    target = f"localhost:{running.target.rpartition(':')[2]}"
    return grpc.secure_channel(target, credentials)


def test_tls_for_grpc_and_rest(serve_fake, fake_servable, certificates):
    fake_servable.let_go.set()
    running = serve_fake(tls=tls_files(certificates), rest_port=0)
    credentials = channel_credentials(certificates)
    with secure_channel(running, credentials) as channel:
        assert predict(channel) == [b"x"]
    with (
        grpc.insecure_channel(running.target) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        predict(channel)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert running.rest_url.startswith("https://127.0.0.1:")
    url = running.rest_url.replace("127.0.0.1", "localhost")
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    assert get(f"{url}/v1/models/realm", context=context)[0] == 200
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY"):
        get(f"{url}/v1/models/realm", context=ssl.create_default_context())


def test_clients_without_a_certificate_are_turned_away(
    serve_fake, fake_servable, certificates
):
    fake_servable.let_go.set()
    tls = tls_files(certificates, client_ca=str(certificates / "ca.pem"))
    running = serve_fake(tls=tls, rest_port=0)
    credentials = channel_credentials(certificates, client="client")
    with secure_channel(running, credentials) as channel:
        assert predict(channel) == [b"x"]
    credentials = channel_credentials(certificates)
    with (
        secure_channel(running, credentials) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        predict(channel)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    url = running.rest_url.replace("127.0.0.1", "localhost")
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    # With TLS 1.3 a client learns of it only when it reads.
    with pytest.raises((urllib.error.URLError, ssl.SSLError, OSError)):
        get(f"{url}/v1/models/realm", context=context)
    context.load_cert_chain(
        certificates / "client.pem", certificates / "client.key"
    )
    assert get(f"{url}/v1/models/realm", context=context)[0] == 200
