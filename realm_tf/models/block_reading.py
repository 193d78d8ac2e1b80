"""The reader over blocks: the score of every span of them for a question."""

import dataclasses
import functools

import keras
import numpy as np
from keras import ops

from realm_tf import losses
from realm_tf.models import answer_matching
from realm_tf.models import packing
from realm_tf.models.fixed_weight import mark_as_given
from realm_tf.models.packing import trim

# Blocks of like length that are read together, but in training; where all are
# so few, as for one question, each is read alone, without padding.
_ROWS_PER_GROUP = 8
# Of a place without a span, and what is above it.
_NONE, LEAST_SCORE = -1e30, -1e29


@dataclasses.dataclass(eq=False)
class BlockReading:
    """Scores the spans of blocks with a reader.

    It has no weights of its own: the model that holds it has them.

    Args:
        reader: `Reader`.
        block_table: `BlockTable`. With titles if the reader reads them.
        is_continuation: bool array `(vocabulary_size,)`. Which wordpieces
            continue a word.
        sep_id: int. Id of [SEP].
        relevance_weight: float. How much f(x,z) counts in the score of a span.
        num_length_groups: int. See `in_length_groups`, for the blocks read in
            training.
        teachers: `Teachers`. They read in training. `None`: there are none.
    """

    reader: keras.Model
    block_table: keras.layers.Layer
    is_continuation: np.ndarray
    sep_id: int
    relevance_weight: float
    num_length_groups: int
    teachers: keras.layers.Layer | None

    def __call__(self, query, read_ids, read_scores, *, training=False):
        """Scores of all spans.

        Args:
            query: dict of int tensors `(batch_size, query_length)`, as of
                `packing.query_inputs`.
            read_ids: int tensor `(batch_size, num_read)`. The blocks.
            read_scores: float tensor of that shape. f(x,z); -inf where no
                block was found, which has no spans.
            training: bool. Defaults to `False`.

        Returns:
            dict of tensors: `read_ids`, `read_scores`; `read_relevance`, what
            retrieval gives of the score of a span; of question and block
            joined, `(batch_size, num_read, length)`, `joint_ids` and
            `block_positions`, places in the body, -1 elsewhere; of the spans
            that begin there, `(batch_size, num_read, length, width)`,
            `span_scores`, the reader's and that of retrieval, and `allowed`,
            those within a body; with teachers `teacher_scores`, `(batch_size,
            num_read, num_teachers, length, width)`, without retrieval and for
            spans of the width that all teachers have.
        """
        batch_size, num_read = ops.shape(read_ids)
        joined = packing.trim(self.join(query, read_ids))
        positions = packing.block_positions(joined)
        # (b * r, l, w)
        logits = self._span_logits(joined, training)
        allowed = answer_matching.allowed_spans(positions, logits.shape[-1])
        shape = (batch_size, num_read, ops.shape(logits)[1])
        width = logits.shape[-1]
        # (b, r, 1, 1): others only fill the places of blocks.
        is_found = (read_scores > -np.inf)[:, :, None, None]
        read_relevance = self.relevance_weight * read_scores
        relevance = read_relevance[:, :, None, None]
        outputs = {
            "read_ids": read_ids,
            "read_scores": read_scores,
            "read_relevance": read_relevance,
            "joint_ids": ops.reshape(joined["token_ids"], shape),
            "block_positions": ops.reshape(positions, shape),
            # (b, r, l, w)
            "span_scores": ops.reshape(logits, (*shape, width)) + relevance,
            "allowed": ops.logical_and(
                ops.reshape(allowed, (*shape, width)), is_found
            ),
        }
        if training and self.teachers:
            of_teachers = self.teachers(
                positions,
                join=functools.partial(self.join, query, read_ids),
                num_length_groups=self.num_length_groups,
            )
            # (b, r, t, l, w)
            outputs["teacher_scores"] = ops.reshape(
                of_teachers,
                (batch_size, num_read, *ops.shape(of_teachers)[1:]),
            )
        return outputs

    def against_none(self, outputs):
        """Scores that can be compared with "none", which has 0.

            log p(z) = log softmax of the relevance over the blocks read

        The reader's score alone is for the "none" of its block; with log p(z)
        it is for one "none" of all blocks. The relevance itself would not do:
        it grows with the words that question and block share, whether or not
        the block answers. Among each other, spans are as in `span_scores`.

        Args:
            outputs: dict. Result of a call.

        Returns:
            (the reader's scores, `(batch_size, num_read, length, width)`, and
            log p(z), `(batch_size, num_read, 1, 1)`, without a gradient).
        """
        # (b, r, 1, 1)
        relevance = outputs["read_relevance"][:, :, None, None]
        is_read = ops.any(outputs["allowed"], axis=(2, 3), keepdims=True)
        total = losses.masked_logsumexp(relevance, is_read, 1)[:, None]
        alone = outputs["span_scores"] - relevance
        return alone, ops.stop_gradient(relevance - total)

    def join(self, query, read_ids, reads_titles=None):
        """Packs the reader's inputs.

        Args:
            query: dict of int tensors. As of a call.
            read_ids: int tensor `(batch_size, num_read)`.
            reads_titles: bool. Of the reader. Defaults to `None`: the own one.

        Returns:
            dict of int tensors `(batch_size * num_read, length)`, as of
            `packing.join_bert`: question, title if the reader reads titles,
            and body.
        """
        if reads_titles is None:
            reads_titles = self.reader.reads_titles
        rows = query["token_ids"], query["padding_mask"]
        max_length = self.reader.max_joint_length
        join = packing.JoinBert(self.sep_id, max_length)
        if not reads_titles:
            return join(*rows, *self.block_table(read_ids))
        blocks = self.block_table.contents(read_ids)
        titled = packing.JoinBert(self.sep_id)(
            *rows, blocks["title_ids"], blocks["title_lengths"]
        )
        # The title is joined to the question, and the body to both.
        bodies = blocks["token_ids"]
        return join(
            titled["token_ids"],
            titled["padding_mask"],
            ops.reshape(bodies, (-1, 1, ops.shape(bodies)[-1])),
            ops.reshape(blocks["lengths"], (-1, 1)),
        )

    def _span_logits(self, joined, training):
        read = functools.partial(self.reader, training=training)
        if training:
            return in_length_groups(read, joined, self.num_length_groups)
        return in_groups_of(
            read,
            joined,
            _ROWS_PER_GROUP,
            shape=(self.reader.max_span_width,),
        )

    def correct(self, outputs, answer_ids):
        """Which spans equal an answer.

        Args:
            outputs: dict. Result of a call.
            answer_ids: int tensor `(batch_size, num_answers, answer_length)`,
                padded with -1.

        Returns:
            bool tensor, of the shape of `span_scores`.
        """
        shape = ops.shape(outputs["span_scores"])
        positions = outputs["block_positions"]
        flat = (shape[0] * shape[1], shape[2])
        token_ids = ops.where(positions >= 0, outputs["joint_ids"], self.sep_id)
        matches = answer_matching.match_answers(
            ops.reshape(token_ids, flat),
            ops.repeat(answer_ids, shape[1], axis=0),
            self.is_continuation,
            max_span_width=self.reader.max_span_width,
        )
        return ops.logical_and(ops.reshape(matches, shape), outputs["allowed"])


