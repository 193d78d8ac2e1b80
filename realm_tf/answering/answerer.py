"""A model that answers strings in Python, as its export does in a graph."""

from collections.abc import Sequence

from realm_tf.answering import calibration
from realm_tf.answering.answer import Alternative
from realm_tf.answering.answer import Answer
from realm_tf.answering.answer import Candidate
from realm_tf.answering.corpus import Corpus
from realm_tf.answering.predict import NUM_READER_BLOCKS
from realm_tf.answering.predict import Predictor
from realm_tf.answering.predict import evidence
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError

# Those that an export has, too.
RETRIEVERS = ("realm", "hybrid")
# Of the n-best list, in an answer and in an export.
NUM_ALTERNATIVES = 5


class Answerer:
    """A model with its blocks and index: questions in, answers out.

        answerer = Answerer("model", "blocks", "index")
        answerer.ask("Where was Ada?").answer

    The answers equal those of the SavedModel that `realm export` makes of the
    same directories.

    Args:
        model: `Model`, or the path of its directory.
        blocks: `Blocks`, or the path of its directory.
        index: `Index`, or the path of its directory.
        num_reader_blocks: int. Blocks read for a question. Defaults to `5`.
        retriever: str. `"realm"` or `"hybrid"`, as of the export. Defaults to
            `"realm"`.
        calibrated_by: `Evaluation`, or the path of its directory, as
            `--calibration` of the export. Defaults to `None`: the calibration
            that the model comes with, if any.
        quantize: str. See `retrieval.index.Index.from_files`. Defaults to `"none"`.
        precision: str. In which the encoders compute, as `--precision` of the
            export. Defaults to `"auto"`.

    Raises:
        InputError: if one is missing or unknown, or they do not match.
    """

    def __init__(
        self,
        model,
        blocks,
        index,
        *,
        num_reader_blocks: int = NUM_READER_BLOCKS,
        retriever: str = "realm",
        calibrated_by=None,
        quantize: str = "none",
        precision: str = "auto",
    ):
        if retriever not in RETRIEVERS:
            raise InputError(
                f"An Answerer's retriever is one of {', '.join(RETRIEVERS)}. "
                f"Received: {retriever}"
            )
        self.corpus = Corpus.load(
            model, blocks, index, quantize=quantize, precision=precision
        )
        self._calibration = calibration.for_model(
            calibrated_by, Model.of(model), retriever
        )
        self._predictor = Predictor(
            self.corpus,
            num_reader_blocks=num_reader_blocks,
            lexical_weight=calibration.lexical_weight_of(self._calibration)
            if retriever == "hybrid"
            else None,
            relevance_weight=calibration.relevance_weight_of(self._calibration),
        )

    def ask(self, questions: str | Sequence[str]) -> Answer | list[Answer]:
        """Answers a question, or each of several.

        Args:
            questions: str or sequence of str. An empty one has no answer;
                longer ones than `question_files.MAX_QUERY_LENGTH` are cut.

        Returns:
            `Answer`, or a list of them in the order of the questions.
        """
        if isinstance(questions, str):
            return self.ask([questions])[0]
        predictions = self._predictor.predict(list(questions))
        return [self._answer(prediction) for prediction in predictions]

    def _answer(self, prediction):
        chosen = calibration.choose(prediction, fitted=self._calibration)
        return Answer(
            chosen.answer,
            chosen.score,
            chosen.confidence,
            chosen.block_id,
            **evidence(self.corpus.records, chosen.block_id),
            start=chosen.start,
            limit=chosen.limit,
            nbest=tuple(
                Alternative(span.answer, span.score)
                for span in chosen.nbest[:NUM_ALTERNATIVES]
            ),
            candidates=tuple(
                Candidate(
                    block_id=candidate.block_id,
                    answer=candidate.answer,
                    log_prob=candidate.log_prob,
                    **evidence(self.corpus.records, candidate.block_id),
                )
                for candidate in chosen.candidates
            ),
            answered=chosen.answered,
            answer_sentence=chosen.answer_sentence,
            is_sentence=chosen.is_sentence,
        )
