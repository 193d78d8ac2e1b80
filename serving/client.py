"""The client of a REALM server, without TensorFlow, Keras or numpy.

The modules of tensorflow-serving-api import TensorFlow. The messages here have
the same fields under the same numbers, so the bytes on the wire are equal.
They leave out the fields that this client neither sends nor reads. They live in
a descriptor pool and a package of their own, so that one process can import
both.

References:
    [tensor.proto](https://github.com/tensorflow/tensorflow/blob/v2.20.0/tensorflow/core/framework/tensor.proto),
    and predict.proto, model.proto, get_model_status.proto and status.proto
    of tensorflow/serving, tensorflow_serving/apis.
"""

import contextlib
import dataclasses
import enum
import ipaddress
import json
import math
import os
import pathlib
import ssl
import types
from collections.abc import Iterator
from collections.abc import Mapping

import grpc
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from realm_tf.answering.answer import Alternative
from realm_tf.answering.answer import Answer
from realm_tf.answering.answer import Candidate
from realm_tf.errors import InputError
from realm_tf.export import signatures

MODEL_NAME = "realm"
TIMEOUT_SECONDS = 30.0
# Few enough for a server that allows batches of 32; our choice.
BATCH_SIZE = 16
# The most that gRPC allows.
MAX_ATTEMPTS = 5
NO_BLOCK_ID = -1
_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
# In the order in which gRPC reads them.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
# Parts of gRPC's messages that name no cause.
_NO_CAUSES = ("OK", "Invalid certificate verification context", "")

# Message: {field: (number, type)}. A map is repeated entries and an enum is
# its number, which is the same on the wire.
_SCHEMA = {
    "Int64Value": {"value": (1, "int64")},
    "Dim": {"size": (1, "int64")},
    "TensorShape": {"dim": (2, "repeated Dim")},
    "Tensor": {
        "dtype": (1, "int32"),
        "tensor_shape": (2, "TensorShape"),
        "float_val": (5, "repeated float"),
        "string_val": (8, "repeated bytes"),
        "int64_val": (10, "repeated int64"),
        "bool_val": (11, "repeated bool"),
    },
    "TensorEntry": {"key": (1, "string"), "value": (2, "Tensor")},
    "ModelSpec": {
        "name": (1, "string"),
        "version": (2, "Int64Value"),
        "signature_name": (3, "string"),
    },
    "PredictRequest": {
        "model_spec": (1, "ModelSpec"),
        "inputs": (2, "repeated TensorEntry"),
    },
    "PredictResponse": {"outputs": (1, "repeated TensorEntry")},
    "StatusProto": {
        "error_code": (1, "int32"),
        "error_message": (2, "string"),
    },
    "ModelVersionStatus": {
        "version": (1, "int64"),
        "state": (2, "int32"),
        "status": (3, "StatusProto"),
    },
    "GetModelStatusRequest": {"model_spec": (1, "ModelSpec")},
    "GetModelStatusResponse": {
        "model_version_status": (1, "repeated ModelVersionStatus"),
    },
}
# Field of the values by number in tensorflow/core/framework/types.proto.
_DT_STRING = 7
_VALUES = {
    1: "float_val",
    _DT_STRING: "string_val",
    9: "int64_val",
    10: "bool_val",
}


class State(enum.IntEnum):
    """`tensorflow.serving.ModelVersionStatus.State`."""

    UNKNOWN = 0
    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50

    @classmethod
    def _missing_(cls, value):
        return cls.UNKNOWN


class RealmServerError(Exception):
    """The server cannot be reached, refuses, or sends no REALM answer.

    Args:
        code: str. A gRPC status name such as `"UNAVAILABLE"`, or
            `"UNEXPECTED_RESPONSE"`.
        message: str. One or two sentences: the problem and its remedy.
    """

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


@dataclasses.dataclass(frozen=True)
class RetrievedBlock:
    """One block that the index found for a question.

    Args:
        block_id: int. Its row in the index.
        score: float. Inner product of the question's embedding and the
            block's, on the scale that the model was trained with, and
            `lexical_score`.
        title: str. The article's title.
        text: str. The block.
        url: str. Source of the block. Defaults to `""`.
        lexical_score: float. BM25's part of the score. Defaults to `0.0`: the
            model searches without BM25.
        fields: str. The document's fields that a filter can name, such as
            `"date=2024-05-01; tags=hr|law"`. Defaults to `""`.
    """

    block_id: int
    score: float
    title: str
    text: str
    url: str = ""
    lexical_score: float = 0.0
    fields: str = ""