def best_of_blocks(outputs, *, num_best):
    """The best spans of each block by r(s), and the sum over all.

    Args:
        outputs: dict. Result of `RetrieveAndRead`, arrays or tensors.
        num_best: int.

    Returns:
        A dict of tensors. `starts`, `limits` and `scores`, `(batch_size,
        num_read, num_best)`, best first, in wordpieces of the body (`[start,
        limit)`): where there are fewer spans, the last scores are below
        `LEAST_SCORE`. `totals`, `(batch_size, num_read)`: log sum exp of r over
        all spans of a block.
    """
    allowed = outputs["allowed"]
    relevance = outputs["read_relevance"][..., None, None]
    scores = ops.where(
        allowed, ops.cast(outputs["span_scores"] - relevance, "float32"), _NONE
    )
    batch_size, num_read, length, width = ops.shape(scores)
    flat = (batch_size, num_read, length * width)
    padded = ops.pad(
        ops.reshape(scores, flat),
        [[0, 0], [0, 0], [0, num_best]],
        constant_values=_NONE,
    )
    best_scores, best = ops.top_k(padded, num_best)
    best = ops.minimum(ops.cast(best, "int32"), length * width - 1)
    starts = ops.take_along_axis(
        outputs["block_positions"], best // width, axis=-1
    )
    return {
        "starts": starts,
        "limits": ops.where(starts < 0, -1, starts + best % width + 1),
        "scores": best_scores,
        "totals": losses.masked_logsumexp(scores, allowed, axis=(2, 3)),
    }


