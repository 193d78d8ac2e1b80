"""Tables whose rows are spread over the devices in use (JAX).

Under a `keras.distribution` every device holds all weights, which for what is
as large as a corpus is too much. A table here is cut by rows: each device has
its own part, and each process brings to its devices the rows that are theirs.
Where the devices do not divide the rows, the table ends with rows of zeros.
"""

import keras
import numpy as np

from realm_tf.models.precision import is_only_compiled


def sharding():
    """Sharding of rows over the devices in use; `None` without a distribution."""
    distribution = keras.distribution.distribution()
    if keras.backend.backend() != "jax" or distribution is None:
        return None
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec

    return NamedSharding(
        distribution.device_mesh.backend_mesh,
        PartitionSpec(distribution.batch_dim_name),
    )


def num_devices(placed) -> int:
    """Over how many devices rows are spread.

    Args:
        placed: what `sharding` gave.
    """
    return placed.mesh.shape[placed.spec[0]]


def place(rows: np.ndarray, placed):
    """A table on the devices.

    Args:
        rows: array `(num_rows, ...)`. It may be mapped from a file: what is
            another process's is not read.
        placed: what `sharding` gave.

    Returns:
        `jax.Array` of at least as many rows.
    """
    import jax

    num_rows = len(rows)
    total = num_rows + -num_rows % num_devices(placed)
    if is_only_compiled():
        return np.broadcast_to(rows[:1], (total, *rows.shape[1:]))

    def part(index):
        start, stop, _ = index[0].indices(total)
        found = np.asarray(rows[start:stop])
        missing = stop - start - len(found)
        if missing:
            found = np.pad(found, [(0, missing), *[(0, 0)] * (found.ndim - 1)])
        return found

    return jax.make_array_from_callback((total, *rows.shape[1:]), placed, part)


def take(table, row_ids, placed):
    """Rows of a table, wherever they are.

    Each device asks all others for the rows of its own part of a batch.

    Args:
        table: tensor `(num_rows, ...)`, of integers, as `place` laid it out.
        row_ids: int32 tensor `(batch_size, num)`.
        placed: what `sharding` gave.

    Returns:
        int32 tensor `(batch_size, num, ...)`.
    """
    import jax
    from jax import numpy as jnp
    from jax.sharding import PartitionSpec

    axis = placed.spec[0]
    batch_size = row_ids.shape[0]
    missing = -batch_size % num_devices(placed)

    def take_own(table, row_ids):
        asked = jax.lax.all_gather(row_ids, axis, tiled=True)
        places = asked - jax.lax.axis_index(axis) * len(table)
        is_here = (places >= 0) & (places < len(table))
        rows = table[jnp.clip(places, 0, len(table) - 1)].astype("int32")
        rows *= is_here.reshape(is_here.shape + (1,) * (rows.ndim - 2))
        # Of all devices one has the row, the others add zeros.
        return jax.lax.psum_scatter(rows, axis, tiled=True)

    found = jax.shard_map(
        take_own,
        mesh=placed.mesh,
        in_specs=(PartitionSpec(axis), PartitionSpec(axis)),
        out_specs=PartitionSpec(axis),
    )(table, jnp.pad(row_ids, [(0, missing), (0, 0)]))
    return found[:batch_size]
