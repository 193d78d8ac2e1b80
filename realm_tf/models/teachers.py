"""Readers that tell another one what they think of every span."""

import functools

import keras
from keras import ops

from realm_tf import losses
from realm_tf.models import length_groups
from realm_tf.models.fixed_weight import mark_as_given


class Teachers(keras.layers.Layer):
    """Readers that do not learn, and how much they count.

        loss_reader = (1 - w) loss of the answers + w loss_teacher

    Args:
        readers: list of `Reader`, which read what the learner reads.
        weight: float. w, between 0 and 1.
    """

    def __init__(self, readers, weight):
        super().__init__()
        self.readers = list(readers)
        self.weight = weight
        self.trainable = False
        mark_as_given(self.variables)
        # Of readers that are.
        self.built = True

    def call(self, joined, *, num_length_groups):
        """Scores of spans.

        Args:
            joined: dict of tensors `(num_rows, sequence_length)`, as of
                `packing.join_bert`.
            num_length_groups: int. See `length_groups.in_length_groups`.

        Returns:
            float tensor `(num_rows, num_teachers, sequence_length,
            max_span_width)`, without a gradient.
        """
        scores = [
            length_groups.in_length_groups(
                functools.partial(reader, training=False),
                joined,
                num_length_groups,
            )
            for reader in self.readers
        ]
        return ops.stop_gradient(ops.stack(scores, axis=1))

    def weigh(self, reader_loss, outputs):
        """The reader's loss with what teachers think, and that alone.

        Args:
            reader_loss: float tensor `(batch_size,)`. Of the answers, in nats.
            outputs: dict of tensors, as of `RetrieveAndRead`: `span_scores` and
                `allowed`, `(batch_size, num_read, length, width)`, and
                `teacher_scores`, `(batch_size, num_read, num_teachers, length,
                width)`.

        Returns:
            (float tensor `(batch_size,)`, the same of `losses.teacher_loss`).
        """
        of_teachers = ops.moveaxis(outputs["teacher_scores"], 2, 1)
        batch_size, num_teachers = ops.shape(of_teachers)[:2]
        teacher_loss = losses.teacher_loss(
            ops.reshape(outputs["span_scores"], (batch_size, -1)),
            ops.reshape(of_teachers, (batch_size, num_teachers, -1)),
            ops.reshape(outputs["allowed"], (batch_size, -1)),
        )
        weighed = (1 - self.weight) * reader_loss + self.weight * teacher_loss
        return weighed, teacher_loss
