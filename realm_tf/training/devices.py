"""The devices of a training run."""

import contextlib

from realm_tf.errors import InputError


def use_all(batch_size: int, devices=None):
    """Spreads every batch over all devices, of all processes (JAX).

    A model made inside holds its weights on each of them, and each works on
    its part of the batch. Tables of a corpus (`models.row_shards`) made inside
    are not copied: each device holds a part. With the TensorFlow backend, or
    on one device, nothing changes.

    Args:
        batch_size: int. Rows of a batch.
        devices: list of `jax.Device`. Defaults to `None`: those that are there.

    Raises:
        InputError: if the devices cannot share a batch evenly.
    """
    import keras

    if keras.backend.backend() != "jax":
        return contextlib.nullcontext()
    devices = devices or keras.distribution.list_devices()
    if len(devices) < 2:
        return contextlib.nullcontext()
    if batch_size % len(devices):
        raise InputError(
            f"{len(devices)} devices share each batch: batch_size must be a "
            f"multiple of that. Received: batch_size={batch_size}. Set another "
            "one, or show this process fewer devices (CUDA_VISIBLE_DEVICES=0, "
            "say)."
        )
    return keras.distribution.DataParallel(
        # Each process makes its own part of every batch.
        devices=devices,
        auto_shard_dataset=False,
    ).scope()
