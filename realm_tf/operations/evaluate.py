"""`realm evaluate`."""

import dataclasses
import functools

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.question_files import Questions
from realm_tf.artifacts.ranking_file import RankingFile
from realm_tf.errors import InputError
from realm_tf.operations.computing import Computing

_CLOSED_BOOK = "none"
_RETRIEVERS = ("realm", "bm25", "hybrid", "oracle", _CLOSED_BOOK)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate(Computing):
    """Measures a model on a file of questions with answers.

      realm evaluate --model DIR --blocks DIR --index DIR --questions F --output DIR
      realm evaluate ... --retriever bm25       the same reader on BM25's blocks
      realm evaluate ... --num-reader-blocks 0  recall alone

    Writes metrics.json (exact_match, f1, answer_recall@1, @5, @20, @100, with 95 %
    bootstrap intervals), predictions.jsonl and report.html. reading_accuracy is exact_match of the questions for which a block that was
    read holds an answer. For questions that name their evidence, gold_recall@k
    is the share whose evidence is among the first k blocks.

    Recall alone needs no fine-tuned reader, so a model of `realm ict` or `realm
    pretrain` will do.

    Retrievers: realm (the model's query tower and the index), bm25, hybrid (a
    weighted sum of both scores), none (the masked LM of a pre-trained model
    answers without blocks), oracle (as realm, but blocks with an answer come
    first), or a file with the ranking of another program.

    With --calibrate, dev questions fit `confidence` to the probability that an
    answer is right, and the least confidence of an `answered` question. The
    command asks each question a second time with all blocks hidden that hold
    an answer. It starts from the calibration of the model, if it has one, as
    the packaged reader. --calibration DIR uses the result.
    """

    command = "evaluate"
    makes = Evaluation
    # The index is of the blocks, and what was fitted is a parameter.
    manner = ("blocks", "calibration", "calibrate")

    model: Model
    """model directory"""
    blocks: Blocks | None = None
    """blocks directory (if not given: none, with --retriever none)"""
    index: Index | None = None
    """index directory (if not given: none, with --retriever none)"""
    questions: Questions
    """JSONL with question and answer"""
    output: str
    """directory to make"""
    retriever: str = "realm"
    """source of the blocks: realm, bm25, hybrid, oracle, none, or the path of a
    run of trec_eval or of the JSON of DPR's retriever, whose documents are block
    ids and whose scores count as f(x, z)"""
    num_reader_blocks: int = 5
    """blocks read for a question; 0 measures recall alone"""
    calibrate: bool = False
    """fit the confidence, the weight of retrieval beside the reader and that of
    BM25 in hybrid, for --calibration of other evaluations and of the export"""
    calibration: Evaluation | None = None
    """evaluation of dev questions with --calibrate, whose confidence and weights
    are used (if not given: the model's calibration; without one, confidences are
    shares, all are `answered`, retrieval has weight 1 and BM25 0.25)"""

    def parameters(self) -> dict:
        return {
            "retriever": self.retriever,
            "num_reader_blocks": self.num_reader_blocks,
            "calibrate": self.calibrate,
            "calibration": self._known and dataclasses.asdict(self._known),
            "precision": self.computes_in,
            **self._weights,
        }

    def inputs(self) -> dict:
        found = super().inputs()
        if self._ranking:
            found["ranking"] = self._ranking
        return found

    @functools.cached_property
    def _ranking(self):
        """`RankingFile`, or `None` where one of ours searches."""
        if self.retriever in _RETRIEVERS:
            return None
        return RankingFile(self.retriever)

    @property
    def _weights(self):
        """Of BM25, where it is in use, and of retrieval beside the reader."""
        from realm_tf.answering import calibration
        from realm_tf.answering.retrieve_and_answer import FIT

        known = self._known
        found = {"relevance_weight": calibration.relevance_weight_of(known)}
        if self.retriever == "hybrid":
            found["lexical_weight"] = calibration.lexical_weight_of(known)
        if self.calibrate:
            found["relevance_weight"] = FIT
            if self.retriever == "hybrid":
                found["lexical_weight"] = FIT
        return found

    @functools.cached_property
    def _known(self):
        """`Calibration` of other questions or of the model, or `None`."""
        from realm_tf.answering import calibration

        if self.retriever == _CLOSED_BOOK:
            return None
        return calibration.for_model(
            self.calibration, self.model, self.retriever
        )

    def run(self) -> Evaluation:
        """Answers the questions and measures the answers.

        Returns:
            `Evaluation`. Its `metrics` are of all questions; with a
            calibration, `answered` says which share of them is sure enough,
            and `answered_wrong` which share of these is wrong.

        Raises:
            InputError: if the inputs are missing or do not match.
        """
        from realm_tf.answering import retrieve_and_answer
        from realm_tf.evaluation import scores

        self._check()
        asked = self.questions.questions
        with self.write() as stage:
            answered = retrieve_and_answer.answer(
                self.model,
                self.blocks,
                self.index,
                asked,
                retriever=self.retriever,
                ranking=self._ranking,
                num_reader_blocks=self.num_reader_blocks,
                precision=self.computes_in,
                calibrate=self.calibrate,
                **self._weights,
            )
            scores.write(
                stage,
                asked,
                answered,
                title=f"{self.output}: {self.questions}",
                calibrate=self.calibrate,
                known=self._known,
            )
        return self.result

    def _check(self):
        self.check_least(0, "num_reader_blocks")
        if self._ranking and not self._ranking.is_complete:
            raise InputError(
                f"--retriever {self.retriever}: expected one of "
                f"{', '.join(_RETRIEVERS)}, or a file with a ranking, and there "
                "is no such file."
            )
        of_reader = ("calibration", "calibrate")
        if self.num_reader_blocks == 0:
            self.refuse_given(of_reader, "--num-reader-blocks 0")
        if self.retriever == _CLOSED_BOOK:
            names = ("blocks", "index", "num_reader_blocks", *of_reader)
            self.refuse_given(names, "--retriever none")
        elif not (self.blocks and self.index):
            raise InputError(
                "--blocks and --index are needed: only --retriever none "
                "answers without them."
            )
        if self.calibrate and self.calibration:
            raise InputError(
                "--calibrate fits what --calibration has: give one of them."
            )

    def report(self, result: Evaluation) -> str:
        from realm_tf.evaluation import report
        from realm_tf.evaluation import text_table

        table = text_table.render(*report.metrics_table(result.metrics))
        return table + result.file(report.REPORT)
