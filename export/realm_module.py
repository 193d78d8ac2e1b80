"""The graph that is exported, from the raw question to answer and evidence."""

import functools
import types

import numpy as np
import tensorflow as tf

from realm_tf.answering.answerer import NUM_ALTERNATIVES
from realm_tf.answering.calibration import Calibration
from realm_tf.answering.calibration import least_confidence
from realm_tf.answering.calibration import relevance_weight_of
from realm_tf.answering.corpus import retrieve_and_read
from realm_tf.answering.predict import NUM_BEST
from realm_tf.answering.predict import NUM_RETRIEVED
from realm_tf.artifacts import question_files as data
from realm_tf.export import signatures
from realm_tf.export.corpus_part import CorpusPart
from realm_tf.export.corpus_part import num_bytes
from realm_tf.export.corpus_part import text_of
from realm_tf.models import packing
from realm_tf.models.block_reading import LEAST_SCORE
from realm_tf.models.block_reading import best_spans
from realm_tf.models.question_rules import QuestionRules
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.text import answer_spans
from realm_tf.text.graph_tokenizer import GraphTokenizer


class RealmModule(tf.Module):
    """The graph that is exported, and everything that it needs.

    Args:
        loaded: `LoadedModel`.
        corpus: `CorpusPart`.
        max_block_length: int. Wordpieces of a block, with its title.
        num_reader_blocks: int. Blocks read; fewer blocks than that are
            padded with id -1.
        fitted: `Calibration`. Defaults to `None`: the confidence is a share.
        lexical_weight: float. Of BM25 beside the index. Defaults to `None`:
            the index alone searches.
    """

    def __init__(
        self,
        loaded,
        corpus: CorpusPart,
        *,
        max_block_length: int,
        num_reader_blocks: int,
        fitted: Calibration | None = None,
        lexical_weight: float | None = None,
    ):
        super().__init__()
        layers = corpus.layers
        self._fitted = fitted
        self._num_padding = max(0, num_reader_blocks - layers.index.num_blocks)
        self._max_block_length = max_block_length
        self.tokenizer = GraphTokenizer(
            loaded.tokenizer.vocabulary, lowercase=loaded.tokenizer.lowercase
        )
        self._rules = QuestionRules(loaded.tokenizer.vocabulary)
        # First, and under the name that `runtime` has for it.
        self.corpus = corpus
        # As `CorpusPart.layers`.
        self._keras = types.SimpleNamespace(
            loaded=loaded,
            retrieve_and_read=retrieve_and_read(
                loaded,
                layers.index,
                layers.block_table,
                layers.lexical,
                lexical_weight=lexical_weight,
                relevance_weight=relevance_weight_of(fitted),
                num_candidates=max(NUM_RETRIEVED, num_reader_blocks),
                num_reader_blocks=num_reader_blocks,
            ),
        )
        is_of_corpus = {id(each) for each in corpus.variables}
        towers = (
            self._keras.retrieve_and_read,
            loaded.model.block_embedder,
        )
        self.weights = [
            each.value
            for model in towers
            for each in model.variables
            if id(each.value) not in is_of_corpus
        ]

    def sizes(self) -> dict[str, int]:
        """Bytes of each part, in the SavedModel and in memory."""
        sizes = self.corpus.sizes()
        # A tower that is shared is there once.
        rest = num_bytes(self.variables) - sum(sizes.values())
        return {"towers and reader": rest, **sizes}

    def signatures(self) -> dict:
        """The signatures by name; see the functions of the same names."""
        asked = {
            signatures.DEFAULT: self.answer,
            signatures.RETRIEVE: self.retrieve,
        }
        found = {
            signatures.EMBED_QUERY: _traced(self.embed_query, "question"),
            signatures.EMBED_BLOCK: _traced(self.embed_block, "title", "text"),
        }
        if self.corpus.fields is not None:
            for name, function in asked.items():
                filtered = _traced(function, "question", signatures.FILTER)
                found[f"{name}{signatures.FILTERED}"] = filtered
                # Another index searches less where there is no filter.
                if isinstance(self.corpus.layers.index, BruteForce):
                    asked[name] = functools.partial(_without_filter, filtered)
        for name, function in asked.items():
            found[name] = _traced(function, "question")
        return found

    def answer(self, question, filter=None):
        """question and filter `(batch_size,)` -> answer with evidence."""
        inputs, asked = self._pack(question)
        allowed = self.corpus.allowed(filter)
        if allowed is not None:
            inputs["allowed"] = allowed
        outputs = self._keras.retrieve_and_read(inputs, training=False)
        spans = best_spans(
            self._rules(outputs, inputs["token_ids"], self.corpus.is_common),
            num_best=NUM_BEST,
        )
        are_sentences = self._rules.asks_whether(inputs["token_ids"])
        rows = tf.where(
            outputs["read_scores"] > -np.inf, outputs["read_ids"], -1
        )
        # (b, k): every slice is one of these blocks.
        lines = self.corpus.lines.lookup(rows)
        texts = text_of(lines)
        num_read = tf.shape(rows)[1]
        places, sliced = self._sliced(rows, lines, spans, are_sentences)
        best = tf.gather(rows, places[:, :1], batch_dims=1)[:, 0]
        found = asked & (spans["nbest_starts"][:, 0] >= 0) & (best >= 0)
        # Spans of what is no block, and those that there are not.
        is_span = found[:, None] & (spans["nbest_scores"] > LEAST_SCORE)
        chosen, scores = _different(
            sliced["answer"][:, :-num_read], spans["nbest_scores"], is_span
        )
        nbest, place, of_reader = tf.nest.map_structure(
            lambda each: tf.gather(each, chosen, batch_dims=1),
            (sliced, places, spans["nbest_reader_scores"]),
        )
        place = place[:, :1]
        best = tf.gather(rows, place, batch_dims=1)[:, 0]
        best = tf.where(found, best, -1)
        confidence = self._confidence(
            of_reader[:, 0], scores[:, 0] - spans["log_total"]
        )

        def if_found(values, otherwise):
            return tf.where(found, values, otherwise)

        is_chosen = scores > LEAST_SCORE
        return {
            "answer": if_found(nbest["answer"][:, 0], ""),
            "score": if_found(scores[:, 0], 0.0),
            "confidence": if_found(confidence, 0.0),
            # An empty answer is none, however sure the reader is.
            "answered": found
            & (nbest["answer"][:, 0] != "")
            & (confidence >= least_confidence(self._fitted)),
            "answer_sentence": if_found(nbest["sentence"][:, 0], ""),
            "is_sentence": found & are_sentences,
            "block_id": self.corpus.ids_of(best),
            "title": self.corpus.titles.lookup(best),
            "text": if_found(tf.gather(texts, place, batch_dims=1)[:, 0], ""),
            "url": self.corpus.urls.lookup(best),
            **self.corpus.told(best, "fields"),
            "start": tf.cast(if_found(nbest["start"][:, 0], 0), tf.int64),
            "limit": tf.cast(if_found(nbest["limit"][:, 0], 0), tf.int64),
            "nbest_answer": tf.where(is_chosen, nbest["answer"], ""),
            "nbest_score": tf.where(is_chosen, scores, 0.0),
            **self._candidates(
                tf.where(asked[:, None], rows, -1),
                texts,
                sliced["answer"][:, -num_read:],
                spans["candidate_log_probs"],
            ),
        }

    def retrieve(self, question, filter=None):
        """question and filter `(batch_size,)` -> the best blocks, best first."""
        inputs, asked = self._pack(question)
        found = self._keras.retrieve_and_read.retrieve(
            packing.query_inputs(inputs), allowed=self.corpus.allowed(filter)
        )
        is_found = asked[:, None] & (found["scores"] > -np.inf)
        rows = tf.where(is_found, found["block_ids"], -1)
        return {
            "block_id": self.corpus.ids_of(rows),
            "score": tf.where(is_found, found["scores"], 0.0),
            "lexical_score": tf.where(is_found, found["lexical"], 0.0),
            "title": self.corpus.titles.lookup(rows),
            "text": text_of(self.corpus.lines.lookup(rows)),
            "url": self.corpus.urls.lookup(rows),
            **self.corpus.told(rows, "fields"),
        }

    def embed_query(self, question):
        """question `(batch_size,)` -> embedding, the score scale included."""
        inputs, _ = self._pack(question)
        return {"embedding": self._keras.loaded.model.embed_queries(inputs)}

    def embed_block(self, title, text):
        """title and text `(batch_size,)` -> embedding as in the index."""
        tokenizer = self._keras.loaded.tokenizer
        inputs = packing.join_block(
            *self._wordpieces(title, self._max_block_length),
            *self._wordpieces(text, self._max_block_length),
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            max_length=self._max_block_length,
            segment_ids=self._keras.loaded.block_segment_ids,
        )
        return {"embedding": self._keras.loaded.model.embed_blocks(inputs)}

    def _confidence(self, score, log_share):
        """As of `calibration.choose`."""
        fitted = self._fitted
        if fitted is None:
            return tf.exp(tf.minimum(log_share, 0.0))
        return tf.sigmoid(fitted.bias + fitted.weight * score)

    def _pack(self, question):
        """Packed questions, and which of them ask anything at all."""
        tokenizer = self._keras.loaded.tokenizer
        token_ids, lengths = self._wordpieces(
            question, data.MAX_QUERY_LENGTH - 2
        )
        inputs = packing.pack_text(
            token_ids, lengths, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id
        )
        return packing.trim(inputs), lengths > 0

    def _wordpieces(self, strings, max_length):
        """Ids `(batch_size, max_length)`, cut and padded, and their number."""
        ids = self.tokenizer(strings)[:, :max_length]
        return (
            ids.to_tensor(shape=(None, max_length)),
            tf.cast(ids.row_lengths(), tf.int32),
        )

    def _sliced(self, rows, lines, spans, are_sentences):
        """The n best spans, then the best one of each of the k blocks read.

        Returns:
            Which of the blocks read each is in `(batch_size, n + k)`, and
            what `CorpusPart.slice` gives.
        """
        each_block = tf.zeros_like(rows) + tf.range(tf.shape(rows)[1])
        places = tf.concat([spans["nbest_positions"], each_block], axis=1)
        starts, limits = (
            tf.concat(
                [spans[f"nbest_{name}"], spans[f"candidate_{name}"]], axis=1
            )
            for name in ("starts", "limits")
        )
        return places, self.corpus.slice(
            tf.gather(rows, places, batch_dims=1),
            tf.gather(lines, places, batch_dims=1),
            starts,
            limits,
            are_sentences,
        )

    def _candidates(self, rows, texts, answers, log_probs):
        padding = [[0, 0], [0, self._num_padding]]
        rows = tf.pad(rows, padding, constant_values=-1)

        def if_read(values, otherwise):
            filled = tf.pad(values, padding, constant_values=otherwise)
            return tf.where(rows >= 0, filled, otherwise)

        return {
            "candidate_block_id": self.corpus.ids_of(rows),
            "candidate_title": self.corpus.titles.lookup(rows),
            "candidate_text": if_read(texts, ""),
            "candidate_url": self.corpus.urls.lookup(rows),
            **self.corpus.told(rows, "candidate_fields"),
            "candidate_answer": if_read(answers, ""),
            "candidate_log_prob": if_read(log_probs, np.float32(-np.inf)),
        }


