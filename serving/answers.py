"""What a SavedModel or its server gives, as objects, wherever it runs."""

import contextlib
import dataclasses
from collections.abc import Iterator
from collections.abc import Mapping

import grpc
from google.protobuf.message import DecodeError

from realm_tf.answering.answer import Alternative
from realm_tf.answering.answer import Answer
from realm_tf.answering.answer import Candidate
from realm_tf.serving.messages import VERSION_STATES
from realm_tf.serving.messages import wire

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
class RetrievedBlock:
    """One block that the index found for a question.

    Args:
        block_id: int. Its row in the index.
        score: float. Inner product of the question's embedding and the
            block's, on the scale that the model was trained with, and
            `lexical_score`.
        title: str. The article's title.
        text: str. The block.
        url: str. Where the block came from. Defaults to `""`.
        lexical_score: float. What BM25 gives of the score. Defaults to `0.0`:
            the model searches without.
        fields: str. What a filter could find it by, such as
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
    """What a server says of one version of a model.

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


@contextlib.contextmanager
def checked(source: str) -> Iterator[None]:
    """A context in which what a model or a server gave is read.

    Args:
        source: str. What gave it, for the error.

    Raises:
        RealmServerError: of the code `"UNEXPECTED_RESPONSE"`, if an output is
            missing or of another length, or a message is none.
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


def _text(value):
    """A value of an output; strings come as bytes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value


def _rows(
    outputs: Mapping[str, list], record: type, prefix: str, count: int
) -> list[dict]:
    """For each row the values of a record's fields, but for its tuples.

    Earlier exports lack some that have a default.
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
    """For each row the records that its parallel lists hold."""
    return [
        [
            record(**values)
            for values in _rows(
                lists, record, "", len(next(iter(lists.values())))
            )
        ]
        for lists in _rows(outputs, record, prefix, count)
    ]


def _real_blocks(blocks: list) -> tuple:
    """Without those that fill up the list."""
    return tuple(b for b in blocks if b.block_id != NO_BLOCK_ID)


def to_answers(outputs: Mapping[str, list], *, count: int) -> list[Answer]:
    """Answers from the outputs of the signature `serving_default`.

    Padded candidates (block id -1) and empty n-best answers are left out.
    In a context of `checked`, as the others.

    Args:
        outputs: mapping of output name to nested lists, strings as bytes.
        count: int. How many questions were asked.

    Returns:
        list of `Answer`, one a question.
    """
    return [
        Answer(
            **fields,
            nbest=tuple(one for one in nbest if one.answer),
            candidates=_real_blocks(candidates),
        )
        for fields, nbest, candidates in zip(
            _rows(outputs, Answer, "", count),
            _lists(outputs, Alternative, "nbest_", count),
            _lists(outputs, Candidate, "candidate_", count),
            strict=True,
        )
    ]


def to_retrieved(
    outputs: Mapping[str, list], *, count: int
) -> list[list[RetrievedBlock]]:
    """Blocks from the outputs of the signature `retrieve`.

    Args:
        outputs: As of `to_answers`.
        count: int. How many questions were asked.

    Returns:
        list with a list of `RetrievedBlock` for each question, best first
        and without padding.
    """
    rows = _lists(outputs, RetrievedBlock, "", count)
    return [list(_real_blocks(row)) for row in rows]


def to_embeddings(
    outputs: Mapping[str, list], *, count: int
) -> list[list[float]]:
    """Embeddings from the outputs of the signature `embed_query`.

    Args:
        outputs: As of `to_answers`.
        count: int. How many questions were asked.

    Returns:
        list of `count` lists of `projection_dim` floats.
    """
    rows = zip(range(count), outputs["embedding"], strict=True)
    return [row for _, row in rows]


def read_statuses(response: bytes) -> list[ModelVersionStatus]:
    """See `client.RealmClient.status`."""
    parsed = wire.GetModelStatusResponse.FromString(response)
    codes = {code.value[0]: code.name for code in grpc.StatusCode}
    return [
        ModelVersionStatus(
            version=one.version,
            state=VERSION_STATES.get(one.state, "UNKNOWN"),
            error_code=codes.get(
                one.status.error_code, str(one.status.error_code)
            ),
            error_message=one.status.error_message,
        )
        for one in parsed.model_version_status
    ]
