"""Random bits that a GPU or a TPU draws in one operation (JAX)."""

from realm_tf.models import row_shards


def draw(seed, x):
    """A random byte for each number of a tensor.

    XLA's `RngBitGenerator`. Keras' own generator (Threefry) is a hundred
    operations wherever it is called: more code to compile, and slower. Under a
    `keras.distribution` each device draws for the rows that are its own: left
    to itself, the compiler would draw those of all devices on each.

    Args:
        seed: uint32 tensor `(2,)`, of `keras.random.SeedGenerator`.
        x: tensor `(num_rows, ...)`.

    Returns:
        uint8 tensor of the same shape. The same seed gives the same bytes on
        devices of one kind and number only.
    """
    import jax
    from jax.sharding import PartitionSpec

    placed = row_shards.sharding()
    num_rows, *shape = x.shape
    if placed is None or num_rows % row_shards.num_devices(placed):
        return _draw(seed, 0, x.shape)
    axis = placed.spec[0]
    shape = num_rows // row_shards.num_devices(placed), *shape
    return jax.shard_map(
        lambda seed: _draw(seed, jax.lax.axis_index(axis), shape),
        mesh=placed.mesh,
        in_specs=PartitionSpec(),
        out_specs=PartitionSpec(axis),
    )(seed)


def _draw(seed, number, shape):
    import jax

    key = jax.random.wrap_key_data(seed, impl="threefry2x32")
    half = jax.random.key_data(jax.random.fold_in(key, number))
    key = jax.numpy.concatenate([half, half])
    key = jax.random.wrap_key_data(key, impl="rbg")
    return jax.random.bits(key, shape, "uint8")
