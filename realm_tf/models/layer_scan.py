"""Transformer layers as a loop whose body is compiled once (JAX).

XLA compiles what it is given: twelve layers one after the other take six times
the code of two. Here the weights of layers of one shape are stacked while a
step is traced, and `jax.lax.scan` runs one body over them. The variables stay
those of separate layers, and so do files of weights.

On CPUs layers are compiled one by one: there a loop is no sooner compiled, and
its steps take a tenth longer (docs/measurements/training.md).
"""

import contextlib
import contextvars
import itertools
import math

from keras import ops

from realm_tf.models.precision import accelerator

# With fewer wordpieces, stacking the weights takes as long as their products.
_LEAST_WORDPIECES = 1024
_TOGETHER = contextvars.ContextVar("together", default=())


@contextlib.contextmanager
def together(layers, token_ids, training):
    """Lets the first of some layers, called inside, compute all of them.

    Where a step for an accelerator is traced, of enough wordpieces; otherwise
    nothing changes.

    Args:
        layers: list of `TransformerEncoder`, equal but for their weights, that
            are called one after the other.
        token_ids: int tensor `(batch_size, length)`.
        training: bool.
    """
    token = _TOGETHER.set(layers if _is_worth_it(token_ids, training) else ())
    try:
        yield
    finally:
        _TOGETHER.reset(token)


def _is_worth_it(token_ids, training):
    if not accelerator():
        return False
    import jax

    # A graph for any number of rows has symbols for sizes.
    is_traced = isinstance(token_ids, jax.core.Tracer) and all(
        isinstance(size, int) for size in token_ids.shape
    )
    return is_traced and (
        bool(training) or math.prod(token_ids.shape) >= _LEAST_WORDPIECES
    )


def run(layer, x, **arguments):
    """What a layer gives, or all layers that are called `together`.

    Frozen layers have a loop of their own, which no gradient passes.

    Args:
        layer: `TransformerEncoder`. Of several together, the first computes and
            the others give their input.
        x: float tensor `(batch_size, length, hidden_dim)`.
        **arguments: of `TransformerEncoder.compute`.
    """
    layers = _TOGETHER.get()
    if layer not in layers:
        return layer.compute(x, *_values(layer, x, arguments), **arguments)
    if layer is not layers[0]:
        return x
    import jax

    def compute(x, values):
        return layer.compute(x, *values, **arguments), None

    if arguments["training"] and not layer.recompute:
        # The compiler drops nothing of what a loop keeps for the backward pass.
        compute = jax.checkpoint(
            compute,
            prevent_cse=False,
            policy=jax.checkpoint_policies.dots_saveable,
        )
    for _, group in itertools.groupby(layers, lambda layer: layer.trainable):
        values = [_values(each, x, arguments) for each in group]
        stacked = jax.tree.map(lambda *each: ops.stack(each), *values)
        x, _ = jax.lax.scan(compute, x, stacked)
    return x


def _values(layer, x, arguments):
    return (
        layer.cast_weights(x.dtype),
        layer.draw_seeds(arguments["training"]),
    )
