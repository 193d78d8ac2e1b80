"""What a training run computes on, and in which precision."""

import contextlib

import numpy as np

from realm_tf.errors import InputError


@contextlib.contextmanager
def of_recipe(recipe):
    """What a training run computes on, in which precision, and its seed.

    Models are to be made inside: their dropout draws its seeds then.

    Args:
        recipe: `Recipe` with `encoders`, `batch_size` and `seed`.

    Raises:
        InputError: see `use_all`.
    """
    import keras

    with (
        precision(mixed=recipe.encoders.mixed_precision),
        use_all(recipe.batch_size),
    ):
        keras.utils.set_random_seed(recipe.seed)
        yield


@contextlib.contextmanager
def use_all(batch_size: int):
    """Spreads every batch over all devices of this machine (JAX).

    A model made inside holds its weights on each of them, and each works on
    its part of the batch. The embeddings of a `retrieval.brute_force` index
    made inside are not copied: each device holds a part. With the TensorFlow
    backend, or on one device, nothing changes.

    Args:
        batch_size: int. Rows of a batch.

    Raises:
        InputError: if the devices cannot share a batch evenly.
    """
    import keras

    devices = []
    if keras.backend.backend() == "jax":
        devices = keras.distribution.list_devices()
    if len(devices) < 2:
        yield
        return
    if batch_size % len(devices):
        raise InputError(
            f"{len(devices)} devices share each batch: batch_size must be a "
            f"multiple of that. Received: batch_size={batch_size}"
        )
    with keras.distribution.DataParallel(devices=devices).scope():
        yield


def fill(batch: dict, batch_size: int, **fillers: int) -> dict:
    """Fills a batch up, as Keras refuses one that devices cannot share evenly.

    Args:
        batch: dict of arrays `(num_rows, ...)`, with at least one row and at
            most `batch_size`.
        batch_size: int.
        **fillers: by name, the value of the added rows that makes a model
            leave them out of losses and metrics. Without one, they repeat
            the last row.

    Returns:
        dict of arrays `(batch_size, ...)`.

    Example:

    >>> batch = {"ids": np.array([[5, 6], [7, 8]]), "weights": np.ones(2)}
    >>> filled = fill(batch, 4, weights=0)
    >>> filled["ids"].tolist(), filled["weights"].tolist()
    ([[5, 6], [7, 8], [7, 8], [7, 8]], [1.0, 1.0, 0.0, 0.0])
    """
    filled = {}
    for name, array in batch.items():
        added = np.repeat(array[-1:], batch_size - len(array), axis=0)
        if name in fillers:
            added = np.full_like(added, fillers[name])
        filled[name] = np.concatenate([array, added])
    return filled


def predict(model, inputs: dict, *, batch_size: int):
    """`model.predict` for any number of rows, on all devices in use.

    Only for models whose rows do not depend on each other: the last batch is
    filled up with repetitions of the last row, which are then left out.

    Args:
        model: `keras.Model`.
        inputs: dict of arrays `(num_rows, ...)`, at least one row.
        batch_size: int. Of all devices together.

    Returns:
        What the model gives, as NumPy arrays of `num_rows` rows.
    """
    import keras

    num_rows = len(next(iter(inputs.values())))
    inputs = fill(inputs, -(-num_rows // batch_size) * batch_size)
    outputs = model.predict(inputs, batch_size=batch_size, verbose=0)
    return keras.tree.map_structure(lambda rows: rows[:num_rows], outputs)


@contextlib.contextmanager
def precision(*, mixed: bool):
    """Makes the models made inside compute in bfloat16, if `mixed`.

    Weights and losses stay float32.
    """
    import keras

    before = keras.config.dtype_policy()
    if mixed:
        keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
