"""What a SavedModel or its server gives, as objects, wherever it runs."""

import dataclasses
from collections.abc import Mapping

import grpc

from realm_tf.answering.answer import Alternative
from realm_tf.answering.answer import Answer
from realm_tf.answering.answer import Candidate
from realm_tf.serving import messages

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


def unexpected(message: str) -> RealmServerError:
    """The error for a response that makes no sense.

    Args:
        message: str. What was wrong with it.

    Returns:
        `RealmServerError` of the code `"UNEXPECTED_RESPONSE"`.
    """
    return RealmServerError("UNEXPECTED_RESPONSE", message)


@dataclasses.dataclass(frozen=True)
class RetrievedBlock:
    """One block that the index found for a question.

    Args:
        block_id: int. Its row in the index.
        score: float. Inner product of the question's embedding and the
            block's, on the scale that the model was trained with.
        title: str. The article's title.
        text: str. The block.
        url: str. Where the block came from. Defaults to `""`.
    """

    block_id: int
    score: float
    title: str
    text: str
    url: str = ""


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


_EMBEDDING = "embedding"
SIGNATURE_DEF = "signature_def"
# Earlier exports have none.
_OPTIONAL = "url"


def _not_ours(problem: str) -> RealmServerError:
    return unexpected(
        f"The model's output {problem}, so it is not a REALM export; make one "
        "with `realm export`."
    )


def _value(value, kind: type, name: str):
    """A value of the type that the output should have."""
    if kind is str and type(value) is bytes:
        return value.decode("utf-8", "replace")
    if kind is not str and type(value) is kind:
        return value
    raise _not_ours(
        f"{name} holds {type(value).__name__} where {kind.__name__} was "
        "expected"
    )


def _rows(outputs: Mapping, name: str, count: int) -> list:
    rows = outputs.get(name)
    if not isinstance(rows, list) or len(rows) != count:
        raise _not_ours(f"{name} does not hold {count} rows")
    return rows


def _records(outputs: Mapping, record: type, prefix: str, count: int) -> list:
    """The fields of a record that are single values: a dict for each row."""
    found = [{} for _ in range(count)]
    for field in dataclasses.fields(record):
        name = prefix + field.name
        if field.type not in (str, int, float):
            continue
        if field.name == _OPTIONAL and name not in outputs:
            continue
        rows = _rows(outputs, name, count)
        for fields, value in zip(found, rows, strict=True):
            fields[field.name] = _value(value, field.type, name)
    return found


def _lists(outputs: Mapping, record: type, prefix: str, count: int) -> list:
    """For each question the list of records in its parallel lists."""
    names = [prefix + field.name for field in dataclasses.fields(record)]
    columns = {
        name: _rows(outputs, name, count)
        for name in names
        if name in outputs or name == names[0]
    }
    found = []
    for row in range(count):
        lists = {name: rows[row] for name, rows in columns.items()}
        first = lists.get(names[0])
        size = len(first) if isinstance(first, list) else 0
        fields = _records(lists, record, prefix, size)
        found.append([record(**values) for values in fields])
    return found


def _real_blocks(blocks: list) -> tuple:
    """Without those that fill up the list."""
    return tuple(b for b in blocks if b.block_id != NO_BLOCK_ID)


def to_answers(outputs: Mapping[str, list], *, count: int) -> list[Answer]:
    """Answers from the outputs of the signature `serving_default`.

    Padded candidates (block id -1) and empty n-best answers are left out.

    Args:
        outputs: mapping of output name to nested lists, strings as bytes.
        count: int. How many questions were asked.

    Returns:
        list of `Answer`, one a question.

    Raises:
        RealmServerError: if an output is missing, of another type or of
            another length.
    """
    fields = _records(outputs, Answer, "", count)
    nbest = _lists(outputs, Alternative, "nbest_", count)
    candidates = _lists(outputs, Candidate, "candidate_", count)
    return [
        Answer(
            **fields[row],
            nbest=tuple(one for one in nbest[row] if one.answer),
            candidates=_real_blocks(candidates[row]),
        )
        for row in range(count)
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

    Raises:
        RealmServerError: As `to_answers`.
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

    Raises:
        RealmServerError: As `to_answers`.
    """
    rows = _rows(outputs, _EMBEDDING, count)
    if not all(isinstance(row, list) for row in rows):
        raise _not_ours(f"{_EMBEDDING} is not of rank 2")
    return [[_value(v, float, _EMBEDDING) for v in row] for row in rows]


def read_metadata(response: bytes) -> dict:
    """See `client.RealmClient.metadata`.

    Raises:
        ValueError: if it holds no signatures.
    """
    parsed = messages.GetModelMetadataResponse.FromString(response)
    packed = {one.key: one.value.value for one in parsed.metadata}
    if SIGNATURE_DEF not in packed:
        raise ValueError(f"metadata without {SIGNATURE_DEF}")
    signatures = messages.SignatureDefMap.FromString(packed[SIGNATURE_DEF])
    return {
        "model": parsed.model_spec.name,
        "version": parsed.model_spec.version.value,
        "signatures": {
            signature.key: {
                side: {
                    one.key: messages.describe_tensor(one.value)
                    for one in getattr(signature.value, side)
                }
                for side in ("inputs", "outputs")
            }
            for signature in signatures.signature_def
        },
    }


def read_statuses(response: bytes) -> list[ModelVersionStatus]:
    """See `client.RealmClient.status`."""
    parsed = messages.GetModelStatusResponse.FromString(response)
    codes = {code.value[0]: code.name for code in grpc.StatusCode}
    return [
        ModelVersionStatus(
            version=one.version,
            state=messages.VERSION_STATES.get(one.state, "UNKNOWN"),
            error_code=codes.get(
                one.status.error_code, str(one.status.error_code)
            ),
            error_message=one.status.error_message,
        )
        for one in parsed.model_version_status
    ]
