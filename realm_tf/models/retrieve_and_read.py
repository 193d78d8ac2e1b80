"""Retrieve and read: the open-QA model over an index and block texts."""

import keras
import numpy as np
from keras import ops

from realm_tf import losses
from realm_tf.errors import InputError
from realm_tf.models import answer_matching
from realm_tf.models import packing
from realm_tf.models.block_reading import BlockReading
from realm_tf.models.fixed_weight import fixed_weight


class RetrieveAndRead(keras.Model):
    """Answers questions with spans of retrieved blocks, and learns to.

        loss_retriever = lse_{z in Z} f(x,z) - lse_{z in Z+} f(x,z)
        loss_reader    = lse_{s in S} g(x,s) - lse_{s in S+} g(x,s)

    lse is log sum exp; Z are the `num_candidates` best blocks, Z+ those that
    contain an answer; S all spans of the `num_reader_blocks` best blocks, S+
    those whose wordpieces equal an answer's; g is the reader's score plus
    `relevance_weight` times f(x,z) of the span's block. Each is 0 where nothing
    is correct, and both are added. The index and the block embeddings stay
    fixed; the query tower and the reader learn. Where the reader is not
    `trainable`, nothing is read in training, and the retriever's loss is all.
    With `none_weight` w the reader also learns where to answer "none":

        loss = (1 - w) loss_reader + w (loss_joint + mean_z loss_z) / 2

    Both new losses are `losses.none_span_loss`, of all blocks read together and
    of each alone, on the scores of `BlockReading.against_none`. "None" is right
    where no block that is read holds an answer or is the gold block; of one
    block, where this one does not. With `teachers`, the loss is also how far
    the scores are from theirs.

    Inputs are a dict of int tensors: `token_ids` and `padding_mask`,
    `(batch_size, query_length)`, the packed question; in training also
    `answer_ids`, `(batch_size, num_answers, answer_length)`, padded with -1,
    and, where they are known, `gold_ids`, `(batch_size,)`, the block that a
    question was asked about, -1 for none, and `is_near_miss`, bool
    `(batch_size,)`: of which questions no block that holds an answer, or is the
    gold block, may be read. With `candidate_ids` and
    `candidate_scores`, `(batch_size, num)`, another retriever's blocks are read
    instead; the retriever's loss then has no gradient.

    Args:
        open_qa: `OpenQa`.
        index: `retrieval.index.Index` over the block embeddings.
        block_table: `BlockTable` of the same blocks, with titles if the reader
            reads them.
        is_continuation: bool array `(vocabulary_size,)`. Which wordpieces
            continue a word.
        sep_id: int. Id of [SEP].
        num_candidates: int. Blocks in the retriever's loss; at most all.
            Defaults to `5000`.
        num_reader_blocks: int. Blocks read. Defaults to `5`.
        embeddings: float array `(num_blocks, embedding_dim)`, needed to
            train over an index that is no `BruteForce`.
        read_an_answer: bool. In training, read the best block that contains
            an answer in the last place if none is among those read. The
            paper does not; small beams on a small budget need it. Defaults
            to `False`.
        gold: str. Use of `gold_ids` in training: `"ignore"`, as the
            paper; `"read"`, the gold block is what `read_an_answer` reads in
            the last place, if it is a candidate; `"only"`, besides, a span of
            another block that is read is neither right nor wrong if it equals
            an answer. Defaults to `"ignore"`.
        match_whole_words: bool. Whether a block contains an answer only
            where the answer's last word ends; without, as the original's
            test for a raw substring: see `answer_matching.contains_answer`. A
            span is right only as whole words in any case. Defaults to `True`.
        num_length_groups: int. See `BlockReading`. Defaults to `1`.
        hybrid: `retrieval.hybrid.Hybrid`. Searches instead of the index alone.
            Defaults to `None`.
        relevance_weight: float. How much f(x,z) counts in g. Defaults to `1.0`,
            as the paper.
        none_weight: float. w, between 0 and 1. Defaults to `0.0`, as the
            paper, which has no "none".
        teachers: `Teachers`. Defaults to `None`, as the paper.

    Raises:
        InputError: if `num_reader_blocks` is less than 1.
        ValueError: if `index` and `block_table` differ in size.

    References:
        [Lee et al., 2019](https://arxiv.org/abs/1906.00300), section 5.
        Original code: google-research/language,
        language/orqa/models/orqa_model.py.
    """

    def __init__(
        self,
        open_qa,
        index,
        block_table,
        *,
        is_continuation,
        sep_id,
        num_candidates=5000,
        num_reader_blocks=5,
        embeddings=None,
        read_an_answer=False,
        gold="ignore",
        match_whole_words=True,
        num_length_groups=1,
        hybrid=None,
        relevance_weight=1.0,
        none_weight=0.0,
        teachers=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        block_table.check_index(index)
        if num_reader_blocks < 1:
            raise InputError(
                "At least one block must be read. Received: "
                f"num_reader_blocks={num_reader_blocks}"
            )
        self.open_qa = open_qa
        self.index = index
        self.block_table = block_table
        self.num_candidates = min(num_candidates, index.num_blocks)
        self.num_reader_blocks = min(num_reader_blocks, self.num_candidates)
        self.read_an_answer = read_an_answer
        self.gold = gold
        self.match_whole_words = match_whole_words
        self.hybrid = hybrid
        self.none_weight = none_weight
        self.teachers = teachers
        # A layer, and so its weights are this model's.
        self.lexical = hybrid and hybrid.lexical
        self._is_continuation = np.asarray(is_continuation, dtype=bool)
        self.reading = BlockReading(
            open_qa.reader,
            block_table,
            is_continuation=self._is_continuation,
            sep_id=sep_id,
            relevance_weight=relevance_weight,
            num_length_groups=num_length_groups,
            teachers=teachers,
        )
        self._embeddings = None
        if embeddings is not None:
            # A weight: a constant of a graph may not pass 2 GB.
            with keras.name_scope(self.name):
                self._embeddings = fixed_weight(
                    np.asarray(embeddings, "float32"), "block_embeddings"
                )
        # Whether any candidate holds an answer, and the best one does.
        names = ["retriever_loss", "candidates_recall", "top_block_recall"]
        if open_qa.reader.trainable:
            # The last: the best span of those that could be right is right.
            names += ["reader_loss", "span_accuracy"]
            if none_weight:
                # The last: a block has a span above "none" if it should.
                names += ["none_loss", "none_accuracy"]
        if self.teachers:
            names.append("teacher_loss")
        self._trackers = {name: keras.metrics.Mean(name=name) for name in names}

    def prepare(self, embeddings):
        """As `Index.prepare`, for the index and the embeddings beside it."""
        swap_index = self.index.prepare(embeddings)

        def swap():
            swap_index()
            if self._embeddings is not None:
                self._embeddings.assign(embeddings)

        return swap

    def call(self, inputs, training=False):
        # JAX's `fit` hands NumPy arrays in, which towers refuse beside tensors.
        inputs = {k: ops.convert_to_tensor(v) for k, v in inputs.items()}
        query = packing.query_inputs(inputs)
        if "candidate_ids" in inputs:
            candidate_ids = inputs["candidate_ids"]
            scores = inputs["candidate_scores"]
        else:
            found = self.retrieve(
                query, allowed=inputs.get("allowed"), training=training
            )
            scores, candidate_ids = found["scores"], found["block_ids"]
        outputs = {"candidate_ids": candidate_ids, "relevance_scores": scores}
        num_read = min(self.num_reader_blocks, candidate_ids.shape[1])
        positions = ops.broadcast_to(
            ops.arange(num_read, dtype="int32")[None],
            (ops.shape(candidate_ids)[0], num_read),
        )
        if "answer_ids" in inputs:
            has_answer = _is_found(scores) & self._has_answer(
                candidate_ids, inputs["answer_ids"]
            )
            outputs["has_answer"] = has_answer
            if training and not self.open_qa.reader.trainable:
                return outputs
            is_gold = ops.zeros_like(has_answer)
            if "gold_ids" in inputs:
                is_gold = _is_found(scores) & ops.equal(
                    candidate_ids, inputs["gold_ids"][:, None]
                )
            may_answer = has_answer | is_gold
            if training:
                positions, scores = self._to_read(
                    inputs, positions, scores, has_answer, is_gold
                )
            outputs["may_answer"] = ops.take_along_axis(
                may_answer, positions, axis=1
            )
        outputs |= self.reading(
            query,
            *(
                ops.take_along_axis(values, positions, axis=1)
                for values in (candidate_ids, scores)
            ),
            training=training,
        )
        if "answer_ids" in inputs:
            outputs["correct"] = self.reading.correct(
                outputs, inputs["answer_ids"]
            )
            if training and self.gold == "only" and "gold_ids" in inputs:
                outputs.update(only_gold(outputs, inputs["gold_ids"]))
        return outputs

    def retrieve(self, query, *, allowed=None, training=False):
        """The best blocks for each question.

        Args:
            query: dict of int tensors `(batch_size, query_length)`, as of
                `packing.query_inputs`.
            allowed: bool tensor. Which blocks may be found, as of
                `Index.search`. Defaults to `None`: all.
            training: bool. With a gradient. Defaults to `False`.

        Returns:
            dict of tensors `(batch_size, num_candidates)`: `block_ids`, int32,
            `scores`, and `lexical`, what BM25 gives of these, 0 without it.
        """
        # (b, d)
        embeddings = self.open_qa.embed_queries(query, training=training)
        fixed = ops.stop_gradient(embeddings)
        if self.hybrid is None:
            scores, block_ids = self.index.search(
                fixed, self.num_candidates, allowed
            )
            lexical = ops.zeros_like(scores)
            found = {"scores": scores, "block_ids": block_ids}
        else:
            found = self.hybrid.search(
                fixed, query["token_ids"], self.num_candidates, allowed
            )
            lexical = found["lexical"]
        if training:
            # The index only chooses; the scores are computed again, so that
            # a gradient reaches the query tower.
            # (b, k, d)
            table = (
                self.index.embeddings
                if self._embeddings is None
                else self._embeddings
            )
            blocks = ops.take(table, found["block_ids"], axis=0)
            found["scores"] = lexical + losses.relevance_scores(
                embeddings, ops.stop_gradient(blocks)
            )
        return {**found, "lexical": lexical}

    def _to_read(self, inputs, positions, scores, has_answer, is_gold):
        """Places of the candidates that are read in training, and scores."""
        hidden = ops.zeros_like(has_answer)
        if "is_near_miss" in inputs:
            hidden = (has_answer | is_gold) & inputs["is_near_miss"][:, None]
            # The others first; where they are too few, places stay empty.
            num = hidden.shape[1]
            order = ops.arange(num) + num * ops.cast(hidden, "int32")
            order = ops.cast(ops.argsort(order, axis=1), "int32")
            positions = order[:, : positions.shape[1]]
            scores = ops.where(hidden, -float("inf"), scores)
        if self.read_an_answer:
            # The gold block, or one with an answer if that is no candidate.
            gold, with_answer = is_gold & ~hidden, has_answer & ~hidden
            has_gold = ops.any(gold, axis=1, keepdims=True)
            wanted = ops.where(has_gold, gold, with_answer)
            positions = include(positions, wanted)
        return positions, scores

    def _has_answer(self, candidate_ids, answer_ids):
        # (b, k, l), (b, k)
        token_ids, lengths = self.block_table(candidate_ids)
        return answer_matching.contains_answer(
            _hide_padding(token_ids, lengths),
            answer_ids,
            self._is_continuation if self.match_whole_words else None,
        )

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        outputs = y_pred
        scores = outputs["relevance_scores"]
        has_answer = outputs["has_answer"]
        retriever_loss = losses.marginal_span_loss(
            scores, has_answer, _is_found(scores)
        )
        self._track(
            retriever_loss=retriever_loss,
            candidates_recall=ops.any(has_answer, axis=1),
            top_block_recall=has_answer[:, 0],
        )
        if "span_scores" not in outputs:
            return ops.mean(retriever_loss)
        return ops.mean(retriever_loss + self._reader_loss(outputs))

    def _reader_loss(self, outputs):
        spans = (1, 2, 3)
        reader_loss = losses.marginal_span_loss(
            outputs["span_scores"],
            outputs["correct"],
            outputs["allowed"],
            axis=spans,
        )
        to_learn, weight = reader_loss, self.none_weight
        if weight or "teacher_scores" in outputs:
            against_none = self.reading.against_none(outputs)
        if weight:
            none_loss = self._none_loss(outputs, *against_none)
            to_learn = (1 - weight) * reader_loss + weight * none_loss
        if "teacher_scores" in outputs:
            to_learn, teacher_loss = self.teachers.weigh(
                to_learn, outputs, *against_none
            )
            self._track(teacher_loss=teacher_loss)
        answerable = ops.any(outputs["correct"], axis=spans)
        best = _largest(
            outputs["span_scores"], outputs["correct"], axis=spans
        ) >= _largest(outputs["span_scores"], outputs["allowed"], axis=spans)
        self._track(reader_loss=reader_loss)
        self._track(answerable, span_accuracy=best)
        return to_learn

    def _none_loss(self, outputs, scores, log_priors):
        correct, allowed = outputs["correct"], outputs["allowed"]
        # (b, r)
        is_read, has_correct = (
            ops.any(each, axis=(2, 3)) for each in (allowed, correct)
        )
        is_none = is_read & ~outputs["may_answer"]
        # An answer that no span can be teaches nothing.
        is_known = is_none | has_correct

        def loss(scores, none_is_right):
            shape = (*ops.shape(none_is_right), -1)
            spans = (ops.reshape(x, shape) for x in (scores, correct, allowed))
            return losses.none_span_loss(*spans, none_is_right)

        joint = loss(scores + log_priors, ops.all(is_none | ~is_read, axis=1))
        of_blocks = ops.sum(loss(scores, is_none), axis=1)
        num_known = ops.sum(ops.cast(is_known, "float32"), axis=1)
        none_loss = (joint + of_blocks / ops.maximum(num_known, 1.0)) / 2
        says_none = _largest(scores, allowed, axis=(2, 3)) < 0
        self._track(none_loss=none_loss)
        self._track(is_known, none_accuracy=ops.equal(says_none, is_none))
        return none_loss

    def _track(self, sample_weight=None, **values):
        for name, value in values.items():
            self._trackers[name].update_state(value, sample_weight)


def _is_found(scores):
    """Where fewer blocks were found, others stand for nothing, with -inf.

    A score that is no number is none of these: training has to stop at it.
    """
    return ops.not_equal(scores, -float("inf"))


def _largest(scores, mask, *, axis):
    return ops.max(ops.where(mask, scores, -1e30), axis=axis)


def _hide_padding(token_ids, lengths):
    position = ops.arange(ops.shape(token_ids)[-1], dtype="int32")
    return ops.where(position < lengths[..., None], token_ids, -2)


def include(positions, wanted):
    """Puts the best wanted candidate last, if none is read.

    Args:
        positions: int32 tensor `(batch_size, num_read)`. The first candidates.
        wanted: bool tensor `(batch_size, num_candidates)`.

    Returns:
        int32 tensor `(batch_size, num_read)`.
    """
    num_read = positions.shape[1]
    first = ops.cast(ops.argmax(ops.cast(wanted, "int32"), axis=1), "int32")
    # Without any, argmax is 0, which is read anyway.
    last = ops.where(first < num_read, positions[:, -1], first)
    return ops.concatenate([positions[:, :-1], last[:, None]], axis=1)


def only_gold(outputs, gold_ids):
    """Correct and allowed spans if only the gold block can be right.

    Args:
        outputs: dict of tensors, as of `RetrieveAndRead`: `read_ids`
            `(batch_size, num_read)`, `correct` and `allowed` `(batch_size,
            num_read, length, width)`.
        gold_ids: int tensor `(batch_size,)`. -1 for none.

    Returns:
        dict of the new `correct` and `allowed`: without the spans of other
        blocks that equal an answer, where the gold block is read.
    """
    # (b, r, 1, 1)
    is_gold = ops.equal(outputs["read_ids"], gold_ids[:, None])[..., None, None]
    elsewhere = ops.logical_and(
        outputs["correct"],
        ops.logical_and(
            ops.any(is_gold, axis=1, keepdims=True), ops.logical_not(is_gold)
        ),
    )
    counts = ops.logical_not(elsewhere)
    return {
        name: ops.logical_and(outputs[name], counts)
        for name in ("correct", "allowed")
    }
