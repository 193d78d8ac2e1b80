"""Questions to answers, in Python, as evaluation measures them.

The exported SavedModel does the same inside its graph; `realm verify`
compares the two.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

import keras
import numpy as np

from realm_tf.answering import calibration
from realm_tf.answering.corpus import NUM_READER_BLOCKS
from realm_tf.answering.corpus import Corpus
from realm_tf.artifacts import question_files as data
from realm_tf.models.block_reading import LEAST_SCORE
from realm_tf.models.block_reading import best_of_all
from realm_tf.models.block_reading import best_of_blocks
from realm_tf.models.cpu_operations import only_for_this_process
from realm_tf.models.question_rules import QuestionRules
from realm_tf.text import answer_spans

# Blocks retrieved for a question.
NUM_RETRIEVED = 20
# Spans of which it is known how likely they are; more hardly add up.
NUM_BEST = 20


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One block that was read.

    Args:
        block_id: int.
        log_prob: float. log p(z|x) among the blocks read.
        answer: str. Its best span.
        score: float. Of that span, the relevance included.
    """

    block_id: int
    log_prob: float
    answer: str
    score: float


@dataclasses.dataclass(frozen=True)
class Span:
    """An answer: a slice of a block's text.

    Args:
        answer: str. Empty if no span was found.
        score: float. Log sum exp, over the best spans that give this answer,
            of the reader's score plus that of retrieval.
        block_id: int. The block that holds the answer; -1 without one.
        start: int. First code point of the answer in the block's text.
        limit: int. The one after the last.
        reader_score: float. The reader's alone, of the best of these spans:
            log-odds against "none".
        answer_sentence: str. What holds the answer in the text.
    """

    answer: str = ""
    score: float = 0.0
    block_id: int = -1
    start: int = 0
    limit: int = 0
    reader_score: float = 0.0
    answer_sentence: str = ""


@dataclasses.dataclass(frozen=True)
class Prediction(Span):
    """The best answer, with its evidence.

    Args:
        confidence: float. Between 0 and 1; see `calibration`.
        answered: bool. Whether the answer is sure enough to be given.
        retrieved: list of int. Block ids, best first, as many as asked for.
        candidates: list of `Candidate`. The blocks read, best first.
        nbest: list of `Span`. Different answers, best first, each where its
            best span is.
        log_total: float. Log sum exp over all spans that were read and "none".
        is_sentence: bool. Whether answers are sentences, as the question asks
            whether something is so.
    """

    confidence: float = 0.0
    answered: bool = False
    retrieved: list[int] = dataclasses.field(default_factory=list)
    candidates: list[Candidate] = dataclasses.field(default_factory=list)
    nbest: list[Span] = dataclasses.field(default_factory=list)
    log_total: float = 0.0
    is_sentence: bool = False


NO_ANSWER = Prediction()
# What is kept of a question and a block: of `best_of_blocks`.
_BEST = np.dtype(
    [
        *((name, "int32", NUM_BEST) for name in ("starts", "limits")),
        ("scores", "float32", NUM_BEST),
        ("totals", "float32"),
    ]
)


_OF_SEARCH = ("relevance_scores", "candidate_ids")


