"""What a retriever found, in the files that other programs read."""

import dataclasses
import json
import re
import urllib.parse

import numpy as np

from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError
from realm_tf.text import answers

_RUN = "realm"
_WHITE_SPACE = re.compile(r"\s+")


@dataclasses.dataclass(frozen=True)
class Found:
    """What was found for a question.

    Args:
        query_id: str. That of its line, `id` or BEIR's `_id`, or its number.
        question: `Question`.
        block_ids: int array `(num_found,)`. Best first.
        scores: float array of the same shape. Falling.
    """

    query_id: str
    question: Question
    block_ids: np.ndarray
    scores: np.ndarray


def search(retriever, asked: list[Question], depth: int) -> list[Found]:
    """Searches for each question; for an empty one nothing is found.

    Args:
        retriever: one of `retrieval.retrievers`.
        asked: list of `Question`.
        depth: int. Blocks of each.

    Raises:
        InputError: if an id holds white space, or is there twice.
    """
    ids = [_query_id(number, question) for number, question in enumerate(asked)]
    if len(set(ids)) < len(ids):
        repeated = next(each for each in ids if ids.count(each) > 1)
        raise InputError(f"Two questions have the id {repeated}.")
    scores, block_ids, *_ = retriever.search(
        [question.question for question in asked], depth
    )
    found = []
    for row, question in enumerate(asked):
        # What fills the places of blocks that there are not has -inf.
        is_found = np.isfinite(scores[row]) & bool(question.question.strip())
        found.append(
            Found(
                ids[row],
                question,
                np.asarray(block_ids[row])[is_found],
                np.asarray(scores[row])[is_found],
            )
        )
    return found


def _query_id(number, question):
    found = question.id_at(number)
    if not found or found.split() != [found]:
        raise InputError(
            f"The id {found!r} of a question holds white space, which a run "
            "has between its columns."
        )
    return found


def article_ids(blocks) -> list[str]:
    """The id of each block's article, as a run can name it.

    White space in it is percent-encoded, as in a URL: columns are separated by
    such.

    Args:
        blocks: `Blocks`.
    """
    return [
        _WHITE_SPACE.sub(lambda found: urllib.parse.quote(found[0]), name)
        for name in blocks.table["article_id"].to_pylist()
    ]


def ranked(
    found: list[Found], names: list[str] | None
) -> list[tuple[str, list[tuple[str, float]]]]:
    """Documents of each question with their scores, best first.

    Args:
        found: list of `Found`.
        names: list of str. The document of each block, which has the score of
            its best; `None`: blocks are documents. A query of a BEIR folder
            does not find the document of its own id, as in BEIR's evaluation.
    """
    rows = []
    for each in found:
        scores = {}
        is_of_beir = names is not None and "_id" in each.question.line
        for block_id, score in zip(
            each.block_ids.tolist(), each.scores.tolist(), strict=True
        ):
            name = _name(block_id, names)
            if not is_of_beir or name != each.query_id:
                scores.setdefault(name, score)
        rows.append((each.query_id, list(scores.items())))
    return rows


def _name(block_id, names):
    return str(block_id) if names is None else names[block_id]


def trec(rows) -> str:
    """A run: `QUERY Q0 DOCUMENT RANK SCORE RUN`, a line for each document.

    Scores are of float32 with nine digits and strictly fall: trec_eval orders
    equal ones by the names of documents.

    Args:
        rows: as `ranked` gives them.
    """
    lines = []
    for query_id, documents in rows:
        last = np.float32(np.inf)
        for rank, (document, score) in enumerate(documents, 1):
            below = np.nextafter(last, np.float32(-np.inf))
            last = min(np.float32(score), below)
            lines.append(f"{query_id} Q0 {document} {rank} {last:.9g} {_RUN}\n")
    return "".join(lines)


def qrels(found: list[Found], records, names: list[str] | None) -> str:
    """Judgements: `QUERY 0 DOCUMENT 1` for what was found and holds an answer.

    Args:
        found: list of `Found`.
        records: `BlockRecords`.
        names: as of `ranked`.
    """
    finder = answers.AnswerFinder(records.texts)
    return "".join(
        f"{each.query_id} 0 {document} 1\n"
        for each in found
        for document in dict.fromkeys(
            _name(block_id, names)
            for block_id in each.block_ids.tolist()
            if finder.contains(block_id, *each.question.accepted)
        )
    )


def dpr(found: list[Found], records) -> str:
    """The JSON of DPR's retriever (facebookresearch/DPR, dense_retriever.py).

    Args:
        found: list of `Found`.
        records: `BlockRecords`.
    """
    finder = answers.AnswerFinder(records.texts)
    rows = [
        {
            "question": each.question.question,
            "answers": list(each.question.answers),
            "ctxs": [
                {
                    "id": str(block_id),
                    "title": records.titles[block_id],
                    "text": records.texts[block_id],
                    "score": f"{score:.9g}",
                    "has_answer": finder.contains(
                        block_id, *each.question.accepted
                    ),
                }
                for block_id, score in zip(
                    each.block_ids.tolist(), each.scores.tolist(), strict=True
                )
            ],
        }
        for each in found
    ]
    return json.dumps(rows, indent=4, ensure_ascii=False) + "\n"
