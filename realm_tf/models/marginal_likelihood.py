"""The marginal likelihood as a layer, for Functional models."""

import keras

from realm_tf import losses
from realm_tf import metrics


@keras.saving.register_keras_serializable(package="realm_tf")
class MarginalLikelihood(keras.layers.Layer):
    """log p(y | x) over candidate blocks; see `losses`.

    It has no weights and computes in float32 under any dtype policy. Call it
    with

    - `log_probs`: float tensor `(batch_size, num_candidates, num_masks)`,
      log p(y_m | z, x), candidate 0 the null block;
    - `query_embeddings`: float tensor `(batch_size, embedding_dim)`;
    - `block_embeddings`: float tensor `(batch_size, num_candidates,
      embedding_dim)`;
    - `mask_weights`: tensor `(batch_size, num_masks)`, above 0 where a
      wordpiece is masked;
    - `candidate_mask`: bool tensor `(batch_size, num_candidates)`.

    It gives a dict of float32 tensors: `retrieval_log_probs`, `(batch_size,
    num_candidates)`; `marginal_log_likelihood`, `(batch_size, num_masks)`, or
    `(batch_size,)` in the span form; `retrieval_utility`, `(batch_size,
    num_masks)`. `losses.mean_over_masked` makes the loss of the second, in nats
    per masked wordpiece.

    Args:
        marginalization: str. `"token"` (the original) or `"span"` (the
            paper). Defaults to `"token"`.

    Raises:
        ValueError: when it is called, if `marginalization` is neither of the
            two.

    Example: a model of your own, trained end to end.

    >>> import keras
    >>> import numpy as np
    >>> import realm_tf as realm
    >>> from keras import ops
    >>> from realm_tf import losses
    >>> def make_bert():
    ...     return realm.BertEncoder(50, 1, 2, 8, 16)
    >>> class Realm(keras.Model):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.embedder = realm.Embedder(make_bert())
    ...         self.encoder = realm.KnowledgeAugmentedEncoder(make_bert())
    ...         self.join_bert = realm.JoinBert(sep_id=3)
    ...         self.likelihood = realm.MarginalLikelihood()
    ...
    ...     def call(self, x):
    ...         queries = x["query_ids"], x["query_lengths"]
    ...         query = realm.pack_text(*queries, cls_id=2, sep_id=3)
    ...         shape = ops.shape(x["block_ids"])
    ...         bodies = ops.reshape(x["block_ids"], (-1, shape[2]))
    ...         lengths = ops.reshape(x["block_lengths"], (-1,))
    ...         blocks = realm.pack_text(bodies, lengths, cls_id=2, sep_id=3)
    ...         logits = self.encoder(
    ...             self.join_bert(
    ...                 query["token_ids"],
    ...                 query["padding_mask"],
    ...                 x["block_ids"],
    ...                 x["block_lengths"],
    ...                 x["mask_positions"],
    ...             )
    ...         )
    ...         mask_ids = ops.repeat(x["mask_ids"], shape[1], axis=0)
    ...         log_probs = losses.masked_lm_log_probs(logits, mask_ids)
    ...         return self.likelihood(
    ...             ops.reshape(log_probs, (*shape[:2], -1)),
    ...             self.embedder(query),
    ...             ops.reshape(self.embedder(blocks), (*shape[:2], -1)),
    ...             ops.ones_like(x["mask_ids"]),
    ...             ops.ones_like(x["block_lengths"], "bool"),
    ...         )
    ...
    ...     def compute_loss(self, x, y, y_pred, *args, **kwargs):
    ...         return -losses.mean_over_masked(
    ...             y_pred["marginal_log_likelihood"],
    ...             ops.ones_like(x["mask_ids"]),
    ...         )
    >>> model = Realm()
    >>> model.compile("adam")
    >>> history = model.fit(
    ...     {
    ...         # [MASK] and a word.
    ...         "query_ids": np.array([[4, 11]]),
    ...         "query_lengths": np.array([2]),
    ...         "mask_positions": np.array([[1]]),
    ...         "mask_ids": np.array([[21]]),
    ...         # The null block, and one that holds the word.
    ...         "block_ids": np.array([[[0, 0], [21, 11]]]),
    ...         "block_lengths": np.array([[0, 2]]),
    ...     },
    ...     verbose=0,
    ... )
    >>> history.history["loss"][0] > 0
    True

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.1.
    """

    def __init__(self, marginalization="token", **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.marginalization = marginalization
        self.built = True

    def call(
        self,
        log_probs,
        query_embeddings,
        block_embeddings,
        mask_weights,
        candidate_mask,
    ):
        retrieval_log_probs = losses.retrieval_log_probs(
            query_embeddings, block_embeddings, candidate_mask
        )
        marginal = losses.marginal_log_likelihood(
            log_probs,
            retrieval_log_probs,
            mask_weights,
            candidate_mask,
            marginalization=self.marginalization,
        )
        return {
            "retrieval_log_probs": retrieval_log_probs,
            "marginal_log_likelihood": marginal,
            "retrieval_utility": metrics.retrieval_utility(
                log_probs, retrieval_log_probs, mask_weights, candidate_mask
            ),
        }

    def get_config(self):
        return {
            **super().get_config(),
            "marginalization": self.marginalization,
        }
