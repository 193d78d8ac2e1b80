"""What a training step of RealmModel spends its time on."""

import statistics
import time
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from realm_tf import losses

PARTS = ("search", "embedding", "encoding")


def measure_duty_cycle(
    model,
    batch: dict,
    *,
    num_repeats: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The share of search, embedding and encoding in a step.

    As `measure_seconds`, divided by their sum: the shares add up to 1.
    """
    seconds = measure_seconds(
        model, batch, num_repeats=num_repeats, clock=clock
    )
    total = sum(seconds.values())
    return {name: value / total for name, value in seconds.items()}


def measure_seconds(
    model,
    batch: dict,
    *,
    num_repeats: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Times the parts of a step, each compiled by itself.

    - `search`: the index, and the rules on which blocks may be read (with
      `rerank`, also the embedding of all that were found).
    - `embedding`: queries and candidates, and its gradient.
    - `encoding`: queries joined with each candidate, the masked-LM head, and
      its gradient.

    Dropout is off, and the optimizer is not timed. Nothing of the model
    changes, but each part is compiled once; call it before `fit` or after.

    Args:
        model: `RealmModel`, compiled.
        batch: dict of arrays, as the model takes it.
        num_repeats: int. Runs of each part, after one that compiles. The
            median counts. Defaults to `5`.
        clock: function that gives the time in seconds.

    Returns:
        dict of float, by the names in `PARTS`.
    """
    inputs = {name: np.asarray(value) for name, value in batch.items()}
    query = {
        "token_ids": inputs["token_ids"],
        "segment_ids": np.zeros_like(inputs["token_ids"]),
        "padding_mask": inputs["padding_mask"],
    }

    def embed(query, found):
        queries = model.query_embedder(query, training=False)
        blocks = model.embed_candidates(found, training=False)
        # A sum of the embeddings would have a gradient of 0: they may be
        # normalised.
        return ops.sum(
            ops.cast(queries[:, None] * blocks, "float32") ** 2, axis=-1
        )

    def encode(query, positions, ids, found):
        logits = model.read(query, positions, found, training=False)
        ids = ops.repeat(ids[:, None], logits.shape[1], axis=1)
        return losses.masked_lm_log_probs(logits, ids)

    queries = np.asarray(model.query_embedder(query, training=False))
    search = _compile(model, model.find_candidates, gradient=False)
    found = keras.tree.map_structure(np.asarray, search(inputs, queries)[0])
    runs = {
        "search": (search, inputs, queries),
        "embedding": (_compile(model, embed), query, found),
        "encoding": (
            _compile(model, encode),
            query,
            inputs["mask_positions"],
            inputs["mask_ids"],
            found,
        ),
    }
    return {
        name: _median_seconds(function, arguments, num_repeats, clock)
        for name, (function, *arguments) in runs.items()
    }


def _median_seconds(function, arguments, num_repeats, clock):
    function(*arguments)
    seconds = []
    for _ in range(num_repeats):
        start = clock()
        function(*arguments)
        seconds.append(clock() - start)
    return statistics.median(seconds)


def _compile(model, function, *, gradient=True):
    """A function that returns when all is computed, the gradient too."""
    if keras.backend.backend() == "jax":
        return _compile_jax(model, function, gradient)
    return _compile_tensorflow(model, function, gradient)


def _compile_tensorflow(model, function, gradient):
    import tensorflow as tf

    def with_gradient(*arguments):
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(function(*arguments))
        found = tape.gradient(value, model.trainable_variables)
        # One number of each: no time goes into copies to the host.
        return [tf.reduce_sum(g) for g in found if g is not None]

    compiled = tf.function(
        with_gradient if gradient else function,
        jit_compile=bool(model.jit_compile),
    )
    # Waits for the values.
    return lambda *arguments: tf.nest.map_structure(
        lambda tensor: tensor.numpy(),
        compiled(*tf.nest.map_structure(tf.convert_to_tensor, arguments)),
    )


def _compile_jax(model, function, gradient):
    import jax

    trainable = model.trainable_variables
    others = model.non_trainable_variables

    def run(values, other_values, arguments):
        mapping = [
            *zip(trainable, values, strict=True),
            *zip(others, other_values, strict=True),
        ]
        with keras.StatelessScope(state_mapping=mapping):
            return function(*arguments)

    def with_gradient(values, other_values, arguments):
        return jax.grad(lambda v: run(v, other_values, arguments).sum())(values)

    compiled = jax.jit(with_gradient if gradient else run)
    return lambda *arguments: jax.block_until_ready(
        compiled(
            [v.value for v in trainable],
            [v.value for v in others],
            arguments,
        )
    )