class Predictor:
    """Answers lists of questions over a corpus.

    Args:
        corpus: `Corpus`.
        num_candidates: int. Blocks retrieved, at least those that are read.
            Defaults to `20`.
        num_reader_blocks: int. Blocks read. Defaults to `5`.
        batch_size: int. Questions computed at once. Defaults to `16`.
        model: `OpenQa`. Another one than the corpus's, such as one in
            training. Defaults to `None`.
        **weights: `lexical_weight`, see `Corpus.retrieve_and_read`, and
            `relevance_weight`, see `RetrieveAndRead`.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        model=None,
        num_candidates: int = NUM_RETRIEVED,
        num_reader_blocks: int = NUM_READER_BLOCKS,
        batch_size: int = 16,
        **weights,
    ):
        self._corpus = corpus
        self._batch_size = batch_size
        num_candidates = max(num_candidates, num_reader_blocks)
        self._num_candidates = min(num_candidates, len(corpus.records))
        self._model = corpus.retrieve_and_read(
            model=model,
            num_candidates=num_candidates,
            num_reader_blocks=num_reader_blocks,
            **weights,
        )
        self._rules = QuestionRules(corpus.loaded.tokenizer.vocabulary)
        # Names of the inputs to what computes their outputs.
        self._functions = {}

    def predict(
        self,
        questions: list[str],
        *,
        search: Callable | None = None,
    ) -> list[Prediction]:
        """Answers each question.

        Args:
            questions: list of str. An empty one has no answer.
            search: function `(questions, num_candidates) -> (scores,
                block_ids)`, or these and what BM25 gives of the scores. Another
                retriever, such as `Bm25.search`. Defaults to the model's own.

        Returns:
            list of `Prediction`, in the order of the questions.
        """
        read = self.read(questions, search=search)
        return self.choose(questions, read)

    def read(
        self,
        questions: list[str],
        *,
        search: Callable | None = None,
        known: dict | None = None,
    ) -> Iterator[tuple[list[int], dict]]:
        """Reads for each question; what `choose` makes predictions of.

        Args:
            questions: list of str.
            search: as of `predict`.
            known: dict. With `search`: spans by question and block id. Pairs
                in it are not read again, and new ones are added. Defaults to
                `None`: a new dict.

        Yields:
            `(numbers of questions, the best spans of their blocks)`, a batch
            each.
        """
        tokenizer = self._corpus.loaded.tokenizer
        batches = list(
            data.batches_by_length(questions, tokenizer, self._batch_size)
        )
        if search is not None:
            known = {} if known is None else known
            scores, found = search(questions, self._num_candidates)[:2]
            read = found[:, : self._model.num_reader_blocks].tolist()
            self._read_unknown(questions, batches, read, known)
        for batch, rows in batches:
            inputs = data.pack_queries(rows, tokenizer.pad_id)
            if search is None:
                outputs = self._compute(inputs)
                best = self._best_of_blocks(outputs, inputs)
            else:
                outputs = {
                    "relevance_scores": scores[batch],
                    "candidate_ids": found[batch],
                }
                best = np.array(
                    [[known[questions[p], z] for z in read[p]] for p in batch]
                )
            yield (
                batch,
                {
                    "best": best,
                    "question_ids": inputs["token_ids"],
                    **{name: np.asarray(outputs[name]) for name in _OF_SEARCH},
                },
            )

    def _read_unknown(self, questions, batches, read, known):
        """Of like length together, whichever questions blocks are read for."""
        unknown = {
            (questions[place], block_id): row
            for batch, rows in batches
            for place, row in zip(batch, rows, strict=True)
            for block_id in read[place]
            if (questions[place], block_id) not in known
        }
        lengths = self._corpus.records.lengths
        order = sorted(
            unknown, key=lambda pair: len(unknown[pair]) + lengths[pair[1]]
        )
        size = self._batch_size * self._model.num_reader_blocks
        for first in range(0, len(order), size):
            pairs = order[first : first + size]
            inputs = data.pack_queries(
                [unknown[pair] for pair in pairs],
                self._corpus.loaded.tokenizer.pad_id,
            )
            inputs["candidate_ids"] = np.array(
                [[block_id] for _, block_id in pairs], "int32"
            )
            inputs["candidate_scores"] = np.zeros((len(pairs), 1), "float32")
            best = self._best_of_blocks(self._compute(inputs), inputs)
            known.update(zip(pairs, best[:, 0], strict=True))

    def _best_of_blocks(self, outputs, inputs):
        """`_BEST` of each block read, `(batch_size, num_read)`."""
        outputs = self._rules(
            outputs, inputs["token_ids"], self._corpus.records.is_common
        )
        best = best_of_blocks(outputs, num_best=NUM_BEST)
        found = np.empty(best["totals"].shape, _BEST)
        for name in _BEST.names:
            found[name] = np.asarray(best[name])
        return found

    def choose(
        self,
        questions: list[str],
        read: Iterable[tuple[list[int], dict]],
        *,
        relevance_weight: float | None = None,
    ) -> list[Prediction]:
        """The best spans of what was read.

        Args:
            questions: list of str.
            read: iterable. Of `read`.
            relevance_weight: float. Defaults to `None`: the model's.

        Returns:
            list of `Prediction`, in the order of the questions.
        """
        if relevance_weight is None:
            relevance_weight = self._model.reading.relevance_weight
        predictions = [NO_ANSWER] * len(questions)
        for batch, found in read:
            best = found["best"]
            read_scores = found["relevance_scores"][:, : best.shape[1]]
            spans = best_of_all(
                {name: best[name] for name in _BEST.names},
                read_scores,
                # 0 x -inf is none.
                relevance_weight
                * np.where(np.isneginf(read_scores), 0.0, read_scores),
                num_best=NUM_BEST,
            )
            spans = {name: np.asarray(value) for name, value in spans.items()}
            spans |= {name: found[name] for name in _OF_SEARCH}
            spans["is_sentence"] = np.asarray(
                self._rules.asks_whether(found["question_ids"])
            )
            for position, row in enumerate(batch):
                predictions[row] = self._prediction(spans, position)
        return predictions

    def _compute(self, inputs):
        """Outputs of the model for a batch, compiled."""
        if keras.backend.backend() != "tensorflow":
            return self._model.predict_on_batch(inputs)
        names = frozenset(inputs)
        if names not in self._functions:
            self._functions[names] = _compiled(self._model, inputs)
        with only_for_this_process():
            return self._functions[names](inputs)

    def _prediction(self, spans, row):
        num_read = spans["candidate_starts"].shape[1]
        read = spans["candidate_ids"][row, :num_read].tolist()
        # Others only fill the places of blocks.
        is_found = np.isfinite(spans["relevance_scores"][row])
        return calibration.choose(
            Prediction(
                retrieved=spans["candidate_ids"][row][is_found].tolist(),
                candidates=self._candidates(read, spans, row),
                nbest=self._nbest(read, spans, row),
                log_total=float(spans["log_total"][row]),
                is_sentence=bool(spans["is_sentence"][row]),
            )
        )

    def _candidates(self, read, spans, row):
        columns = ("log_probs", "starts", "limits", "scores")
        return [
            Candidate(
                block_id,
                log_prob,
                self._span(spans, row, block_id, start, limit).answer
                if start >= 0
                else "",
                score,
            )
            for block_id, (log_prob, start, limit, score) in zip(
                read, _rows(spans, row, "candidate", columns), strict=True
            )
            if np.isfinite(log_prob)
        ]

    def _nbest(self, read, spans, row):
        """p(y|x) is a sum over the blocks, and over the places of y in them."""
        nbest = {}
        columns = ("positions", "starts", "limits", "scores", "reader_scores")
        for place, start, limit, score, of_reader in _rows(
            spans, row, "nbest", columns
        ):
            # There are fewer spans than places.
            if start < 0 or score < LEAST_SCORE:
                break
            found = self._span(
                spans,
                row,
                read[place],
                start,
                limit,
                score=score,
                reader_score=of_reader,
            )
            key = answer_spans.same_as(
                answer_spans.lower(found.answer), replace=answer_spans.replace
            )
            key = key or found.answer
            if key in nbest:
                total = np.logaddexp(nbest[key].score, score)
                found = dataclasses.replace(nbest[key], score=float(total))
            nbest[key] = found
        return sorted(nbest.values(), key=lambda span: -span.score)

    def _span(self, spans, row, block_id, start, limit, **scores):
        """The span of some wordpieces, or the sentence that holds them."""
        records = self._corpus.records
        text = records.texts[block_id]
        (first, last), sentence = records.span_offsets(block_id, start, limit)
        begin, end = sentence
        if spans["is_sentence"][row]:
            first, last = sentence
        return Span(
            text[first:last],
            block_id=block_id,
            start=first,
            limit=last,
            answer_sentence=text[begin:end],
            **scores,
        )


def _compiled(model, inputs):
    """One function for all numbers and lengths of questions.

    Keras's `predict_on_batch` is traced again where these change, which takes
    seconds each time.
    """
    import tensorflow as tf

    lengths = {"token_ids": None, "padding_mask": None}
    signature = {
        name: tf.TensorSpec(
            (None, lengths.get(name, rows.shape[1])), rows.dtype
        )
        for name, rows in inputs.items()
    }
    return tf.function(model, input_signature=[signature])


def _rows(spans, row, kind, columns):
    """The numbers of each span of a question."""
    lists = (spans[f"{kind}_{name}"][row].tolist() for name in columns)
    return zip(*lists, strict=True)


def evidence(records, block_id: int) -> dict[str, str]:
    """The title, text and url of a block; empty ones without a block."""
    if block_id < 0:
        return {"title": "", "text": "", "url": ""}
    return {
        "title": records.titles[block_id],
        "text": records.texts[block_id],
        "url": records.urls[block_id],
    }
