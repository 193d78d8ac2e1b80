"""What another program found for questions, as a file of its own says."""

import functools
import json

from realm_tf.artifacts.directory import File
from realm_tf.artifacts.question_files import Question
from realm_tf.errors import InputError

_EXPECTED = (
    "expected a line `QUERY Q0 BLOCK RANK SCORE RUN` of trec_eval's, or the JSON "
    "of DPR's retriever"
)


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
        try:
            text = self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{self} is not UTF-8: {error}") from error
        if text.lstrip().startswith("["):
            return True, self._of_dpr(text)
        return False, self._of_trec(text)

    def _of_trec(self, text):
        rows = {}
        for number, line in enumerate(text.splitlines(), 1):
            where = f"{self}, line {number}"
            try:
                query, _, block, _, score, _ = line.split()
            except ValueError as error:
                raise InputError(f"{where}: {_EXPECTED}.") from error
            _add(rows.setdefault(query, {}), block, score, where)
        return rows

    def _of_dpr(self, text):
        try:
            asked = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self} is not JSON ({error}).") from error
        rows = {}
        for number, each in enumerate(asked, 1):
            where = f"{self}, question {number}"
            try:
                found = rows[each["question"]] = {}
                for block in each["ctxs"]:
                    _add(found, block["id"], block["score"], where)
            except (KeyError, TypeError) as error:
                raise InputError(f"{where}: {_EXPECTED}.") from error
        return rows


def _add(found, block, score, where):
    try:
        block_id, score = int(block), float(score)
    except ValueError as error:
        raise InputError(
            f"{where}: {block!r} with score {score!r} is not the number of a block "
            "and a score. What ranks articles (`realm retrieve --of articles`) "
            "cannot be read from."
        ) from error
    if block_id in found:
        raise InputError(f"{where}: block {block_id} is there twice.")
    found[block_id] = score
