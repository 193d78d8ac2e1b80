"""BM25 over titles and texts: the lexical baseline."""

import logging

import bm25s
import numpy as np
import Stemmer

# It sets its own logger to DEBUG; where a root handler is (absl's), that shows.
logging.getLogger("bm25s").setLevel(logging.WARNING)


class Bm25:
    """BM25 of the library bm25s, with English stemming and stop words.

    Args:
        titles: list of str. By block id.
        texts: list of str. By block id.
    """

    def __init__(self, titles, texts):
        self._stemmer = Stemmer.Stemmer("english")
        self._num_blocks = len(texts)
        # The defaults of bm25s; to Robertson and Zaragoza, 2009, values of
        # 1.2 < k1 < 2 and 0.5 < b < 0.8 are reasonably good in many
        # circumstances.
        self._retriever = bm25s.BM25(k1=1.5, b=0.75)
        self._retriever.index(
            self._tokenize(
                [
                    f"{title} {text}"
                    for title, text in zip(titles, texts, strict=True)
                ]
            ),
            show_progress=False,
        )

    def _tokenize(self, texts):
        return bm25s.tokenize(
            texts, stopwords="en", stemmer=self._stemmer, show_progress=False
        )

    def search(self, questions: list[str], num_candidates: int):
        """The best blocks for each question, best first.

        Args:
            questions: list of str.
            num_candidates: int. At most the number of blocks.

        Returns:
            `(scores, block_ids)`, float32 and int32 arrays
            `(num_questions, num_candidates)`.
        """
        block_ids, scores = self._retriever.retrieve(
            self._tokenize(questions),
            k=min(num_candidates, self._num_blocks),
            show_progress=False,
        )
        return scores.astype("float32"), np.asarray(block_ids, dtype="int32")
