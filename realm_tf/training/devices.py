"""The devices of a training run."""

import collections
import contextlib
import sys

from realm_tf.errors import InputError
from realm_tf.training import hosts


def use_all(batch_size: int, devices=None):
    """Spreads every batch over the devices, of all processes (JAX).

    A model made inside holds its weights on each of them, and each works on
    its part of the batch. Tables of a corpus (`models.row_shards`) made inside
    are not copied: each device holds a part. With the TensorFlow backend, or
    on one device, nothing changes. Says on stderr if some are not used.

    Args:
        batch_size: int. Rows of a batch.
        devices: list of `jax.Device`. Defaults to `None`: those that are there.

    Raises:
        InputError: as `sharing`.
    """
    import keras

    if keras.backend.backend() != "jax":
        return contextlib.nullcontext()
    import jax

    devices = devices or jax.devices()
    used = sharing(batch_size, devices)
    if len(used) < len(devices) and hosts.is_first():
        print(
            f"each batch is on {len(used)} of {len(devices)} devices, the most "
            f"that divide batch_size={batch_size} evenly",
            file=sys.stderr,
            flush=True,
        )
    if len(used) < 2:
        return contextlib.nullcontext()
    return keras.distribution.DataParallel(
        # Each process makes its own part of every batch.
        devices=used,
        auto_shard_dataset=False,
    ).scope()


def sharing(batch_size: int, devices: list) -> list:
    """The most devices that divide a batch evenly, as many of each process.

    Args:
        batch_size: int. Rows of a batch.
        devices: list of `jax.Device`.

    Raises:
        InputError: if the processes themselves cannot share a batch evenly.
    """
    of_process = collections.defaultdict(list)
    for device in devices:
        of_process[device.process_index].append(device)
    rows, left = divmod(batch_size, len(of_process))
    if left:
        raise InputError(
            f"{len(of_process)} processes share each batch: batch_size must be "
            f"a multiple of that. Received: batch_size={batch_size}."
        )
    most = min(map(len, of_process.values()))
    number = next(n for n in range(most, 0, -1) if rows % n == 0)
    return [each for own in of_process.values() for each in own[:number]]