def _different(answers, scores, is_span):
    """The best of different answers, as of `Predictor`.

    Args:
        answers: string tensor `(batch_size, num_best)`. Of spans, best first.
        scores: float tensor of that shape. Of the spans.
        is_span: bool tensor of that shape. Which there are.

    Returns:
        Two tensors `(batch_size, NUM_ALTERNATIVES)`, best first: int32, the
        place of the best span of each answer; float, the log sum exp of the
        scores of its spans, -inf where there is no further answer.
    """
    keys = answer_spans.same_as(
        tf.strings.lower(answers), replace=tf.strings.regex_replace
    )
    keys = tf.where(keys == "", answers, keys)
    scores = tf.where(is_span, scores, -np.inf)
    # (b, n, n): which columns are equal to the row's.
    is_same = keys[:, :, None] == keys[:, None, :]
    totals = tf.reduce_logsumexp(
        tf.where(is_same, scores[:, None, :], -np.inf), axis=2
    )
    places = tf.range(tf.shape(answers)[1])
    is_again = is_same & (places[None, :] < places[:, None])
    is_first = is_span & ~tf.reduce_any(is_again, axis=2)
    totals = tf.where(is_first, totals, -np.inf)
    order = tf.argsort(totals, direction="DESCENDING", stable=True)
    order = order[:, :NUM_ALTERNATIVES]
    return order, tf.gather(totals, order, batch_dims=1)


def _traced(function, *inputs):
    """A graph of a function of texts `(batch_size,)` of these names."""
    # Nothing here branches on tensors in Python.
    return tf.function(function, autograph=False).get_concrete_function(
        *(tf.TensorSpec([None], tf.string, name=each) for each in inputs)
    )


def _without_filter(filtered, question):
    """What a graph gives where all blocks may be found."""
    return filtered(question=question, filter=tf.fill(tf.shape(question), ""))
