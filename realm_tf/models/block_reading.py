"""The reader over blocks: the score of every span of them for a question."""

import functools

import numpy as np
from keras import ops

from realm_tf.models import answer_matching
from realm_tf.models import length_groups
from realm_tf.models import packing


class BlockReading:
    """What a reader thinks of the spans of blocks.

    It has no weights of its own: the model that holds it has them.

    Args:
        reader: `Reader`.
        block_table: `BlockTable`. With titles if the reader reads them.
        is_continuation: bool array `(vocabulary_size,)`. Which wordpieces
            continue a word.
        sep_id: int. Id of [SEP].
        relevance_weight: float. How much f(x,z) counts in the score of a span.
            Defaults to `1.0`, as in the paper.
        num_length_groups: int. See `length_groups.in_length_groups`, for the
            blocks read in training. Defaults to `1`.
        rows_per_group: int. See `length_groups.in_groups_of`, for the blocks
            read otherwise. Defaults to `None`: all at once.
        teachers: `Teachers`. They read in training. Defaults to `None`.
    """

    def __init__(
        self,
        reader,
        block_table,
        *,
        is_continuation,
        sep_id,
        relevance_weight=1.0,
        num_length_groups=1,
        rows_per_group=None,
        teachers=None,
    ):
        self._reader = reader
        self._block_table = block_table
        self._is_continuation = np.asarray(is_continuation, dtype=bool)
        self._join_title = packing.JoinBert(sep_id)
        self._join_bert = packing.JoinBert(sep_id, reader.max_joint_length)
        self._relevance_weight = relevance_weight
        self._num_length_groups = num_length_groups
        self._rows_per_group = rows_per_group
        self._teachers = teachers

    def __call__(
        self, query, read_ids, read_scores, read_lexical, *, training=False
    ):
        """Scores of all spans.

        Args:
            query: dict of int tensors `(batch_size, query_length)`, as of
                `packing.query_inputs`.
            read_ids: int tensor `(batch_size, num_read)`. The blocks.
            read_scores: float tensor of that shape. f(x,z); -inf where no
                block was found, which has no spans.
            read_lexical: float tensor of that shape. What BM25 gives of these.
            training: bool. Defaults to `False`.

        Returns:
            dict of tensors: `read_ids`, `read_scores`; `read_lexical`, what BM25
            gives of the score of a span; of question and block joined, `(batch_size, num_read, length)`, `joint_ids` and
            `block_positions`, places in the body, -1 elsewhere; of the spans
            that begin there, `(batch_size, num_read, length, width)`,
            `span_scores`, the reader's and that of retrieval, and `allowed`,
            those within a body; with teachers `teacher_scores`, `(batch_size,
            num_read, num_teachers, length, width)`.
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
        relevance = self._relevance_weight * read_scores[:, :, None, None]
        outputs = {
            "read_ids": read_ids,
            "read_scores": read_scores,
            "read_lexical": self._relevance_weight * read_lexical,
            "joint_ids": ops.reshape(joined["token_ids"], shape),
            "block_positions": ops.reshape(positions, shape),
            # (b, r, l, w)
            "span_scores": ops.reshape(logits, (*shape, width)) + relevance,
            "allowed": ops.logical_and(
                ops.reshape(allowed, (*shape, width)), is_found
            ),
        }
        if training and self._teachers:
            of_teachers = self._teachers(
                joined, num_length_groups=self._num_length_groups
            )
            # (b, r, t, l, w)
            outputs["teacher_scores"] = (
                ops.reshape(
                    of_teachers,
                    (batch_size, num_read, *ops.shape(of_teachers)[1:]),
                )
                + relevance[:, :, None]
            )
        return outputs

    def weighed(self, outputs, relevance_weight):
        """Outputs as they would be with another `relevance_weight`.

        Args:
            outputs: dict of tensors or arrays. What a call gave.
            relevance_weight: float.

        Returns:
            dict, with other `span_scores` and `read_lexical`.
        """
        difference = relevance_weight - self._relevance_weight
        # A place without a block has a score of -inf: 0 x -inf is none.
        if not difference:
            return outputs
        return {
            **outputs,
            "span_scores": outputs["span_scores"]
            + difference * outputs["read_scores"][:, :, None, None],
            "read_lexical": outputs["read_lexical"]
            * (relevance_weight / self._relevance_weight),
        }

    def join(self, query, read_ids):
        """What the reader reads.

        Args:
            query: dict of int tensors. As of a call.
            read_ids: int tensor `(batch_size, num_read)`.

        Returns:
            dict of int tensors `(batch_size * num_read, length)`, as of
            `packing.join_bert`: question, title if the reader reads titles,
            and body.
        """
        query = query["token_ids"], query["padding_mask"]
        if not self._reader.reads_titles:
            return self._join_bert(*query, *self._block_table(read_ids))
        blocks = self._block_table.contents(read_ids)
        titled = self._join_title(
            *query, blocks["title_ids"], blocks["title_lengths"]
        )
        token_ids = blocks["token_ids"]
        # The title is joined to the question, and the body to both.
        return packing.join_bert(
            titled["token_ids"],
            titled["padding_mask"],
            ops.reshape(token_ids, (-1, ops.shape(token_ids)[-1])),
            ops.reshape(blocks["lengths"], (-1,)),
            sep_id=self._join_bert.sep_id,
            max_length=self._join_bert.max_length,
        )

    def _span_logits(self, joined, training):
        read = functools.partial(self._reader, training=training)
        if training or self._rows_per_group is None:
            return length_groups.in_length_groups(
                read, joined, self._num_length_groups
            )
        return length_groups.in_groups_of(
            read,
            joined,
            self._rows_per_group,
            shape=(self._reader.max_span_width,),
        )

    def correct(self, outputs, answer_ids):
        """Which spans equal an answer.

        Args:
            outputs: dict. What a call gave.
            answer_ids: int tensor `(batch_size, num_answers, answer_length)`,
                padded with -1.

        Returns:
            bool tensor, of the shape of `span_scores`.
        """
        shape = ops.shape(outputs["span_scores"])
        positions = outputs["block_positions"]
        flat = (shape[0] * shape[1], shape[2])
        token_ids = ops.where(
            positions >= 0, outputs["joint_ids"], self._join_bert.sep_id
        )
        matches = answer_matching.match_answers(
            ops.reshape(token_ids, flat),
            ops.repeat(answer_ids, shape[1], axis=0),
            self._is_continuation,
            max_span_width=self._reader.max_span_width,
        )
        return ops.logical_and(ops.reshape(matches, shape), outputs["allowed"])
