"""Exact search: every inner product, then the largest."""

import keras
import numpy as np
from keras import ops

from realm_tf.retrieval.index import Index


class BruteForce(keras.layers.Layer, Index):
    """Exact index as a Keras layer; its embeddings are a weight.

    Runs on every backend and device. The weight is not trained: a refresh
    assigns it.

    Args:
        embeddings: float array `(num_blocks, embedding_dim)`. Row = block id.

    Example:

    >>> index = BruteForce(np.eye(3, dtype="float32"))
    >>> scores, block_ids = index.search(np.array([[0.0, 2.0, 1.0]]), 2)
    >>> np.asarray(block_ids).tolist()
    [[1, 2]]
    """

    def __init__(self, embeddings, **kwargs):
        super().__init__(trainable=False, **kwargs)
        embeddings = np.asarray(embeddings, dtype="float32")
        self.embeddings = self.add_weight(
            shape=embeddings.shape,
            dtype="float32",
            initializer="zeros",
            trainable=False,
            name="embeddings",
        )
        self.embeddings.assign(embeddings)
        self.built = True

    @property
    def num_blocks(self):
        return self.embeddings.shape[0]

    @property
    def embedding_dim(self):
        return self.embeddings.shape[1]

    @property
    def is_exact(self):
        return True

    def search(self, queries, num_candidates):
        self._check_num_candidates(num_candidates)
        scores = ops.matmul(
            ops.cast(queries, "float32"), ops.transpose(self.embeddings)
        )
        scores, block_ids = ops.top_k(scores, num_candidates)
        return scores, ops.cast(block_ids, "int32")

    def call(self, queries, num_candidates):
        return self.search(queries, num_candidates)

    def swap(self, embeddings):
        self._check_swap(embeddings)
        self.embeddings.assign(np.asarray(embeddings, dtype="float32"))