@dataclasses.dataclass(frozen=True)
class ModelVersionStatus:
    """State of one version of a model, as the server reports it.

    Args:
        version: int.
        state: str. `"START"`, `"LOADING"`, `"AVAILABLE"`, `"UNLOADING"`,
            `"END"` or `"UNKNOWN"`.
        error_code: str. A gRPC status name; `"OK"` unless it failed to load.
        error_message: str. Empty unless it failed to load.
    """

    version: int
    state: str
    error_code: str
    error_message: str


class RealmClient:
    """Asks a server of this project, or any TF Serving with a REALM export.

    Any number of threads may share one client, and so may coroutines (`await
    asyncio.to_thread(client.ask, questions)`). The client sends a request
    again after a pause if the server could not take it (UNAVAILABLE,
    RESOURCE_EXHAUSTED), as long as the request's time lasts. It does not repeat
    a request that took too long.

    Args:
        target: str. `"HOST:PORT"` of the gRPC port.
        model: str. The name the model is served under. Defaults to
            `"realm"`.
        version: int. The version to ask. Defaults to `None`: the one the
            server prefers, which is the highest.
        timeout_seconds: float. The longest that a request may take with all
            its attempts. A long list of questions is several requests.
            Defaults to 30.
        max_attempts: int. The most attempts for a request, 1 to 5 (the most
            that gRPC allows). Defaults to 5.
        batch_size: int. The most questions in one request. Defaults to 16.
        tls: bool. Whether to use TLS and trust the public authorities.
            Defaults to `False`.
        tls_ca: str. Path of the certificates to trust (PEM). Turns TLS on.
        client_certificate: str. Path of this client's own certificate
            chain (PEM), for a server that requires one.
        client_key: str. Path of its key (PEM).
        api_key: str. Sent with every request; readable on the way without
            TLS. Errors never show it.

    Raises:
        InputError: if an argument is wrong or a certificate cannot be used.

    Example:

    ```python
    with RealmClient("127.0.0.1:8500") as client:
        print(client.ask(["Who wrote Frankenstein?"])[0].answer)
    ```
    """

    def __init__(
        self,
        target: str,
        *,
        model: str = MODEL_NAME,
        version: int | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        max_attempts: int = MAX_ATTEMPTS,
        batch_size: int = BATCH_SIZE,
        tls: bool = False,
        tls_ca: str | None = None,
        client_certificate: str | None = None,
        client_key: str | None = None,
        api_key: str | None = None,
    ):
        if not 0 < timeout_seconds < math.inf:
            raise InputError(
                "`timeout_seconds` must be positive and finite. "
                f"Received: timeout_seconds={timeout_seconds}"
            )
        if batch_size < 1:
            raise InputError(
                "`batch_size` must be at least 1. "
                f"Received: batch_size={batch_size}"
            )
        self.target = target
        self.model = model
        self.timeout_seconds = timeout_seconds
        self._version = version
        self._batch_size = batch_size
        self._headers = _headers(api_key)
        options = _channel_options(target, max_attempts)
        check_tls(
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            ca=tls_ca,
            certificate=client_certificate,
            key=client_key,
        )
        if tls or tls_ca is not None:
            paths = (tls_ca, client_key, client_certificate)
            credentials = grpc.ssl_channel_credentials(
                *(path and pathlib.Path(path).read_bytes() for path in paths)
            )
            self._channel = grpc.secure_channel(target, credentials, options)
            return
        if client_key is not None:
            raise InputError(
                "A client's certificate is of use over TLS only: say which "
                "authority to trust."
            )
        self._channel = grpc.insecure_channel(target, options)

    def __enter__(self) -> "RealmClient":
        return self

    def __exit__(self, *exception_info) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target!r}, model={self.model!r})"

    def ask(self, questions: list[str], *, filter: str = "") -> list[Answer]:
        """Answers questions.

        Args:
            questions: list of str.
            filter: str. Conditions that the documents must meet, such as
                `"tags=hr;date>=2024"`; see `export.field_table`. Defaults to
                `""`: none.

        Returns:
            list of `Answer`, in the order of the questions.

        Raises:
            RealmServerError: if the server cannot be reached, refuses, or
                sends no REALM answer.
        """
        return self._predict(questions, signatures.DEFAULT, to_answers, filter)

    def retrieve(
        self, questions: list[str], *, filter: str = ""
    ) -> list[list[RetrievedBlock]]:
        """Finds the blocks nearest to questions, without reading them.

        Args:
            questions: list of str.
            filter: str. As in `ask`.

        Returns:
            list with a list of `RetrievedBlock` for each question, best
            first; empty for an empty question.

        Raises:
            RealmServerError: As `ask`.
        """
        return self._predict(
            questions, signatures.RETRIEVE, _to_retrieved, filter
        )

    def embed(self, questions: list[str]) -> list[list[float]]:
        """Embeds questions as the search in the index does.

        Args:
            questions: list of str.

        Returns:
            list of lists of `projection_dim` floats.

        Raises:
            RealmServerError: As `ask`.
        """
        return self._predict(questions, signatures.EMBED_QUERY, _to_embeddings)

    def status(self) -> list[ModelVersionStatus]:
        """The state of the model's versions, or of the one that was named.

        Returns:
            list of `ModelVersionStatus`, in the server's order.

        Raises:
            RealmServerError: As `ask`.
        """
        request = self._of_model(wire.GetModelStatusRequest())
        return self._call(_STATUS, request, _to_statuses)

    def _predict(self, questions, signature, convert, filter=""):
        if isinstance(questions, str):
            raise TypeError(
                "`questions` must be a list of str. "
                f"Received: questions={questions!r}"
            )
        # One after the other: the last requests need not wait in memory.
        return [
            row
            for first in range(0, len(questions), self._batch_size)
            for row in self._predict_part(
                questions[first : first + self._batch_size],
                signature,
                convert,
                filter,
            )
        ]

    def _predict_part(self, questions, signature, convert, filter):
        request = self._of_model(wire.PredictRequest())
        request.model_spec.signature_name = signature
        inputs = {"question": questions}
        if filter:
            request.model_spec.signature_name += signatures.FILTERED
            inputs[signatures.FILTER] = [filter] * len(questions)
        for name, texts in inputs.items():
            request.inputs.add(key=name, value=encode_strings(texts))

        def read(response):
            parsed = wire.PredictResponse.FromString(response)
            outputs = {
                one.key: decode_tensor(one.value) for one in parsed.outputs
            }
            return convert(outputs, count=len(questions))

        return self._call(_PREDICT, request, read)

    def _of_model(self, request):
        request.model_spec.name = self.model
        if self._version is not None:
            request.model_spec.version.value = self._version
        return request

    def _call(self, method, request, read):
        """Sends a request and converts the bytes of the response."""
        try:
            with checked(f"The server at {self.target}"):
                return read(
                    self._channel.unary_unary(method)(
                        request.SerializeToString(),
                        timeout=self.timeout_seconds,
                        metadata=self._headers,
                    )
                )
        except grpc.RpcError as error:
            message = _explain(error, self.target, self.timeout_seconds)
            raise RealmServerError(error.code().name, message) from error


