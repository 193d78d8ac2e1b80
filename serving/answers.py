"""What a model answers, as Python objects: of a server or in this process."""

import dataclasses
import math
from collections.abc import Callable
from collections.abc import Mapping

NO_BLOCK_ID = -1
# Log-probabilities are of float32, whose rounding may lift them above 0.
_MAX_LOG_PROB = 1e-3


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
class RetrievedBlock:
    """One block that the index found for a question.

    Args:
        block_id: int. Its row in the index.
        score: float. Inner product of the question's embedding and the
            block's, on the scale that the model was trained with.
        title: str. The article's title.
        text: str. The block.
    """

    block_id: int
    score: float
    title: str
    text: str


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


def _columns(record: type, prefix: str = "") -> dict[str, type]:
    """Output name to type of the values that a record is made of."""
    return {
        f"{prefix}{field.name}": field.type
        for field in dataclasses.fields(record)
        if field.type in (str, int, float)
    }


_ANSWER = _columns(Answer)
_NBEST = _columns(Alternative, "nbest_")
_CANDIDATE = _columns(Candidate, "candidate_")
_RETRIEVED = _columns(RetrievedBlock)
# The outputs of `serving_default` and of `retrieve` that are read.
OUTPUTS = (*_ANSWER, *_NBEST, *_CANDIDATE)
RETRIEVE_OUTPUTS = tuple(_RETRIEVED)
EMBEDDING = "embedding"


def _value(value, kind: type, name: str):
    """A value of the type that the output should have."""
    if kind is str and type(value) is bytes:
        return value.decode("utf-8", "replace")
    if kind is not str and type(value) is kind:
        return value
    raise unexpected(
        f"The model's output {name} holds {type(value).__name__} where "
        f"{kind.__name__} was expected, so it is not a REALM export; make "
        "one with `realm export`."
    )


def _rows(outputs: Mapping, name: str, count: int) -> list:
    rows = outputs[name]
    if not isinstance(rows, list) or len(rows) != count:
        size = len(rows) if isinstance(rows, list) else "no"
        raise unexpected(
            f"The model's output {name} has {size} rows for {count} questions."
        )
    return rows


def _check_names(outputs: Mapping, names) -> None:
    missing = [name for name in names if name not in outputs]
    if missing:
        raise unexpected(
            f"The model does not return {', '.join(missing)}, so it is not a "
            "REALM export; make one with `realm export`."
        )


def _lists(outputs: Mapping, columns: dict, record: Callable, count: int):
    """For each question the list of records in its parallel lists."""
    table = {name: _rows(outputs, name, count) for name in columns}
    order = list(enumerate(columns))
    found = []
    for row in range(count):
        values = {name: rows[row] for name, rows in table.items()}
        lists = [v for v in values.values() if isinstance(v, list)]
        if len(lists) < len(values) or len({len(v) for v in lists}) != 1:
            raise unexpected(
                f"The model's outputs {', '.join(columns)} are not lists of "
                "one length."
            )
        found.append(
            [
                record(*(_value(one[i], columns[n], n) for i, n in order))
                for one in zip(*values.values(), strict=True)
            ]
        )
    return found


def _real_blocks(blocks: list) -> tuple:
    """Without those that fill up the list."""
    return tuple(b for b in blocks if b.block_id != NO_BLOCK_ID)


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
        RealmServerError: if an output is missing, of another type or of
            another length.
    """
    _check_names(outputs, OUTPUTS)
    table = {name: _rows(outputs, name, count) for name in _ANSWER}
    nbest = _lists(outputs, _NBEST, Alternative, count)
    candidates = _lists(outputs, _CANDIDATE, Candidate, count)
    for candidate in (c for row in candidates for c in row):
        if candidate.log_prob > _MAX_LOG_PROB:
            raise unexpected(
                "The model's output candidate_log_prob holds "
                f"{candidate.log_prob:g}, which is no log-probability."
            )
    return [
        Answer(
            **{
                name: _value(table[name][row], kind, name)
                for name, kind in _ANSWER.items()
            },
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
        outputs: As of `to_answers`; `RETRIEVE_OUTPUTS` names those needed.
        count: int. How many questions were asked.

    Returns:
        list with a list of `RetrievedBlock` for each question, best first
        and without padding.

    Raises:
        RealmServerError: As `to_answers`.
    """
    _check_names(outputs, RETRIEVE_OUTPUTS)
    rows = _lists(outputs, _RETRIEVED, RetrievedBlock, count)
    return [list(_real_blocks(row)) for row in rows]


def to_embeddings(
    outputs: Mapping[str, list], *, count: int
) -> list[list[float]]:
    """Embeddings from the outputs of the signature `embed_query`.

    Args:
        outputs: As of `to_answers`; `EMBEDDING` is needed.
        count: int. How many questions were asked.

    Returns:
        list of `count` lists of `projection_dim` floats.

    Raises:
        RealmServerError: As `to_answers`.
    """
    _check_names(outputs, [EMBEDDING])
    columns = {EMBEDDING: float}
    return _lists(outputs, columns, lambda value: value, count)
