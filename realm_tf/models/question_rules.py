"""What an answer is not, whatever a reader says: what the question says already."""

import numpy as np
from keras import ops

# What comes off the score of a span that says nothing new (our choice).
PENALTY = 3.0
# A question that begins with one of these asks whether something is so,
_VERBS = (
    "am is are was were do does did has have had can could will would shall "
    "should may might must"
)
# but not if it holds one of these: "Is A or B larger?", "Can you tell me how?".
_OTHERWISE = (
    "or what which who whom whose when where why how tell give name list"
)
# These may be what is new: "--force" is an answer to "how do I force it?".
_OF_CODES = "-_/@#$%&*+=~<>|^\\"


class QuestionRules:
    """Rules of English questions, on wordpieces.

    Of a question that asks whether something is so, the answer is the sentence
    that decides. Of others it is no span that says nothing new: of which each
    wordpiece is in the question, in most blocks (as the name of the product
    that they are about), or a mark of a sentence. Such a span scores `PENALTY`
    less, so that it answers only where no other does nearly as well. If the
    question offers a choice ("or"), its own words may answer.

    Args:
        vocabulary: list of str. Wordpieces in the order of their ids.
    """

    def __init__(self, vocabulary):
        self._verbs, self._otherwise, self._or = (
            np.flatnonzero(np.isin(vocabulary, words.split()))
            for words in (_VERBS, _OTHERWISE, "or")
        )
        self._is_mark = np.array(
            [
                not any(c.isalnum() or c in _OF_CODES for c in piece)
                for piece in vocabulary
            ]
        )

    def asks_whether(self, question_ids):
        """Which questions ask whether something is so.

        Args:
            question_ids: int tensor `(batch_size, query_length)`, packed.

        Returns:
            bool tensor `(batch_size,)`.
        """
        begins = _is_among(question_ids[:, 1:2], self._verbs)
        otherwise = _is_among(question_ids, self._otherwise)
        return ops.any(begins, axis=1) & ~ops.any(otherwise, axis=1)

    def __call__(self, outputs, question_ids, is_common):
        """Outputs of `RetrieveAndRead` with less for spans that say nothing new.

        Args:
            outputs: dict of tensors or arrays. Among them `joint_ids`
                `(batch_size, num_read, length)` and `span_scores`
                `(batch_size, num_read, length, width)`.
            question_ids: as of `asks_whether`.
            is_common: bool tensor or array `(vocabulary_size,)`. Which wordpieces
                are in most blocks.

        Returns:
            dict, with other `span_scores`.
        """
        scores = ops.convert_to_tensor(outputs["span_scores"])
        # (b, r, l)
        token_ids = ops.convert_to_tensor(outputs["joint_ids"])
        is_known = ops.take(
            ops.logical_or(is_common, self._is_mark), token_ids, axis=0
        )
        is_asked = _is_among(token_ids, question_ids[:, None, None, :])
        is_new = ~ops.logical_or(is_known, is_asked)
        # The place of the first new wordpiece from each one on.
        count = ops.cast(is_new, "int32")
        places = ops.arange(ops.shape(token_ids)[-1], dtype="int32")
        next_new = ops.take_along_axis(
            ops.sort(ops.where(is_new, places, 2**30), axis=-1),
            ops.cumsum(count, axis=-1) - count,
            axis=-1,
        )
        ends = places[:, None] + ops.arange(scores.shape[-1], dtype="int32")
        may_repeat = self.asks_whether(question_ids) | ops.any(
            _is_among(question_ids, self._or), axis=1
        )
        says_nothing = ops.logical_and(
            ends < next_new[..., None],
            ~may_repeat[:, None, None, None],
        )
        penalty = PENALTY * ops.cast(says_nothing, scores.dtype)
        return {**outputs, "span_scores": scores - penalty}


def _is_among(token_ids, others):
    """Which wordpieces equal one of the last axis of others."""
    return ops.any(ops.equal(token_ids[..., None], others), axis=-1)
