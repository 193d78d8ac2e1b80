"""Retrievers that know the answers, or the blocks that another program found."""

import collections

import numpy as np

from realm_tf.artifacts.question_files import Question
from realm_tf.artifacts.ranking_file import RankingFile
from realm_tf.errors import InputError
from realm_tf.text import answers


class Oracle:
    """The model's own best blocks, those that hold an answer first.

    Wrong answers are then the reader's mistakes, except for blocks that hold an
    answer's words in another sense. Within both groups the model's order stays.
    The block at a rank has the f(x, z) of the model's own block at that rank, so
    that the reader does not undo the order.

    Args:
        retriever: `retrievers.Dense`, or another one.
        texts: sequence of str. Of the blocks, by id.
        questions: list of `Question`. With one text and several sets of
            answers, any of these will do.
        depth: int. Of the model's own ranking; an answer beyond is not found.
    """

    def __init__(self, retriever, texts, questions, *, depth: int):
        self._retriever = retriever
        self._depth = depth
        self._finder = answers.AnswerFinder(texts)
        self._answers = collections.defaultdict(list)
        for question in questions:
            self._answers[question.question].append(question.accepted)

    def search(self, questions: list[str], num_candidates: int):
        """As `Dense.search`, for questions that are known."""
        scores, block_ids = self._retriever.search(
            questions, max(num_candidates, self._depth)
        )
        ordered = [
            sorted(
                found.tolist(), key=lambda block: not self._holds(asked, block)
            )
            for asked, found in zip(questions, block_ids, strict=True)
        ]
        return (
            scores[:, :num_candidates],
            np.array(ordered, "int32")[:, :num_candidates],
        )

    def _holds(self, asked, block_id):
        return any(
            self._finder.contains(block_id, *known)
            for known in self._answers[asked]
        )


class Hiding(Oracle):
    """A retriever that never finds a block that holds an answer.

    Its questions cannot be answered, whatever a reader makes of the next best
    blocks; their scores stay. Where too few blocks are left, as in a very small
    corpus, these come several times.

    Its arguments are those of `Oracle`.
    """

    def search(self, questions: list[str], num_candidates: int):
        """As `Dense.search`, for questions that are known."""
        columns = self._retriever.search(
            questions, num_candidates + self._depth
        )
        places = [
            [
                place
                for place, block in enumerate(found.tolist())
                if not self._holds(asked, block)
            ]
            for asked, found in zip(questions, columns[1], strict=True)
        ]
        # The last block is one of the worst, if all of them hold an answer.
        places = np.stack(
            [np.resize(kept or [-1], num_candidates) for kept in places]
        )
        return tuple(
            np.take_along_axis(values, places, axis=1) for values in columns
        )


class Given:
    """Blocks that a file ranks, for questions that are known.

    Args:
        ranking: `RankingFile`.
        questions: list of `Question`.
        num_blocks: int. Of the corpus.

    Raises:
        InputError: if the file is not of these questions and blocks.
    """

    def __init__(
        self,
        ranking: RankingFile,
        questions: list[Question],
        *,
        num_blocks: int,
    ):
        self._found = {}
        for question, found in zip(
            questions, ranking.found_for(questions), strict=True
        ):
            for block_id, _ in found:
                if not 0 <= block_id < num_blocks:
                    raise InputError(
                        f"{ranking} ranks block {block_id}, and there are "
                        f"{num_blocks:,} blocks, numbered from 0: it is of "
                        "another corpus."
                    )
            self._found[question.question] = found

    def search(self, questions: list[str], num_candidates: int):
        """As `Dense.search`.

        Returns:
            `(scores, block_ids)`; where fewer blocks were found, the last
            scores are -inf, and their ids mean nothing.
        """
        shape = (len(questions), num_candidates)
        scores = np.full(shape, -np.inf, "float32")
        block_ids = np.zeros(shape, "int32")
        for row, question in enumerate(questions):
            for place, (block_id, score) in enumerate(
                self._found[question][:num_candidates]
            ):
                block_ids[row, place], scores[row, place] = block_id, score
        return scores, block_ids