def check_tls(
    context: ssl.SSLContext,
    *,
    ca: str | None,
    certificate: str | None,
    key: str | None,
) -> None:
    """Refuses files that TLS would only fail over at the first call.

    Args:
        context: ssl.SSLContext.
        ca: str. Path of the certificates to trust, or `None`.
        certificate: str. Path of the own certificate chain, or `None`.
        key: str. Path of its key, or `None`.

    Raises:
        InputError: if one is given without the other, or cannot be used.
    """
    if (certificate is None) != (key is None):
        raise InputError(
            "A TLS certificate and its key go together. Received: "
            f"certificate={certificate!r}, key={key!r}"
        )
    files = ca
    try:
        if ca is not None:
            context.load_verify_locations(ca)
        if key is not None:
            files = f"{certificate} with {key}"
            # An empty passphrase, or OpenSSL would ask at the terminal.
            context.load_cert_chain(certificate, key, password=b"")
    except (OSError, ValueError) as error:
        raise InputError(
            f"{files} cannot be used for TLS "
            f"({getattr(error, 'strerror', error)}): expected certificates in "
            "PEM form, and a key without a passphrase."
        ) from error


def _headers(api_key):
    """The metadata that carries a key."""
    if api_key is None:
        return ()
    # gRPC would tell the key in its error.
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise InputError(
            "`api_key` must be printable ASCII characters without spaces; "
            "it is not shown here."
        )
    return (("authorization", f"Bearer {api_key}"),)