def best_of_all(of_blocks, read_scores, relevance, *, num_best):
    """The best spans of the blocks read for a question.

        share = exp(g(s)) / (sum_s' exp(g(s')) + sum_z exp(v f(x,z)))
        g(s)  = r(s) + v f(x,z)

    r is the reader's score, log-odds against "none", which has 0; v f(x,z) is
    what retrieval gives. So "none" is chosen with the block, as a span is: it is
    one "none" of 0 beside spans of r(s) + log p(z|x).

    Args:
        of_blocks: dict. Result of `best_of_blocks`, arrays or tensors.
        read_scores: float tensor `(batch_size, num_read)`. f(x,z).
        relevance: float tensor of that shape. v f(x,z).
        num_best: int. Length of the n-best list, at most that of a block's.

    Returns:
        A dict of tensors. `candidate_starts`, `candidate_limits` and
        `candidate_scores`, `(batch_size, num_read)`: the best span of each
        block; start is -1 if it has none. `candidate_log_probs`, the same
        shape: the log-softmax of f over the blocks. `nbest_positions` (place of
        the block), `nbest_starts`, `nbest_limits`, `nbest_scores`,
        `(batch_size, num_best)`, best first; `nbest_reader_scores`, the same
        shape: r. `log_total`, `(batch_size,)`: log sum exp of spans and "none".
    """
    is_found = ops.greater(read_scores, -np.inf)[..., None]
    is_span = (of_blocks["scores"] > LEAST_SCORE) & is_found
    is_read = is_span[..., 0]
    relevance = ops.where(is_read, ops.cast(relevance, "float32"), 0.0)
    scores = ops.where(
        is_span, of_blocks["scores"] + relevance[..., None], _NONE
    )
    batch_size, num_read, num_spans = ops.shape(scores)
    flat = (batch_size, num_read * num_spans)
    nbest_scores, nbest = ops.top_k(ops.reshape(scores, flat), num_best)
    nbest = ops.cast(nbest, "int32")
    starts, limits, of_reader = (
        ops.take_along_axis(ops.reshape(of_blocks[name], flat), nbest, axis=1)
        for name in ("starts", "limits", "scores")
    )
    log_total = ops.logaddexp(
        losses.masked_logsumexp(of_blocks["totals"] + relevance, is_read, 1),
        losses.masked_logsumexp(relevance, is_read, 1),
    )
    return {
        "candidate_starts": of_blocks["starts"][..., 0],
        "candidate_limits": of_blocks["limits"][..., 0],
        "candidate_scores": scores[..., 0],
        "candidate_log_probs": ops.log_softmax(read_scores, axis=-1),
        "nbest_positions": nbest // num_spans,
        "nbest_starts": starts,
        "nbest_limits": limits,
        "nbest_scores": nbest_scores,
        "nbest_reader_scores": of_reader,
        "log_total": log_total,
    }


