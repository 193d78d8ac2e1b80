"""What another program found for questions, as a file of its own says."""

import functools
import json
import math

from realm_tf.artifacts.directory import File
from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError


class RankingFile(File):
    """Blocks of questions: a run of trec_eval's, or the JSON of DPR's retriever.

    `realm retrieve` writes both. Documents are numbers of blocks.

    Args:
        path: str or path.
    """

    what = "Ranking"

    def found_for(self, asked: list[Question]) -> list[list[tuple[int, float]]]:
        """`(block_id, score)` of what was found for each question, best first.

        As trec_eval does, scores alone decide the order, and not ranks.

        Args:
            asked: list of `Question`. A run names them by their ids, DPR's JSON
                by their texts.

        Raises:
            InputError: naming the place, if the file is neither, or holds none
                of these questions.
        """
        by_text, rows = self._read
        found = [
            rows.get(each.question if by_text else each.id_at(number), {})
            for number, each in enumerate(asked)
        ]
        if not any(found):
            named = "texts" if by_text else "ids"
            raise InputError(
                f"{self} ranks blocks for none of these {len(asked)} questions: "
                f"their {named} are others."
            )
        return [
            sorted(each.items(), key=lambda pair: -pair[1]) for each in found
        ]

    @functools.cached_property
    def _read(self):
        """Whether questions are named by texts, and what each has."""
        found, what, where = {}, "line", str(self)
        try:
            # Some editors begin a file with a byte order mark.
            text = self.data.decode("utf-8-sig")
            rows, read_row = text.splitlines(), _of_trec
            if by_text := text.lstrip().startswith("["):
                what, rows, read_row = "question", json.loads(text), _of_dpr
            for number, row in enumerate(rows, 1):
                where = f"{self}, {what} {number}"
                for query, block, score in read_row(row):
                    if not math.isfinite(float(score)):
                        raise ValueError(f"score {score}")
                    found.setdefault(query, {})[int(block)] = float(score)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{where} is no ranking of blocks ({error!r}): "
                "expected lines `QUERY Q0 BLOCK RANK SCORE RUN` as trec_eval's, "
                "or the JSON of DPR's retriever. BLOCK is a number; a ranking of "
                "articles (`realm retrieve --of articles`) cannot be read."
            ) from error
        return by_text, found


def _of_trec(line):
    query, _, block, _, score, _ = line.split()
    yield query, block, score


def _of_dpr(asked):
    for block in asked["ctxs"]:
        yield asked["question"], block["id"], block["score"]
