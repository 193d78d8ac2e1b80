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
import json
import math
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
NO_BLOCK_ID = -1
_PREDICT = "/tensorflow.serving.PredictionService/Predict"
# A server that returns one of these codes has computed nothing. The four pauses
# take at most 1.5 s together (our choice): a short overload passes, and a
# missing server is reported soon.
_RETRIES = {
    "maxAttempts": 5,
    "initialBackoff": "0.1s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
}
_CHANNEL_OPTIONS = (
    # Block texts of a large batch exceed gRPC's default of 4 MB. The limit is
    # TF Serving's (main.cc: the largest int32).
    ("grpc.max_receive_message_length", 2**31 - 1),
    ("grpc.max_send_message_length", 2**31 - 1),
    (
        "grpc.service_config",
        json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": _RETRIES}]}),
    ),
    # By default gRPC waits a second before it connects again, and fails all
    # calls until then: they would use up every attempt.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # http_proxy is for web pages.
    ("grpc.enable_http_proxy", 0),
)

# Message: {field: (number, type)}. A map is repeated entries and an enum is
# its number, which is the same on the wire.
_SCHEMA = {
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
    "ModelSpec": {"name": (1, "string"), "signature_name": (3, "string")},
    "PredictRequest": {
        "model_spec": (1, "ModelSpec"),
        "inputs": (2, "repeated TensorEntry"),
    },
    "PredictResponse": {"outputs": (1, "repeated TensorEntry")},
}
# Field of the values by number in tensorflow/core/framework/types.proto.
_DT_STRING = 7
_VALUES = {
    1: "float_val",
    _DT_STRING: "string_val",
    9: "int64_val",
    10: "bool_val",
}


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


