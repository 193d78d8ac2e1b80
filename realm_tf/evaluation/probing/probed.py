"""What `realm probe` finds."""

import dataclasses
import json
import math


@dataclasses.dataclass(frozen=True)
class Wordpiece:
    """A prediction for a mask.

    Args:
        wordpiece: str.
        probability: float.
    """

    wordpiece: str
    probability: float


@dataclasses.dataclass(frozen=True)
class ProbedBlock:
    """A block that the sentence was read with.

    Args:
        block_id: int, or `None` for the null block.
        title: str. Of packed blocks, as the wordpieces say it.
        text: str. The same.
        is_added: bool. Whether it was not retrieved, but asked for.
        retrieval_log_prob: float. log p(z | x) among all candidates, in nats.
        answer_log_prob: float. log p(y | z, x), of all masked wordpieces
            together; `None` without an answer.
        gradient: float. r(z) = [p(y | z, x) / p(y | x) - 1] p(z | x), above 0
            where the block predicts better than the candidates do on average;
            `None` without an answer.
        predictions: list of lists of `Wordpiece`. For each masked wordpiece
            the best ones, best first.
    """

    block_id: int | None
    title: str
    text: str
    is_added: bool
    retrieval_log_prob: float
    answer_log_prob: float | None
    gradient: float | None
    predictions: list[list[Wordpiece]]


@dataclasses.dataclass(frozen=True)
class Probed:
    """A masked sentence with its candidates.

    Args:
        text: str. As it was given.
        answers: list of lists of str. The wordpieces of each.
        blocks: list of `ProbedBlock`. The null block, then by p(z | x).
        marginal_log_prob: float. log p(y | x) over `blocks`, in nats; `None`
            without an answer.
        retrieved_log_prob: float. The same over the null block and what was
            retrieved: what the model itself says; `None` without an answer.
        predictions: list of lists of `Wordpiece`. As `ProbedBlock`'s, over
            `blocks`.
        left_out: list of int. Blocks that would have been retrieved, but hold
            the sentence or say the same as a better one.
    """

    text: str
    answers: list[list[str]]
    blocks: list[ProbedBlock]
    marginal_log_prob: float | None
    retrieved_log_prob: float | None
    predictions: list[list[Wordpiece]]
    left_out: list[int]

    def to_json(self) -> str:
        """All of it, with probabilities beside their logarithms."""
        record = dataclasses.asdict(self)
        for each in (record, *record["blocks"]):
            for name in [name for name in each if name.endswith("_log_prob")]:
                log_prob = each[name]
                each[name.replace("_log_prob", "_probability")] = (
                    None if log_prob is None else math.exp(log_prob)
                )
        return json.dumps(record, ensure_ascii=False, indent=2)
