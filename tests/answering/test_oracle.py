"""Retrievers that know the answers, over one that is made up."""

import numpy as np
import pytest

from realm_tf.answering.oracle import Hiding
from realm_tf.answering.oracle import Oracle
from realm_tf.artifacts.question_files import Question

pytestmark = pytest.mark.fast

TEXTS = ["a moon", "the sun", "moon and sun", "nothing", "stars"]
QUESTIONS = [Question("m", ("Moon",)), Question("n", ("nowhere",))]


class _Found:
    """Blocks in the order of their ids, all there are at most."""

    def search(self, questions, num_candidates):
        ids = np.arange(min(num_candidates, len(TEXTS)), dtype="int32")
        scores = np.float32(9) - ids
        return (
            np.tile(scores, (len(questions), 1)),
            np.tile(ids, (len(questions), 1)),
        )


def test_an_oracle_puts_blocks_with_an_answer_first():
    oracle = Oracle(_Found(), TEXTS, QUESTIONS, depth=4)
    scores, block_ids = oracle.search(["m", "n"], 3)
    assert block_ids.tolist() == [[0, 2, 1], [0, 1, 2]]
    # Those of the ranks.
    assert scores.tolist() == [[9, 8, 7], [9, 8, 7]]


def test_blocks_with_an_answer_are_hidden():
    hiding = Hiding(_Found(), TEXTS, QUESTIONS, depth=4)
    scores, block_ids = hiding.search(["m", "n"], 2)
    assert block_ids.tolist() == [[1, 3], [0, 1]]
    # Those of the blocks.
    assert scores.tolist() == [[8, 6], [9, 8]]
    # There are but three.
    assert hiding.search(["m"], 5)[1].tolist() == [[1, 3, 4, 1, 3]]


def test_what_every_block_answers_cannot_be_hidden():
    everywhere = Question("e", ("moon", "sun", "nothing", "stars"))
    hiding = Hiding(_Found(), TEXTS, [everywhere], depth=4)
    assert hiding.search(["e"], 2)[1].tolist() == [[4, 4]]
