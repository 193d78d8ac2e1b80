"""An answer and its evidence, for Python, a server and its client.

Of the standard library alone, so that a client needs nothing else.
"""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One block that was read for a question.

    Args:
        block_id: int. Its row in the index.
        title: str. The article's title.
        text: str. The block.
        answer: str. The best span of this block alone.
        log_prob: float. log p(z | x) over the blocks read, in nats.
        url: str. Where the block came from. Defaults to `""`.
        fields: str. Fields that a filter can use, such as
            `"date=2024-05-01; tags=hr|law"`. Defaults to `""`.
    """

    block_id: int
    title: str
    text: str
    answer: str
    log_prob: float
    url: str = ""
    fields: str = ""

    @property
    def probability(self) -> float:
        """p(z | x) over the blocks read."""
        return math.exp(self.log_prob)


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
        confidence: float. Between 0 and 1: the probability that the answer is
            right, of a model that is calibrated; else the share of the span in
            the softmax over all spans that were read and "none".
        block_id: int. The block that holds the answer; -1 for none.
        title: str. That block's article.
        text: str. That block.
        url: str. Where it came from; may be empty.
        start: int. First code point of the answer in `text`.
        limit: int. One past its last code point.
        nbest: tuple of `Alternative`, best first.
        candidates: tuple of `Candidate`, best first.
        answered: bool. Whether the model is sure enough to give the answer;
            of one that is not calibrated, whether `confidence` is no 0.00.
            Defaults to `True`.
        fields: str. Fields that a filter can use, such as
            `"date=2024-05-01; tags=hr|law"`. Defaults to `""`.
        answer_sentence: str. The sentence of `text` that holds the answer.
            Defaults to `""`: the export is of an earlier version.
        is_sentence: bool. Whether the answer is all of that sentence, as the
            question asks whether something is so. Defaults to `False`.
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
    answered: bool = True
    fields: str = ""
    answer_sentence: str = ""
    is_sentence: bool = False
