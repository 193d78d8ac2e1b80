"""A client of a REALM server that needs neither TensorFlow nor Keras.

with RealmClient("127.0.0.1:8500") as client:
    for answer in client.ask(["Who wrote Frankenstein?"]):
        print(answer.answer, answer.title, answer.url)
"""

import dataclasses
import math
from collections.abc import Mapping

import grpc

from serving import messages

_SERVICE = "/tensorflow.serving.PredictionService"
_CHANNEL_OPTIONS = (
    # Block texts of a large batch pass gRPC's default of 4 MB. The limit is
    # TF Serving's (main.cc: the largest int32).
    ("grpc.max_receive_message_length", 2**31 - 1),
    ("grpc.max_send_message_length", 2**31 - 1),
)
NO_BLOCK_ID = -1


class RealmServerError(Exception):
    """A server could not be reached, refused, or answered nonsense.

    Args:
        code: str. A gRPC status name such as `"UNAVAILABLE"`, or
            `"UNEXPECTED_RESPONSE"`.
        message: str. One or two sentences: what happened, how to mend it.
    """

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One block that was read for a question.

    Args:
        block_id: int. Its row in the index.
        title: str. The article's title.
        text: str. The block.
        answer: str. The best span of this block alone.
        log_prob: float. log p(z | x) over the blocks read, in nats.
    """

    block_id: int
    title: str
    text: str
    answer: str
    log_prob: float

    @property
    def probability(self) -> float:
        """p(z | x) over the blocks read."""
        return math.exp(self.log_prob)


@dataclasses.dataclass(frozen=True)
class Alternative:
    """One of the n best answers.

    Args:
        answer: str.
        score: float. As `Answer.score`.
    """

    answer: str
    score: float


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer and its evidence.

    Args:
        answer: str. Empty where nothing was found.
        score: float. Best span logit plus retrieval score.
        confidence: float. As the model exports it.
        block_id: int. The block the answer stands in; -1 for none.
        title: str. That block's article.
        text: str. That block.
        url: str. Where it came from; may be empty.
        start: int. First code point of the answer in `text`.
        limit: int. One past its last code point.
        nbest: tuple of `Alternative`, best first.
        candidates: tuple of `Candidate`, in the order the model gives them.
    """

    answer: str
    score: float
    confidence: float
    block_id: int
    title: str
    text: str
    url: str
    start: int
    limit: int
    nbest: tuple[Alternative, ...]
    candidates: tuple[Candidate, ...]


_ANSWER_FIELDS = (
    "answer",
    "score",
    "confidence",
    "block_id",
    "title",
    "text",
    "url",
    "start",
    "limit",
)
_NBEST_FIELDS = ("answer", "score")
_CANDIDATE_FIELDS = ("block_id", "title", "text", "answer", "log_prob")
OUTPUTS = (
    *_ANSWER_FIELDS,
    *(f"nbest_{name}" for name in _NBEST_FIELDS),
    *(f"candidate_{name}" for name in _CANDIDATE_FIELDS),
)


def _text(value):
    return value.decode("utf-8", "replace") if type(value) is bytes else value


def _rows(outputs: Mapping, prefix: str, names: tuple, row: int) -> list[dict]:
    """One dict a candidate from the row's parallel lists."""
    columns = [outputs[f"{prefix}_{name}"][row] for name in names]
    if len({len(column) for column in columns}) != 1:
        raise RealmServerError(
            "UNEXPECTED_RESPONSE",
            f"The model's outputs {prefix}_* are of different lengths.",
        )
    return [
        dict(zip(names, map(_text, values), strict=True))
        for values in zip(*columns, strict=True)
    ]


def to_answers(outputs: Mapping[str, list], *, count: int) -> list[Answer]:
    """Answers from the outputs of the signature `serving_default`.

    Padded candidates (block id -1) and empty n-best answers are left out.

    Args:
        outputs: mapping of output name to nested lists, strings as bytes;
            `OUTPUTS` names those needed.
        count: int. How many questions were asked.

    Returns:
        list of `Answer`, one a question.

    Raises:
        RealmServerError: if an output is missing or has another length.
    """
    missing = [name for name in OUTPUTS if name not in outputs]
    if missing:
        raise RealmServerError(
            "UNEXPECTED_RESPONSE",
            f"The model does not return {', '.join(missing)}, so it is not a "
            "REALM export; make one with `realm export`.",
        )
    sizes = {name: len(outputs[name]) for name in OUTPUTS}
    if set(sizes.values()) != {count}:
        raise RealmServerError(
            "UNEXPECTED_RESPONSE",
            f"The model returned {sizes} rows for {count} questions.",
        )
    answers = []
    for row in range(count):
        candidates = _rows(outputs, "candidate", _CANDIDATE_FIELDS, row)
        nbest = _rows(outputs, "nbest", _NBEST_FIELDS, row)
        answers.append(
            Answer(
                **{name: _text(outputs[name][row]) for name in _ANSWER_FIELDS},
                nbest=tuple(Alternative(**n) for n in nbest if n["answer"]),
                candidates=tuple(
                    Candidate(**c)
                    for c in candidates
                    if c["block_id"] != NO_BLOCK_ID
                ),
            )
        )
    return answers