def _channel_options(target, max_attempts):
    """Options for large messages and repeated requests.

    A server that answers UNAVAILABLE or RESOURCE_EXHAUSTED has computed
    nothing, and every call of this client only reads. The four pauses take at
    most 1.5 s together (our choice): a short overload passes, and a missing
    server is reported soon.
    """
    if not 1 <= max_attempts <= MAX_ATTEMPTS:
        raise InputError(
            f"`max_attempts` must be between 1 and {MAX_ATTEMPTS}. "
            f"Received: max_attempts={max_attempts}"
        )
    policy = {
        "maxAttempts": max_attempts,
        "initialBackoff": "0.1s",
        "maxBackoff": "2s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
    }
    again = {"retryPolicy": policy} if max_attempts > 1 else {}
    config = {"methodConfig": [{"name": [{}], **again}]}
    return (
        # Block texts of a large batch exceed gRPC's default of 4 MB. The limit
        # is TF Serving's (main.cc: the largest int32).
        ("grpc.max_receive_message_length", 2**31 - 1),
        ("grpc.max_send_message_length", 2**31 - 1),
        ("grpc.service_config", json.dumps(config)),
        # gRPC waits a second before it connects again, and fails all calls
        # until then: they would use up every attempt.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
        # No proxy leads to this machine, whatever the environment names.
        ("grpc.enable_http_proxy", int(not _is_this_machine(target))),
    )


def _is_this_machine(target):
    host = target.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _explain(error, target, timeout_seconds):
    """The cause of a failed call and its remedy, a sentence or two."""
    code = error.code().name
    details = error.details() or ""
    if code == "UNAVAILABLE":
        # The cause comes last.
        causes = [c for c in details.split(": ") if c not in _NO_CAUSES]
        reason = causes[-1].rpartition(":")[2].rstrip("].") if causes else ""
        port = target.rpartition(":")[2]
        proxies = [name for name in _PROXIES if os.environ.get(name)]
        by_proxy = ""
        if proxies and not _is_this_machine(target):
            by_proxy = (
                " It was asked through the proxy of the variable "
                f"{proxies[0]}; name the host in no_proxy to reach it without."
            )
        return (
            f"No server answers at {target} ({reason}). Start one with `realm "
            f"serve --saved-model DIR --grpc-port {port}`, or correct the "
            "address. Either both sides speak TLS or neither; the client has "
            "to trust the authority that signed the server's certificate, "
            f"which has to hold the name in the address.{by_proxy}"
        )
    if code == "DEADLINE_EXCEEDED":
        return (
            f"The server at {target} gave no answer within "
            f"{timeout_seconds:g} s; ask fewer questions at once or allow "
            "more time."
        )
    return f"The server at {target} refused ({code}): {details}"


