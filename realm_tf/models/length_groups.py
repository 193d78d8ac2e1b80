"""Rows of like length through a model together, so that less is padding."""

import keras
from keras import ops

from realm_tf.models.packing import trim


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
        What `function(joined)` gives, but for values at padding.
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
    of a loop, and one row or few are one group. On the TensorFlow backend;
    elsewhere shapes are fixed, and the rows are one group.

    Args:
        function: as of `in_length_groups`.
        joined: as of `in_length_groups`.
        rows_per_group: int. At most so many rows in a group.
        shape: tuple of int. Of what the function gives, without
            `(num_rows, length)`.

    Returns:
        What `function(joined)` gives, but for values at padding.
    """
    if keras.backend.backend() != "tensorflow":
        return function(joined)
    import tensorflow as tf

    num_rows = ops.shape(joined["padding_mask"])[0]
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
