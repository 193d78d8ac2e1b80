"""How batches reach Keras's `fit`: ahead of the steps, or with them."""

import queue
import threading
from collections.abc import Callable
from collections.abc import Iterator

import keras


class ReadAhead:
    """An iterator whose items a thread makes ahead, in their order.

    What the thread raises, the iterator raises, and ends. The thread ends with
    the items, with `close`, or when the iterator is forgotten.

    Args:
        iterator: iterator of anything.
        size: int. Items that are ready at most. At least 1.
    """

    def __init__(self, iterator: Iterator, size: int):
        self._made = queue.Queue(size)
        self._stopped = threading.Event()
        # It knows nothing of this object, which may so be forgotten.
        self._thread = threading.Thread(
            target=_produce,
            args=(iterator, self._made, self._stopped),
            name="read-ahead",
            daemon=True,
        )
        self._thread.start()

    def __iter__(self):
        return self

    def __next__(self):
        if self._stopped.is_set():
            raise StopIteration
        item, error = self._made.get()
        if error is not None:
            self.close()
            raise error
        return item

    def close(self):
        """Ends the thread, once it has made the item it is at."""
        self._stopped.set()
        # It puts one item more at most.
        _drain(self._made)
        if self._thread is not threading.current_thread():
            self._thread.join()
        _drain(self._made)
        # For one who waits.
        self._made.put((None, StopIteration()))

    def __del__(self):
        self.close()


def ahead(make: Callable[[], Iterator[dict]]):
    """Batches of one shape for `fit`, which Keras may read ahead.

    Args:
        make: function without arguments that gives an iterator of batches.

    Returns:
        What `fit` takes as its `x`, with `steps_per_epoch`.
    """
    # Keras wants tuples of a generator.
    return ((batch,) for batch in make())


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
    return _dataset(
        make,
        lambda name, shape: [
            *(None for _ in shape[1:]),
            shape[-1] if name in of_one_width else None,
        ],
    )


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
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    dataset = _dataset(make, lambda name, shape: [None, *shape[1:]])
    return dataset.with_options(options)


def _dataset(make, known_shape):
    """`tf.data.Dataset` of batches: what of their shapes is always the same."""
    import tensorflow as tf

    signature = {
        name: tf.TensorSpec(known_shape(name, rows.shape), rows.dtype)
        for name, rows in next(iter(make())).items()
    }
    return tf.data.Dataset.from_generator(
        lambda: ((batch,) for batch in make()), output_signature=(signature,)
    )


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


def _produce(iterator, made, stopped):
    try:
        for item in iterator:
            made.put((item, None))
            if stopped.is_set():
                return
    except Exception as error:
        made.put((None, error))
    else:
        made.put((None, StopIteration()))


def _drain(items):
    try:
        while True:
            items.get_nowait()
    except queue.Empty:
        return