class RealmClient:
    """Asks a server of this project, or any TF Serving with a REALM export.

    Any number of threads may share one client, and so may coroutines (`await
    asyncio.to_thread(client.ask, questions)`). The client sends a request
    again after a pause if the server could not take it (UNAVAILABLE,
    RESOURCE_EXHAUSTED), as long as the request's time lasts. It does not repeat
    a request that took too long. It connects directly, without a proxy.

    Args:
        target: str. `"HOST:PORT"` of the gRPC port.
        model: str. The name the model is served under. Defaults to
            `"realm"`.
        timeout_seconds: float. The longest that a request may take with all
            its attempts. A long list of questions is several requests.
            Defaults to 30.
        tls_ca: str. Path of the certificates to trust (PEM). Turns TLS on.
        tls_client: tuple of two str. Paths of this client's own certificate
            chain and of its key (PEM), for a server that requires one.
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
        timeout_seconds: float = TIMEOUT_SECONDS,
        tls_ca: str | None = None,
        tls_client: tuple[str, str] | None = None,
        api_key: str | None = None,
    ):
        if not 0 < timeout_seconds < math.inf:
            raise InputError(
                "`timeout_seconds` must be positive and finite. "
                f"Received: timeout_seconds={timeout_seconds}"
            )
        self.target = target
        self.model = model
        self.timeout_seconds = timeout_seconds
        self._headers = _headers(api_key)
        if tls_ca is None:
            if tls_client is not None:
                raise InputError(
                    "A client's certificate needs `tls_ca`, the certificates "
                    "to trust."
                )
            self._channel = grpc.insecure_channel(target, _CHANNEL_OPTIONS)
            return
        check_tls(ssl.PROTOCOL_TLS_CLIENT, ca=tls_ca, own=tls_client)
        certificate, key = tls_client or (None, None)
        credentials = grpc.ssl_channel_credentials(
            *(
                path and pathlib.Path(path).read_bytes()
                for path in (tls_ca, key, certificate)
            )
        )
        self._channel = grpc.secure_channel(
            target, credentials, _CHANNEL_OPTIONS
        )

    def __enter__(self) -> "RealmClient":
        return self

    def __exit__(self, *exception_info) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

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
            questions, signatures.RETRIEVE, to_retrieved, filter
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
        return self._predict(
            questions, signatures.EMBED_QUERY, _to_embeddings, ""
        )

    def _predict(self, questions, signature, convert, filter):
        if isinstance(questions, str):
            raise TypeError(
                "`questions` must be a list of str. "
                f"Received: questions={questions!r}"
            )
        # One after the other: the last requests need not wait in memory.
        return [
            row
            for first in range(0, len(questions), BATCH_SIZE)
            for row in self._predict_part(
                questions[first : first + BATCH_SIZE],
                signature,
                convert,
                filter,
            )
        ]

    def _predict_part(self, questions, signature, convert, filter):
        signature, inputs = with_filter(signature, questions, filter)
        request = wire.PredictRequest()
        request.model_spec.name = self.model
        request.model_spec.signature_name = signature
        for name, strings in inputs.items():
            tensor = request.inputs.add(key=name).value
            tensor.dtype = _DT_STRING
            tensor.tensor_shape.dim.add(size=len(strings))
            tensor.string_val.extend(strings)
        try:
            response = self._channel.unary_unary(_PREDICT)(
                request.SerializeToString(),
                timeout=self.timeout_seconds,
                metadata=self._headers,
            )
        except grpc.RpcError as error:
            message = _explain(error, self.target, self.timeout_seconds)
            raise RealmServerError(error.code().name, message) from error
        with checked(f"The server at {self.target}"):
            outputs = {
                one.key: decode_tensor(one.value)
                for one in wire.PredictResponse.FromString(response).outputs
            }
            return convert(outputs, count=len(questions))


def check_tls(
    protocol: int, *, ca: str | None, own: tuple[str, str] | None
) -> None:
    """Refuses files that TLS would only fail over at the first call.

    Args:
        protocol: int. `ssl.PROTOCOL_TLS_CLIENT` or `ssl.PROTOCOL_TLS_SERVER`.
        ca: str. Path of the certificates to trust, or `None`.
        own: tuple of two str. Paths of the own certificate chain and of its
            key, or `None`.

    Raises:
        InputError: if a file cannot be used.
    """
    context = ssl.SSLContext(protocol)
    files = ca
    try:
        if ca is not None:
            context.load_verify_locations(ca)
        if own is not None:
            files = " with ".join(own)
            # An empty passphrase, or OpenSSL would ask at the terminal.
            context.load_cert_chain(*own, password=b"")
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
    # gRPC would show the key in its error.
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise InputError(
            "`api_key` must be printable ASCII characters without spaces; "
            "it is not shown here."
        )
    return (("authorization", f"Bearer {api_key}"),)


def _explain(error, target, timeout_seconds):
    """The cause of a failed call and its remedy, a sentence or two."""
    code = error.code().name
    if code == "UNAVAILABLE":
        return (
            f"No server answers at {target} ({error.details()}). Start one "
            "with `realm serve --saved-model DIR`, or correct the address. "
            "Either both sides speak TLS or neither; the client has to trust "
            "the authority that signed the server's certificate, which has to "
            "hold the name in the address."
        )
    if code == "DEADLINE_EXCEEDED":
        return (
            f"The server at {target} gave no answer within "
            f"{timeout_seconds:g} s; ask fewer questions at once or allow "
            "more time."
        )
    return f"The server at {target} refused ({code}): {error.details()}"


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


def with_filter(
    signature: str, questions: list[str], filter: str
) -> tuple[str, dict[str, list[bytes]]]:
    """The signature that takes a filter, if there is one, and its inputs."""
    inputs = {"question": questions}
    if filter:
        signature += signatures.FILTERED
        inputs[signatures.FILTER] = [filter] * len(questions)
    # UTF-8 has no lone surrogates.
    return signature, {
        name: [text.encode("utf-8", "replace") for text in texts]
        for name, texts in inputs.items()
    }


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
    rows = _rows(outputs, count)
    nbest = [_records(Alternative, row, "nbest_") for row in rows]
    candidates = [_records(Candidate, row, "candidate_") for row in rows]
    return _records(
        Answer,
        outputs,
        nbest=[tuple(one for one in row if one.answer) for row in nbest],
        candidates=[tuple(_real_blocks(row)) for row in candidates],
    )


def to_retrieved(
    outputs: Mapping[str, list], *, count: int
) -> list[list[RetrievedBlock]]:
    """Blocks from the outputs of `retrieve`; see `to_answers`."""
    rows = _rows(outputs, count)
    return [_real_blocks(_records(RetrievedBlock, row)) for row in rows]


def _to_embeddings(outputs, *, count):
    return [row["embedding"] for row in _rows(outputs, count)]


def _rows(outputs, count: int) -> list[dict]:
    """For each question its values by output name."""
    return [
        {name: values[row] for name, values in outputs.items()}
        for row in range(count)
    ]


def _records(record: type, outputs: Mapping, prefix: str = "", **more) -> list:
    """Records of which each field is a list; `more` are such lists, too.

    An export lacks some fields that have a default, such as `fields`.
    """
    columns = dict(more)
    for field in dataclasses.fields(record):
        name = prefix + field.name
        is_required = field.default is dataclasses.MISSING
        if field.name not in more and (is_required or name in outputs):
            columns[field.name] = outputs[name]
    return [
        record(**dict(zip(columns, map(_text, values), strict=True)))
        for values in zip(*columns.values(), strict=True)
    ]


def _text(value):
    """A value of an output; strings come as bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def _real_blocks(blocks: list) -> list:
    """Without the padding."""
    return [b for b in blocks if b.block_id != NO_BLOCK_ID]
