"""The graph that is exported, from the raw question to answer and evidence."""

import dataclasses
import types

import numpy as np
import tensorflow as tf

from realm_tf.answering.answerer import NUM_ALTERNATIVES
from realm_tf.answering.calibration import LEAST_SHARE
from realm_tf.answering.calibration import Calibration
from realm_tf.answering.corpus import Corpus
from realm_tf.answering.predict import NUM_RETRIEVED
from realm_tf.answering.predict import ROWS_PER_GROUP
from realm_tf.artifacts import question_files as data
from realm_tf.export.compressed_texts import CompressedTexts
from realm_tf.export.compressed_texts import small_table
from realm_tf.models import packing
from realm_tf.models.best_spans import best_spans
from realm_tf.text.graph_tokenizer import GraphTokenizer


class RealmModule(tf.Module):
    """The graph that is exported, and everything that it needs.

    Args:
        corpus: `Corpus`.
        num_reader_blocks: int. Blocks read; fewer blocks than that are
            padded with id -1.
        fitted: `Calibration`. Defaults to `None`: the confidence is a share,
            and every answer is given.
        lexical_weight: float. Of BM25 beside the index. Defaults to `None`:
            the index alone searches.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        num_reader_blocks: int,
        fitted: Calibration | None = None,
        lexical_weight: float | None = None,
    ):
        super().__init__()
        corpus = dataclasses.replace(corpus, index=corpus.index.for_graph())
        records = corpus.records
        self._fitted = fitted
        self._num_padding = max(0, num_reader_blocks - len(records))
        self._max_block_length = records.metadata["max_block_length"]
        self.tokenizer = GraphTokenizer(
            corpus.loaded.tokenizer.vocabulary,
            lowercase=corpus.loaded.tokenizer.lowercase,
        )
        # In a namespace, where TensorFlow does not look: Keras's own objects
        # would be saved, too, and every weight a second time.
        self._keras = types.SimpleNamespace(
            loaded=corpus.loaded,
            index=corpus.index,
            retrieve_and_read=corpus.retrieve_and_read(
                num_candidates=max(NUM_RETRIEVED, num_reader_blocks),
                num_reader_blocks=num_reader_blocks,
                rows_per_group=ROWS_PER_GROUP,
                lexical_weight=lexical_weight,
            ),
        )
        # Keras's variables, as TensorFlow's own, are what is saved.
        self.weights = [
            v.value for v in self._keras.retrieve_and_read.variables
        ]
        self.block_tower_weights = [
            v.value for v in corpus.loaded.model.block_embedder.variables
        ]
        self.scann_state = getattr(corpus.index, "module", None)
        self.titles = CompressedTexts(records.titles)
        self.texts = CompressedTexts(records.texts)
        self.urls = CompressedTexts(records.urls)
        # Of all blocks, one after the other: padded, they would take more.
        self.first_wordpieces = tf.Variable(
            records.first_wordpieces, trainable=False
        )
        self.token_starts = small_table(records.token_starts)
        self.token_limits = small_table(records.token_limits)

    def parts(self) -> dict[str, int]:
        """What takes how many bytes, in the SavedModel and in memory."""
        index = self.scann_state or self._keras.index
        table = self._keras.retrieve_and_read.block_table
        texts = self.titles, self.texts, self.urls
        parts = {
            "index": _num_bytes(index.variables),
            "wordpieces of the blocks": _num_bytes(
                [
                    *table.variables,
                    self.first_wordpieces,
                    self.token_starts,
                    self.token_limits,
                ]
            ),
            "texts, titles and addresses": sum(
                _num_bytes(each.variables) for each in texts
            ),
        }
        lexical = self._keras.retrieve_and_read.lexical
        if lexical is not None:
            parts["lists of BM25"] = _num_bytes(lexical.variables)
        # A tower that is shared is there once.
        rest = _num_bytes(self.variables) - sum(parts.values())
        return {"towers and reader": rest, **parts}

    def signatures(self) -> dict:
        """The signatures by name; see the functions of the same names."""
        inputs = {
            "serving_default": (self.answer, ["question"]),
            "retrieve": (self.retrieve, ["question"]),
            "embed_query": (self.embed_query, ["question"]),
            "embed_block": (self.embed_block, ["title", "text"]),
        }
        return {
            # Nothing here branches on tensors in Python.
            name: tf.function(function, autograph=False).get_concrete_function(
                *(tf.TensorSpec([None], tf.string, name=each) for each in names)
            )
            for name, (function, names) in inputs.items()
        }

    def answer(self, question):
        """question `(batch_size,)` -> answer with evidence."""
        inputs, asked = self._pack(question)
        outputs = self._keras.retrieve_and_read(inputs, training=False)
        spans = best_spans(
            outputs,
            num_best=NUM_ALTERNATIVES,
        )
        block_ids = outputs["read_ids"]
        # (b, n): the block of each of the n best spans.
        nbest_blocks = tf.gather(
            block_ids, spans["nbest_positions"], batch_dims=1
        )
        # (b, k): every slice is one of these blocks.
        texts = self.texts.lookup(block_ids)
        nbest_answers, starts, limits = self._slice(
            nbest_blocks,
            tf.gather(texts, spans["nbest_positions"], batch_dims=1),
            spans["nbest_starts"],
            spans["nbest_limits"],
        )
        candidate_answers, _, _ = self._slice(
            block_ids,
            texts,
            spans["candidate_starts"],
            spans["candidate_limits"],
        )
        found = asked & (spans["nbest_starts"][:, 0] >= 0)
        best = tf.where(found, nbest_blocks[:, 0], -1)
        place = spans["nbest_positions"][:, :1]

        lexical = tf.gather(outputs["read_lexical"], place, batch_dims=1)
        confidence, threshold = self._confidence(spans, lexical[:, 0])

        def if_found(values, otherwise):
            return tf.where(found, values, otherwise)

        return {
            "answer": if_found(nbest_answers[:, 0], ""),
            "score": if_found(spans["nbest_scores"][:, 0], 0.0),
            "confidence": if_found(confidence, 0.0),
            "answered": found & (confidence >= threshold),
            "block_id": tf.cast(best, tf.int64),
            "title": self.titles.lookup(best),
            "text": if_found(tf.gather(texts, place, batch_dims=1)[:, 0], ""),
            "url": self.urls.lookup(best),
            "start": tf.cast(if_found(starts[:, 0], 0), tf.int64),
            "limit": tf.cast(if_found(limits[:, 0], 0), tf.int64),
            "nbest_answer": tf.where(found[:, None], nbest_answers, ""),
            "nbest_score": tf.where(found[:, None], spans["nbest_scores"], 0.0),
            **self._candidates(
                tf.where(asked[:, None], block_ids, -1),
                texts,
                candidate_answers,
                spans["candidate_log_probs"],
            ),
        }

    def retrieve(self, question):
        """question `(batch_size,)` -> the best blocks, best first."""
        inputs, asked = self._pack(question)
        found = self._keras.retrieve_and_read.retrieve(
            packing.query_inputs(inputs)
        )
        block_ids = tf.where(asked[:, None], found["block_ids"], -1)
        return {
            "block_id": tf.cast(block_ids, tf.int64),
            "score": tf.where(asked[:, None], found["scores"], 0.0),
            "lexical_score": tf.where(asked[:, None], found["lexical"], 0.0),
            "title": self.titles.lookup(block_ids),
            "text": self.texts.lookup(block_ids),
            "url": self.urls.lookup(block_ids),
        }

    def embed_query(self, question):
        """question `(batch_size,)` -> embedding, the score scale included."""
        inputs, _ = self._pack(question)
        return {"embedding": self._embed(inputs)}

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

    def _confidence(self, spans, lexical):
        """As `Calibration.confidence`, and the least at which it is given."""
        share, fitted = spans["share"], self._fitted
        if fitted is None:
            return share, 0.0
        log_share = tf.math.log(tf.maximum(share, LEAST_SHARE))
        return tf.sigmoid(
            fitted.bias
            + fitted.score_weight * (spans["nbest_scores"][:, 0] - lexical)
            + fitted.share_weight * log_share
        ), fitted.threshold

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

    def _embed(self, inputs):
        return self._keras.loaded.model.embed_queries(inputs)

    def _slice(self, block_ids, texts, starts, limits):
        """Answers, with their code points, of spans given in wordpieces."""
        found = starts >= 0
        first = tf.maximum(starts, 0)
        last = tf.maximum(limits - 1, 0)
        from_code_point = self._offset(self.token_starts, block_ids, first)
        to_code_point = self._offset(self.token_limits, block_ids, last)
        answers = tf.strings.substr(
            texts,
            tf.where(found, from_code_point, 0),
            tf.where(found, to_code_point - from_code_point, 0),
            unit="UTF8_CHAR",
        )
        return answers, from_code_point, to_code_point

    def _offset(self, table, block_ids, wordpieces):
        """Code points of wordpieces of blocks; any where a block has none."""
        places = tf.gather(self.first_wordpieces, block_ids)
        places += tf.cast(wordpieces, places.dtype)
        places = tf.minimum(places, tf.size(table, places.dtype) - 1)
        return tf.cast(tf.gather(table, places), tf.int32)

    def _candidates(self, block_ids, texts, answers, log_probs):
        padding = [[0, 0], [0, self._num_padding]]
        block_ids = tf.pad(block_ids, padding, constant_values=-1)

        def if_read(values, otherwise):
            filled = tf.pad(values, padding, constant_values=otherwise)
            return tf.where(block_ids >= 0, filled, otherwise)

        return {
            "candidate_block_id": tf.cast(block_ids, tf.int64),
            "candidate_title": self.titles.lookup(block_ids),
            "candidate_text": if_read(texts, ""),
            "candidate_url": self.urls.lookup(block_ids),
            "candidate_answer": if_read(answers, ""),
            "candidate_log_prob": if_read(log_probs, np.float32(-np.inf)),
        }


def _num_bytes(variables) -> int:
    total = 0
    for variable in variables:
        dtype = tf.as_dtype(variable.dtype)
        if dtype == tf.string:
            total += sum(map(len, np.ravel(variable.numpy())))
        else:
            total += dtype.size * int(np.prod(variable.shape))
    return total
