"""How batches reach Keras's `fit`."""

from collections.abc import Callable
from collections.abc import Iterator

import keras

# Batches that TensorFlow holds ready (our choice).
_NUM_READY = 2


def steps_done(optimizer) -> int:
    """Steps of `fit` so far, each of a batch.

    `iterations` of a Keras optimizer are changes of the weights, of which
    accumulated gradients make fewer.

    Args:
        optimizer: `keras.optimizers.Optimizer` of the model.
    """
    return int(optimizer._iterations)


def ahead(make: Callable[[], Iterator[dict]]):
    """Batches of one shape for `fit`, which Keras may read ahead.

    Args:
        make: function without arguments that gives an iterator of batches.

    Returns:
        What `fit` takes as its `x`, with `steps_per_epoch`.
    """
    if keras.backend.backend() != "tensorflow":
        # Keras wants tuples of a generator.
        return ((batch,) for batch in make())
    dataset = _dataset(make, lambda name, shape: [None, *shape[1:]])
    return dataset.prefetch(_NUM_READY)


def varying(make: Callable[[], Iterator[dict]], *, of_one_width=()):
    """Batches for `fit` that differ in all their dimensions but the rank.

    Keras takes the shapes of a generator's first two batches for those of
    all. Here TensorFlow is told that none is known, and traces a step once.

    Args:
        make: as `ahead`.
        of_one_width: tuple of str. Features whose last dimension is that of
            every batch, and which a step has to know.

    Returns:
        As `ahead`.
    """
    if keras.backend.backend() != "tensorflow":
        return ahead(make)
    dataset = _dataset(
        make,
        lambda name, shape: [
            *(None for _ in shape[1:]),
            shape[-1] if name in of_one_width else None,
        ],
    )
    return dataset.prefetch(_NUM_READY)


def _dataset(make, known_shape):
    """`tf.data.Dataset` of batches: what of their shapes is always the same."""
    import tensorflow as tf

    options = tf.data.Options()
    # A thread that tunes sleeps for up to a minute, and who forgets an
    # iterator waits for it to wake.
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    signature = {
        name: tf.TensorSpec(known_shape(name, rows.shape), rows.dtype)
        for name, rows in next(iter(make())).items()
    }
    dataset = tf.data.Dataset.from_generator(
        lambda: ((batch,) for batch in make()), output_signature=(signature,)
    )
    return dataset.with_options(options)