def _build_messages() -> types.SimpleNamespace:
    """The message classes of `_SCHEMA`."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="realm/wire.proto", package="realm.wire", syntax="proto3"
    )
    for message_name, fields in _SCHEMA.items():
        message = file.message_type.add(name=message_name)
        for field_name, (number, type_name) in fields.items():
            repeated, _, kind = type_name.rpartition(" ")
            field = message.field.add(name=field_name, number=number)
            field.label = kinds.LABEL_OPTIONAL
            if repeated:
                field.label = kinds.LABEL_REPEATED
            if kind in _SCHEMA:
                field.type = kinds.TYPE_MESSAGE
                field.type_name = f".{file.package}.{kind}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    classes = message_factory.GetMessageClassesForFiles([file.name], pool)
    return types.SimpleNamespace(
        **{name: classes[f"{file.package}.{name}"] for name in _SCHEMA}
    )


wire = _build_messages()


def encode_strings(texts: list[str]):
    """A one-dimensional string tensor.

    Args:
        texts: list of str. A lone surrogate, which UTF-8 cannot encode,
            becomes a question mark.

    Returns:
        `wire.Tensor` of shape `(len(texts),)`.
    """
    tensor = wire.Tensor(dtype=_DT_STRING)
    tensor.tensor_shape.dim.add(size=len(texts))
    tensor.string_val.extend(t.encode("utf-8", "replace") for t in texts)
    return tensor


def decode_tensor(tensor):
    """A tensor as nested lists, bytes where the values are strings.

    Args:
        tensor: `wire.Tensor` of dtype string, float32, int64 or bool, with
            repeated values, as TF Serving and our server send them.

    Returns:
        One value for a scalar, else lists nested as deep as the rank.

    Raises:
        ValueError: if the dtype is another, or shape and values disagree.
    """
    if tensor.dtype not in _VALUES:
        raise ValueError(f"dtype {tensor.dtype} is none of a REALM export")
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    values = list(getattr(tensor, _VALUES[tensor.dtype]))
    if len(values) != math.prod(shape):
        raise ValueError(f"{len(values)} values for a tensor of shape {shape}")
    if not shape:
        return values[0]
    for axis in range(len(shape) - 1, 0, -1):
        rows, size = math.prod(shape[:axis]), shape[axis]
        values = [values[i * size : (i + 1) * size] for i in range(rows)]
    return values


@contextlib.contextmanager
def checked(source: str) -> Iterator[None]:
    """Reports outputs that no REALM export gives.

    Args:
        source: str. The model or the server, for the error.

    Raises:
        RealmServerError: with code `"UNEXPECTED_RESPONSE"`, if an output is
            missing or of another length, or the bytes are no message.
    """
    try:
        yield
    except (DecodeError, LookupError, TypeError, ValueError) as error:
        raise RealmServerError(
            "UNEXPECTED_RESPONSE",
            f"{source} gave no answer of a REALM export ({error!r}): expected "
            "a model that `realm export` wrote and, of a server, the gRPC port "
            "of TensorFlow Serving's protocol.",
        ) from error


def to_answers(outputs: Mapping[str, list], *, count: int) -> list[Answer]:
    """Answers from the outputs of the signature `serving_default`.

    Leaves out padded candidates (block id -1) and empty n-best answers. Call
    it inside `checked`.

    Args:
        outputs: mapping of output name to nested lists, strings as bytes.
        count: int. Number of questions.

    Returns:
        list of `Answer`, one a question.
    """
    return [
        Answer(
            **fields,
            nbest=tuple(one for one in nbest if one.answer),
            candidates=tuple(_real_blocks(candidates)),
        )
        for fields, nbest, candidates in zip(
            _rows(outputs, Answer, "", count),
            _lists(outputs, Alternative, "nbest_", count),
            _lists(outputs, Candidate, "candidate_", count),
            strict=True,
        )
    ]


def _to_retrieved(outputs, *, count):
    rows = _lists(outputs, RetrievedBlock, "", count)
    return [_real_blocks(row) for row in rows]


def _to_embeddings(outputs, *, count):
    rows = zip(range(count), outputs["embedding"], strict=True)
    return [row for _, row in rows]


def _to_statuses(response):
    codes = {code.value[0]: code.name for code in grpc.StatusCode}
    return [
        ModelVersionStatus(
            version=one.version,
            state=State(one.state).name,
            error_code=codes.get(
                one.status.error_code, str(one.status.error_code)
            ),
            error_message=one.status.error_message,
        )
        for one in wire.GetModelStatusResponse.FromString(
            response
        ).model_version_status
    ]


def _text(value):
    """A value of an output; strings come as bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def _rows(outputs, record: type, prefix: str, count: int) -> list[dict]:
    """For each row the values of a record's fields, except its tuples.

    Earlier exports lack some fields that have a default.
    """
    names = [
        field.name
        for field in dataclasses.fields(record)
        if field.type in (str, int, float, bool)
        and (
            field.default is dataclasses.MISSING
            or prefix + field.name in outputs
        )
    ]
    columns = [outputs[prefix + name] for name in names]
    return [
        dict(zip(names, map(_text, row), strict=True))
        for _, *row in zip(range(count), *columns, strict=True)
    ]


def _lists(outputs, record: type, prefix: str, count: int) -> list[list]:
    """For each row the records in its parallel lists."""
    return [
        [
            record(**values)
            for values in _rows(
                lists, record, "", len(next(iter(lists.values())))
            )
        ]
        for lists in _rows(outputs, record, prefix, count)
    ]


def _real_blocks(blocks: list) -> list:
    """Without the padding."""
    return [b for b in blocks if b.block_id != NO_BLOCK_ID]