def best_spans(outputs, *, num_best):
    """`best_of_all` of what `RetrieveAndRead` gives, arrays or tensors."""
    return best_of_all(
        best_of_blocks(outputs, num_best=num_best),
        outputs["read_scores"],
        outputs["read_relevance"],
        num_best=num_best,
    )


def in_length_groups(function, joined, num_groups):
    """Calls a model on rows of like length together, each group trimmed.

    Among many rows one is long, and all are padded to it. Sorted by length
    and cut into groups, most of them are padded to less. On the TensorFlow
    backend; elsewhere shapes are fixed, and the rows are one group.

    Args:
        function: function of a dict like `joined`, of some rows, that gives a
            tensor `(num_rows, length, ...)`; no row depends on another.
        joined: dict of tensors `(batch_size, sequence_length)`, with
            `padding_mask`.
        num_groups: int. Where they do not divide the rows, the last groups
            overlap, and results that are computed twice are dropped.

    Returns:
        The result of `function(joined)`, except for values at padding.
    """
    if num_groups == 1 or keras.backend.backend() != "tensorflow":
        return function(joined)
    num_rows = ops.shape(joined["padding_mask"])[0]
    size = (num_rows + num_groups - 1) // num_groups
    order, compute = _by_length(function, joined, size)
    outputs = [compute(group) for group in range(num_groups)]
    return _in_order(ops.concatenate(outputs, axis=0), order, size)


def in_groups_of(function, joined, rows_per_group, *, shape):
    """As `in_length_groups`, with as many groups as the rows need.

    For rows that are not known when a graph is made: the groups are the steps
    of a loop, and where the rows are at most one group, each is a step. On the
    TensorFlow backend; elsewhere shapes are fixed, and the rows are one group.

    Args:
        function, joined: as of `in_length_groups`.
        rows_per_group: int. At most so many rows in a group.
        shape: tuple of int. Of what the function gives, without
            `(num_rows, length)`.

    Returns:
        The result of `function(joined)`, except for values at padding.
    """
    if keras.backend.backend() != "tensorflow":
        return function(joined)
    import tensorflow as tf

    num_rows = ops.shape(joined["padding_mask"])[0]
    rows_per_group = ops.where(num_rows <= rows_per_group, 1, rows_per_group)
    # One group even of no rows: a loop of no steps has no shape. Groups of
    # like size overlap least.
    num_groups = ops.maximum(
        (num_rows + rows_per_group - 1) // rows_per_group, 1
    )
    size = (num_rows + num_groups - 1) // num_groups
    order, compute = _by_length(function, joined, size)
    outputs = tf.map_fn(
        compute,
        tf.range(num_groups),
        fn_output_signature=tf.TensorSpec((None, None, *shape), "float32"),
        # Each step uses all processors, and its memory is that of a group.
        parallel_iterations=1,
    )
    # (g, size, length, ...) -> (g * size, length, ...)
    outputs = tf.reshape(outputs, tf.concat([[-1], tf.shape(outputs)[2:]], 0))
    return _in_order(
        tf.ensure_shape(outputs, (None, None, *shape)), order, size
    )


def _by_length(function, joined, size):
    """Order of the rows by length, and what computes a group of them."""
    num_rows, length = ops.shape(joined["padding_mask"])
    order = ops.argsort(ops.sum(joined["padding_mask"], axis=1))

    def compute(group):
        first = ops.minimum(group * size, num_rows - size)
        rows = ops.slice(order, (first,), (size,))
        found = function(
            trim({k: ops.take(v, rows, axis=0) for k, v in joined.items()})
        )
        rest = [[0, 0]] * (len(found.shape) - 2)
        missing = length - ops.shape(found)[1]
        return ops.pad(found, [[0, 0], [0, missing], *rest])

    return order, compute


