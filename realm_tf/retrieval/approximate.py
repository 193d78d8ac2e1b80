"""Approximate search as accelerators like it: maxima of bins of scores."""

import keras
from keras import ops

from realm_tf.retrieval.brute_force import BruteForce


class ApproximateMaxK(BruteForce):
    """Index whose largest scores are chosen by `approx_max_k`, in the graph.

    Every inner product is computed, at the device's usual precision; then, on
    TPUs, rows are spread over so many bins that at least `recall_target` of
    the best candidates, as an average over queries, are the largest of their
    bin. What sorting would take is saved. CPUs and GPUs have no such kernel:
    there JAX and TensorFlow sort, and what is found is exact, in time and
    memory of no advantage over `BruteForce`.

    Embeddings lie on devices, are searched in parts and refreshed as those of
    `BruteForce`. The recall is that of the whole search: all best candidates
    of a part are kept, and its bins are counted for all rows.

    Args:
        embeddings: float array `(num_blocks, embedding_dim)`. Row = block id.
        recall_target: float. Above 0 and at most 1. Defaults to `0.95`, that
            of the function.
        rows_per_block: int. See `BruteForce`. Defaults to `None`.

    Raises:
        ValueError: if `recall_target` or `rows_per_block` is out of its
            range.

    References:
        [Chern et al., 2022](https://arxiv.org/abs/2206.14286).
    """

    def __init__(
        self, embeddings, *, recall_target=0.95, rows_per_block=None, **kwargs
    ):
        super().__init__(embeddings, rows_per_block=rows_per_block, **kwargs)
        if not 0.0 < recall_target <= 1.0:
            raise ValueError(
                "`recall_target` must be above 0 and at most 1. "
                f"Received: recall_target={recall_target}"
            )
        self._recall_target = recall_target

    @property
    def is_exact(self):
        return False

    def _relevance_scores(self, queries, rows):
        return ops.einsum("bd,nd->bn", queries, rows)

    def _top_k(self, scores, num_candidates):
        options = {
            "recall_target": self._recall_target,
            # Not the rows of this part alone.
            "reduction_input_size_override": self.num_blocks,
        }
        if keras.backend.backend() == "jax":
            import jax

            return jax.lax.approx_max_k(scores, num_candidates, **options)
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            return tf.math.approx_max_k(scores, num_candidates, **options)
        return ops.top_k(scores, num_candidates)
