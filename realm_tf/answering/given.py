"""A retriever that was another program: what it found is known."""

import numpy as np

from realm_tf.artifacts.question_files import Question
from realm_tf.artifacts.ranking_file import RankingFile
from realm_tf.errors import InputError


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
