"""Maps a function over elements, of which few are in memory at once."""

import keras
from keras import ops


def bounded_map(function, elements, *, outputs, num_at_once=1):
    """As `keras.ops.map`, with a bound on what is computed at once.

    TensorFlow runs ten iterations of a loop side by side, each with its own
    intermediate tensors, unless told otherwise; `keras.ops.map` cannot say,
    and outside a graph computes the first element twice. JAX goes through the
    elements one by one.

    Args:
        function: function of an element.
        elements: tensor or tuple of tensors, mapped over their first axis,
            which may be of any length.
        outputs: tuple of (shape, dtype), of what `function` returns; or one
            such pair.
        num_at_once: int. Elements at most. Defaults to `1`.

    Returns:
        tensor or tuple of tensors, with the first axis of `elements`.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.map(function, elements)
    import tensorflow as tf

    is_pair = isinstance(outputs[1], str)
    specs = [
        tf.TensorSpec(shape, dtype)
        for shape, dtype in ([outputs] if is_pair else outputs)
    ]
    return tf.map_fn(
        function,
        elements,
        fn_output_signature=specs[0] if is_pair else tuple(specs),
        # Outside a graph TensorFlow has one at a time, and complains of more.
        parallel_iterations=1 if tf.executing_eagerly() else num_at_once,
    )