class RealmClient:
    """Asks a server of this project, or any TF Serving with a REALM export.

    Args:
        target: str. `"HOST:PORT"` of the gRPC port.
        model: str. The name the model is served under. Defaults to
            `"realm"`.
        timeout_seconds: float. The longest a call may take. Defaults to 30.

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
        model: str = "realm",
        timeout_seconds: float = 30.0,
    ):
        if timeout_seconds <= 0:
            raise ValueError(
                "`timeout_seconds` must be positive. "
                f"Received: timeout_seconds={timeout_seconds}"
            )
        self.target = target
        self.model = model
        self.timeout_seconds = timeout_seconds
        self._channel = grpc.insecure_channel(target, _CHANNEL_OPTIONS)
        self._predict = self._channel.unary_unary(
            f"{_SERVICE}/Predict",
            request_serializer=messages.PredictRequest.SerializeToString,
            response_deserializer=messages.PredictResponse.FromString,
        )
        self._get_metadata = self._channel.unary_unary(
            f"{_SERVICE}/GetModelMetadata",
            request_serializer=(
                messages.GetModelMetadataRequest.SerializeToString
            ),
            response_deserializer=(
                messages.GetModelMetadataResponse.FromString
            ),
        )

    def __enter__(self) -> "RealmClient":
        return self

    def __exit__(self, *exception_info) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def ask(self, questions: list[str]) -> list[Answer]:
        """Answers questions, all in one request.

        Args:
            questions: list of str.

        Returns:
            list of `Answer`, in the order of the questions.

        Raises:
            RealmServerError: if the server cannot be reached or refuses.
        """
        if isinstance(questions, str):
            raise TypeError(
                "`questions` must be a list of str. "
                f"Received: questions={questions!r}"
            )
        if not questions:
            return []
        request = messages.PredictRequest()
        request.model_spec.name = self.model
        request.inputs["question"].CopyFrom(messages.encode_strings(questions))
        request.output_filter.extend(OUTPUTS)
        response = self._call(self._predict, request)
        try:
            outputs = {
                name: messages.decode_tensor(tensor)
                for name, tensor in response.outputs.items()
            }
        except ValueError as error:
            raise RealmServerError(
                "UNEXPECTED_RESPONSE",
                f"The server at {self.target} sent a broken tensor: {error}.",
            ) from error
        return to_answers(outputs, count=len(questions))

    def metadata(self) -> dict:
        """What the server serves.

        Returns:
            dict with `"model"`, `"version"` (int) and `"signatures"`: name
            to `{"inputs": {name: {"dtype", "shape"}}, "outputs": ...}`.

        Raises:
            RealmServerError: if the server cannot be reached or refuses.
        """
        request = messages.GetModelMetadataRequest()
        request.model_spec.name = self.model
        request.metadata_field.append("signature_def")
        response = self._call(self._get_metadata, request)
        signatures = messages.SignatureDefMap.FromString(
            response.metadata["signature_def"].value
        )
        return {
            "model": response.model_spec.name,
            "version": response.model_spec.version.value,
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

    def _call(self, method, request):
        try:
            return method(request, timeout=self.timeout_seconds)
        except grpc.RpcError as error:
            code = error.code().name
            raise RealmServerError(
                code, self._explain(code, error.details())
            ) from error

    def _explain(self, code: str, details: str) -> str:
        if code == "UNAVAILABLE":
            port = self.target.rpartition(":")[2]
            # gRPC tells the way down to the cause, which comes last.
            reason = details.rpartition(": ")[2]
            return (
                f"No server answers at {self.target} ({reason}). Start one "
                f"with `realm serve --saved-model DIR --grpc-port {port}`, "
                "or correct the address."
            )
        if code == "DEADLINE_EXCEEDED":
            return (
                f"The server at {self.target} gave no answer within "
                f"{self.timeout_seconds:g} s; ask fewer questions at once or "
                "allow more time."
            )
        return f"The server at {self.target} refused ({code}): {details}"