def _in_order(outputs, order, size):
    """Rows of all groups, as they were before they were ordered."""
    num_rows = ops.shape(order)[0]
    row = ops.arange(num_rows, dtype="int32")
    group = row // size
    first = ops.minimum(group * size, num_rows - size)
    place = group * size + row - first
    return ops.take(outputs, ops.take(place, ops.argsort(order)), axis=0)


class Teachers(keras.layers.Layer):
    """Readers that do not learn, and how much they count.

        loss = (1 - w) loss of the answers + w loss_teacher

    A teacher may be larger, read no titles where the student does, and have
    spans of another width. Spans that are wider than those of the narrowest
    reader are left to the answers: the distributions that are compared are over
    the spans that all readers have, of all blocks read, and "none". Where a
    teacher does not know "none" (`Reader.knows_none`), they are over spans alone.

    Args:
        readers: list of `Reader`.
        weight: float. w, between 0 and 1.
        temperature: float. See `losses.teacher_loss`. Defaults to `1.0`.
    """

    def __init__(self, readers, weight, temperature=1.0):
        super().__init__()
        self.readers = list(readers)
        self.weight = weight
        self.temperature = temperature
        self.trainable = False
        mark_as_given(self.variables)
        # Of readers that are.
        self.built = True

    def call(self, positions, *, join, num_length_groups):
        """Scores of spans.

        Args:
            positions: int tensor `(num_rows, sequence_length)`. Where the
                student reads each wordpiece of a body; -1 elsewhere.
            join: function of whether titles are read. What a teacher reads, as
                of `packing.join_bert`, of as many rows.
            num_length_groups: int. See `in_length_groups`.

        Returns:
            float tensor `(num_rows, num_teachers, sequence_length, width)` of
            the least width of the teachers, at the places of the student,
            without a gradient.
        """
        width = min(reader.max_span_width for reader in self.readers)

        def read(reader):
            joined = trim(join(reader.reads_titles))
            # (n, t, w)
            scores = in_length_groups(
                functools.partial(reader, training=False),
                joined,
                num_length_groups,
            )[..., :width]
            is_body = packing.block_positions(joined) >= 0
            first = ops.argmax(ops.cast(is_body, "int32"), axis=1)
            # (n, l)
            places = ops.cast(first, "int32")[:, None] + positions
            last = ops.shape(is_body)[1] - 1
            places = ops.clip(places, 0, last)[..., None]
            return ops.take_along_axis(scores, places, axis=1)

        return ops.stop_gradient(
            ops.stack([read(reader) for reader in self.readers], axis=1)
        )

    def weigh(self, answer_loss, outputs, scores, log_priors):
        """The reader's loss with what teachers think, and that alone.

        Args:
            answer_loss: float tensor `(batch_size,)`. Of the answers, in nats.
            outputs: dict of tensors, as of `BlockReading`, with
                `teacher_scores`.
            scores, log_priors: as of `BlockReading.against_none`.

        Returns:
            (float tensor `(batch_size,)`, the same of `losses.teacher_loss`).
        """
        of_teachers = outputs["teacher_scores"]
        width = min(scores.shape[-1], of_teachers.shape[-1])
        batch_size, _, num_teachers = ops.shape(of_teachers)[:3]
        of_teachers = (of_teachers + log_priors[:, :, None])[..., :width]
        of_teachers = ops.reshape(
            ops.moveaxis(of_teachers, 2, 1), (batch_size, num_teachers, -1)
        )
        own, mask = (
            ops.reshape(each[..., :width], (batch_size, -1))
            for each in (scores + log_priors, outputs["allowed"])
        )
        knows_none = all(reader.knows_none for reader in self.readers)
        teacher_loss = losses.teacher_loss(
            losses.with_none(own),
            losses.with_none(of_teachers),
            losses.with_none(mask, knows_none),
            self.temperature,
        )
        weighed = (1 - self.weight) * answer_loss + self.weight * teacher_loss
        return weighed, teacher_loss
