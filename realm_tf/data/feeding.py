"""How batches reach Keras's `fit`."""

from collections.abc import Callable
from collections.abc import Iterator

import keras

# Batches that TensorFlow holds ready (our choice).
_NUM_READY = 2


def ahead(
    make: Callable[[], Iterator[dict]],
    *,
    varying: bool = False,
    of_one_width: tuple[str, ...] = (),
):
    """Batches for `fit`, which Keras may read ahead.

    Args:
        make: function without arguments that gives an iterator of batches.
        varying: bool. Whether batches differ in all dimensions, not in the
            first alone. Keras takes the shapes of a generator's first two
            batches for those of all; TensorFlow is told here which are known,
            and traces a step once. Defaults to `False`.
        of_one_width: tuple of str. Features of varying batches whose last
            dimension is the same in every batch, and which a step has to know.

    Returns:
        The `x` of `fit`, with `steps_per_epoch`.
    """
    if keras.backend.backend() != "tensorflow":
        # Keras wants tuples of a generator.
        return ((batch,) for batch in make())
    import tensorflow as tf

    def known_shape(name, shape):
        if not varying:
            return [None, *shape[1:]]
        last = shape[-1] if name in of_one_width else None
        return [*(None for _ in shape[1:]), last]

    signature = {
        name: tf.TensorSpec(known_shape(name, rows.shape), rows.dtype)
        for name, rows in next(iter(make())).items()
    }
    dataset = tf.data.Dataset.from_generator(
        lambda: ((batch,) for batch in make()), output_signature=(signature,)
    )
    options = tf.data.Options()
    # A thread that tunes sleeps for up to a minute, and who forgets an
    # iterator waits for it to wake.
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options).prefetch(_NUM_READY)
