"""RetrieveAndRead recomputed slowly, question by question and span by span.

Eight blocks whose wordpieces are all different, so that an answer occurs in
one block only; random weights without dropout.
"""

import loss_oracle
import numpy as np
from one_row import one_row

from realm_tf.models.block_table import BlockTable
from realm_tf.models.embedder import Embedder
from realm_tf.models.open_qa import OpenQa
from realm_tf.models.reader import Reader
from realm_tf.models.retrieve_and_read import RetrieveAndRead
from realm_tf.retrieval.brute_force import BruteForce

CLS, SEP = 2, 3
LENGTHS = [5, 3, 6, 4, 1, 6, 5, 2]
# Block b holds the wordpieces 10 + 6 b, 11 + 6 b, ...
BODIES = [
    [10 + 6 * block + place for place in range(length)]
    for block, length in enumerate(LENGTHS)
]
# Of a reader that reads titles.
TITLES = [[5 + block % 4] * (1 + block % 3) for block in range(len(BODIES))]
# The second wordpiece of the sixth block goes on with the first one's word.
CONTINUATION = BODIES[5][1]
QUERIES = [
    [CLS, 5, 6, SEP],
    [CLS, 7, SEP],
    [CLS, 8, 9, 5, 4, SEP],
    [CLS, 6, 6, 7, SEP],
    [CLS, 4, 8, SEP],
    [CLS, 9, SEP],
]
NUM_CANDIDATES = 6
NUM_READ = 3
MAX_WIDTH = 4


def make_model(
    make_encoder,
    randomize,
    *,
    index=BruteForce,
    train_reader=True,
    reader=None,
    **arguments,
):
    """A `RetrieveAndRead` of two towers and its block embeddings.

    `reader` is a dict of other arguments of `Reader`.
    """

    def encoder():
        return make_encoder(num_layers=1, dropout=0.0)

    def tower():
        return Embedder(encoder(), projection_dim=4, dropout=0.0)

    query_embedder, block_embedder = tower(), tower()
    reader = make_reader(encoder(), **(reader or {}))
    for seed, part in enumerate((query_embedder, block_embedder, reader)):
        randomize(part, seed=seed)
    block_embedder.trainable = False
    reader.trainable = train_reader
    table = np.zeros((len(BODIES), max(LENGTHS)), "int32")
    for row, body in enumerate(BODIES):
        table[row, : len(body)] = body
    titles = {}
    if reader.reads_titles:
        titles["title_lengths"] = [len(title) for title in TITLES]
        titles["title_ids"] = [(title + [0, 0])[:3] for title in TITLES]
        titles = {k: np.array(v, "int32") for k, v in titles.items()}
    random = np.random.default_rng(7)
    embeddings = random.normal(size=(len(BODIES), 4)).astype("float32")
    return RetrieveAndRead(
        OpenQa(query_embedder, block_embedder, reader, score_scale=2.0),
        index(embeddings),
        BlockTable(table, LENGTHS, **titles),
        is_continuation=np.arange(60) == CONTINUATION,
        sep_id=SEP,
        **{
            "num_candidates": NUM_CANDIDATES,
            "num_reader_blocks": NUM_READ,
            **arguments,
        },
    )


def make_reader(encoder, **arguments):
    return Reader(
        encoder,
        **{"span_hidden_dim": 6, "max_span_width": MAX_WIDTH, **arguments},
    )


def pack(queries):
    length = max(map(len, queries))
    token_ids = np.zeros((len(queries), length), "int32")
    for row, ids in enumerate(queries):
        token_ids[row, : len(ids)] = ids
    return {
        "token_ids": token_ids,
        "padding_mask": (token_ids > 0).astype("int32"),
    }


def pack_answers(answers):
    width = max(len(ids) for row in answers for ids in row)
    packed = np.full((len(answers), max(map(len, answers)), width), -1)
    for row, row_answers in enumerate(answers):
        for column, ids in enumerate(row_answers):
            packed[row, column, : len(ids)] = ids
    return packed.astype("int32")


def to_numpy(outputs):
    return {name: np.asarray(value) for name, value in outputs.items()}


def ranking(model, query):
    embedding = np.asarray(model.open_qa.query_embedder(one_row(query)))[
        0
    ].astype("float64")
    scores = 2.0 * (np.asarray(model.index.embeddings) @ embedding)
    order = sorted(range(len(BODIES)), key=lambda block: -scores[block])
    return order[: model.num_candidates], scores


def _starts_of(body, answer):
    """Where an answer stands as whole words."""
    if not answer:
        return []
    return [
        start
        for start in range(len(body) - len(answer) + 1)
        if body[start : start + len(answer)] == answer
        and body[start + len(answer) : start + len(answer) + 1]
        != [CONTINUATION]
    ]


def spans_of(reader, query, block, relevance, answers):
    """`(start, limit) -> (score, correct)` of a block."""
    body = BODIES[block]
    if reader.reads_titles:
        query = [*query, *TITLES[block], SEP]
    joined = [*query, *body, SEP]
    segments = [0] * len(query) + [1] * (len(body) + 1)
    logits = np.asarray(reader(one_row(joined, segments)))[0]
    widest = logits.shape[-1]
    right = {
        (start, start + len(answer))
        for answer in answers
        for start in _starts_of(body, answer)
    }
    return {
        (start, start + width): (
            float(logits[len(query) + start, width - 1]) + relevance,
            (start, start + width) in right,
        )
        for start in range(len(body))
        for width in range(1, widest + 1)
        if start + width <= len(body)
    }


def answer(model, query, answers):
    """Losses and hits of one question, and the spans of each block read."""
    candidates, scores = ranking(model, query)
    has_answer = [
        any(_starts_of(BODIES[block], answer) for answer in answers)
        for block in candidates
    ]
    spans = {
        (block, *place): value
        for block in candidates[: model.num_reader_blocks]
        for place, value in spans_of(
            model.open_qa.reader, query, block, scores[block], answers
        ).items()
    }
    span_scores, correct = zip(*spans.values(), strict=True)
    return {
        "candidates": candidates,
        "scores": scores[candidates],
        "has_answer": has_answer,
        "retriever_loss": _loss(scores[candidates], has_answer),
        "reader_loss": _loss(span_scores, correct),
        "spans": spans,
        "answerable": any(correct),
        "best_is_right": max(spans.values())[1],
    }


def _loss(scores, correct):
    return loss_oracle.span_loss(scores, correct, [True] * len(scores))


def loss(model, answers):
    """The mean loss of all questions."""
    rows = [
        answer(model, query, row)
        for query, row in zip(QUERIES, answers, strict=True)
    ]
    return np.mean([r["retriever_loss"] + r["reader_loss"] for r in rows])


def batch(answers):
    """All questions with their accepted answers."""
    return {**pack(QUERIES), "answer_ids": pack_answers(answers)}
