"""What a client's calls are made of, whoever makes them: thread or coroutine."""

import dataclasses
from collections.abc import Callable
from collections.abc import Iterator

import grpc
from google.protobuf.message import DecodeError

from realm_tf.serving import answers
from realm_tf.serving import messages

_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
_SIGNATURE_DEF = "signature_def"


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of the protocol.

    Args:
        method: str. Its path.
        request: bytes. The request as it is sent.
        read: callable. Takes the response's bytes, returns what the client
            does; raises `DecodeError`, `ValueError` or `RealmServerError`
            on nonsense.
    """

    method: str
    request: bytes
    read: Callable[[bytes], object]

    def result(self, response: bytes, *, target: str):
        """What the client returns for a response.

        Raises:
            RealmServerError: if it makes no sense.
        """
        try:
            return self.read(response)
        except (DecodeError, ValueError) as error:
            raise answers.unexpected(
                f"The server at {target} sent what is no response of "
                f"TensorFlow Serving's protocol ({error}); is {target} its "
                "gRPC port?"
            ) from error


def _outputs(response: bytes) -> dict:
    """Output name to nested lists."""
    parsed = messages.PredictResponse.FromString(response)
    return {
        name: messages.decode_tensor(tensor)
        for name, tensor in parsed.outputs.items()
    }


def _signatures(response: bytes) -> dict:
    """See `client.RealmClient.metadata`."""
    parsed = messages.GetModelMetadataResponse.FromString(response)
    if _SIGNATURE_DEF not in parsed.metadata:
        raise ValueError(f"metadata without {_SIGNATURE_DEF}")
    signatures = messages.SignatureDefMap.FromString(
        parsed.metadata[_SIGNATURE_DEF].value
    )
    return {
        "model": parsed.model_spec.name,
        "version": parsed.model_spec.version.value,
        "signatures": {
            name: {
                side: {
                    key: messages.describe_tensor(info)
                    for key, info in getattr(signature, side).items()
                }
                for side in ("inputs", "outputs")
            }
            for name, signature in signatures.signature_def.items()
        },
    }


def _code_name(number: int) -> str:
    """The name of a status code; the number of one that gRPC has not."""
    names = {code.value[0]: code.name for code in grpc.StatusCode}
    return names.get(number, str(number))


def _statuses(response: bytes) -> list[answers.ModelVersionStatus]:
    parsed = messages.GetModelStatusResponse.FromString(response)
    states = messages.VERSION_STATES
    return [
        answers.ModelVersionStatus(
            version=one.version,
            state=states.get(one.state, "UNKNOWN"),
            error_code=_code_name(one.status.error_code),
            error_message=one.status.error_message,
        )
        for one in parsed.model_version_status
    ]


class Calls:
    """The calls to one model.

    Args:
        model: str. The name it is served under.
        version: int. The version to ask; `None` leaves it to the server.
        batch_size: int. The most questions in one request.
    """

    def __init__(
        self,
        *,
        model: str,
        version: int | None,
        batch_size: int,
    ):
        if batch_size < 1:
            raise ValueError(
                "`batch_size` must be at least 1. "
                f"Received: batch_size={batch_size}"
            )
        self._model = model
        self._version = version
        self._batch_size = batch_size

    def ask(self, questions: list[str]) -> Iterator[Call]:
        """`serving_default`; results are lists of `Answer`."""
        return self._predict(questions, "", answers.to_answers)

    def retrieve(self, questions: list[str]) -> Iterator[Call]:
        """`retrieve`; results are lists of lists of `RetrievedBlock`."""
        return self._predict(questions, "retrieve", answers.to_retrieved)

    def embed(self, questions: list[str]) -> Iterator[Call]:
        """`embed_query`; results are lists of lists of floats."""
        return self._predict(questions, "embed_query", answers.to_embeddings)

    def metadata(self) -> Call:
        """The result is a dict."""
        request = messages.GetModelMetadataRequest()
        self._fill(request.model_spec)
        request.metadata_field.append(_SIGNATURE_DEF)
        return Call(_METADATA, request.SerializeToString(), _signatures)

    def status(self) -> Call:
        """The result is a list of `ModelVersionStatus`."""
        request = messages.GetModelStatusRequest()
        self._fill(request.model_spec)
        return Call(_STATUS, request.SerializeToString(), _statuses)

    def _fill(self, spec) -> None:
        spec.name = self._model
        if self._version is not None:
            spec.version.value = self._version

    def _predict(self, questions, signature, read) -> Iterator[Call]:
        if isinstance(questions, str):
            raise TypeError(
                "`questions` must be a list of str. "
                f"Received: questions={questions!r}"
            )
        # One after the other: the last requests need not wait in memory.
        return (
            self._predict_part(
                questions[first : first + self._batch_size],
                signature,
                read,
            )
            for first in range(0, len(questions), self._batch_size)
        )

    def _predict_part(self, questions, signature, read) -> Call:
        request = messages.PredictRequest()
        self._fill(request.model_spec)
        request.model_spec.signature_name = signature
        request.inputs["question"].CopyFrom(messages.encode_strings(questions))
        return Call(
            _PREDICT,
            request.SerializeToString(),
            lambda response: read(_outputs(response), count=len(questions)),
        )
