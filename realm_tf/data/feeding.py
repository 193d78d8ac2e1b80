"""How batches reach Keras's `fit`: ahead of the steps, or with them."""

import collections
import contextlib
from collections.abc import Callable
from collections.abc import Iterator
from concurrent import futures

import keras

# What a thread makes when there is no more.
_END = object()
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


class ReadAhead:
    """An iterator whose items a thread makes ahead, in their order.

    What the thread raises, the iterator raises, and ends. The thread ends with
    `close`, or when the iterator is forgotten.

    Args:
        iterator: iterator of anything.
        size: int. Items that are ready at most, beside the one that is being
            made. At least 1.
    """

    def __init__(self, iterator: Iterator, size: int):
        self._iterator = iterator
        self._thread = futures.ThreadPoolExecutor(
            1, thread_name_prefix="read-ahead"
        )
        self._made = collections.deque()
        for _ in range(size + 1):
            self._make_one()

    def __iter__(self):
        return self

    def __next__(self):
        made = self._made
        if not made:
            raise StopIteration
        try:
            item = made.popleft().result()
        except futures.CancelledError:
            raise StopIteration from None
        except BaseException:
            self.close()
            raise
        if item is _END:
            self.close()
            raise StopIteration
        self._make_one()
        return item

    def close(self):
        """Ends the thread, once it has made the item it is at."""
        self._thread.shutdown(cancel_futures=True)
        self._made = collections.deque()

    def _make_one(self):
        # Another thread may have called `close`.
        with contextlib.suppress(RuntimeError):
            made = self._thread.submit(next, self._iterator, _END)
            self._made.append(made)


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


def on_demand(make: Callable[[], Iterator[dict]]):
    """Batches for `fit`, each of them made when its step begins.

    Of a Python generator, Keras reads two batches before the first step and,
    with TensorFlow, any number later. Here callbacks have seen the beginning
    of a step before its batch is made, so that what depends on them follows
    from the number of the step alone. With JAX on an accelerator, Keras still
    reads one batch ahead.

    Args:
        make: function without arguments that gives an iterator of batches,
            the same whenever it is called. It is called more than once.

    Returns:
        What `fit` takes as its `x`, with `steps_per_epoch`.
    """
    if keras.backend.backend() != "tensorflow":
        return _OnDemand(make)
    return _dataset(make, lambda name, shape: [None, *shape[1:]])


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


class _OnDemand(keras.utils.PyDataset):
    def __init__(self, make):
        super().__init__()
        self._make = make
        self._batches = None

    @property
    def num_batches(self):
        # Without end.
        return None

    def __getitem__(self, index):
        # Keras counts up, and begins again after it has built a model.
        if not index:
            self._batches = iter(self._make())
        return (next(self._batches),)
