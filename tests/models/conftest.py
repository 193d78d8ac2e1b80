"""The open-QA world of the tests of `RetrieveAndRead`."""

import functools

import open_qa_oracle as oracle
import pytest


@pytest.fixture(scope="module")
def make_model(make_encoder, randomize):
    """Makes a `RetrieveAndRead` of two towers and its block embeddings."""
    return functools.partial(oracle.make_model, make_encoder, randomize)


@pytest.fixture(scope="module")
def model(make_model):
    return make_model()


@pytest.fixture(scope="module")
def answers(model):
    """One kind of question each; where the answer occurs depends on the model."""
    ranked = [oracle.ranking(model, query)[0] for query in oracle.QUERIES]
    unread = [
        next(b for b in row[oracle.NUM_READ :] if oracle.LENGTHS[b] > 1)
        for row in ranked
    ]
    return [
        # In the best block.
        [oracle.BODIES[ranked[0][0]][:1]],
        # Only in a block that is a candidate and not read.
        [oracle.BODIES[unread[1]][:2]],
        # Nowhere.
        [[59]],
        # Several: in two blocks, and one that is nowhere.
        [
            oracle.BODIES[ranked[3][0]][-1:],
            [59, 58],
            oracle.BODIES[ranked[3][1]][:2],
        ],
        # Wider than any span, though it occurs in a block.
        [oracle.BODIES[2][:5]],
        # Cut inside a word, beside one that is whole.
        [oracle.BODIES[5][:1], oracle.BODIES[ranked[5][1]][-1:]],
    ]


@pytest.fixture(scope="module")
def expected(model, answers):
    return [
        oracle.answer(model, query, row)
        for query, row in zip(oracle.QUERIES, answers, strict=True)
    ]
