"""REALM's pre-training model: retrieve, then predict masked words."""

import itertools

import keras
from keras import ops

from realm_tf import losses
from realm_tf import metrics
from realm_tf.models import cpu_operations
from realm_tf.models import packing

# Blocks retrieved beyond those that are read: they replace the blocks that may
# not be read (our choice).
NUM_SPARE = 8
# In training one query in so many is predicted, for `mlm_accuracy` alone: the
# softmax over the vocabulary would take as long as the loss (our choice).
_PREDICTION_STRIDE = 8
# The block fields that the towers and the reader need (`packing.join_block`).
_CONTENT = ("title_ids", "title_lengths", "token_ids", "lengths")


class RealmModel(keras.Model):
    """Predicts masked wordpieces from retrieved blocks, and learns to.

        p(y|x) = sum_{z in Z} p(y|z,x) p(z|x)
        p(z|x) = softmax_{z in Z} f(x,z),  f(x,z) = Embed(x) . Embed(z)

    Z are the null block (empty title and body, always first) and the best
    `num_retrieved` blocks of the index. The next best blocks replace the block
    that the sentence is from, blocks that hold most of the sentence, and copies
    of better blocks. The index only
    chooses, by queries embedded without dropout; queries and candidates are
    embedded again with the current weights, so a gradient reaches both towers.

    Inputs are a dict of int tensors, as `data.masked_queries` makes it:
    `token_ids` and `padding_mask` `(batch_size, query_length)`, the masked
    query `[CLS] x [SEP]`; `mask_positions`, `mask_ids` and `mask_weights`
    `(batch_size, max_masked)`; `sentence_ids` `(batch_size,
    sentence_length)`, unmasked, padded with -1; `block_id` `(batch_size,)`,
    the block that the sentence is from, or -1.

    A subclass that overrides `retrieve` takes the blocks of another retriever.

    Args:
        query_embedder: `Embedder`.
        block_embedder: `Embedder`. The same instance, or another.
        knowledge_augmented_encoder: `KnowledgeAugmentedEncoder`.
        index: `retrieval.index.Index` over the block embeddings.
        block_table: `BlockTable` of the same blocks, with titles.
        cls_id: int. Id of [CLS].
        sep_id: int. Id of [SEP].
        block_segment_ids: tuple of int. See `LoadedModel`. Defaults to
            `(0, 1)`.
        score_scale: float. See `OpenQa`. Defaults to `1.0`.
        num_retrieved: int. Candidates besides the null block. Defaults to
            `7`.
        max_block_length: int. Longest `[CLS] title [SEP] body [SEP]` that is
            embedded. Defaults to `288`.
        max_joint_length: int. Longest `[CLS] x [SEP] body [SEP]` that is
            encoded; bodies are cut. Defaults to `384`.
        marginalization: str. `"token"`: the likelihood is summed over blocks
            for each masked wordpiece, as the original does; `"span"`: for
            all of a query's together, as the paper writes it. Defaults to
            `"token"`.

    Raises:
        ValueError: if `marginalization` is neither of the two, or `index` and
            `block_table` differ in size.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), sections 3 and
        4. Original code: google-research/language, language/realm.
    """

    def __init__(
        self,
        query_embedder,
        block_embedder,
        knowledge_augmented_encoder,
        index,
        block_table,
        *,
        cls_id,
        sep_id,
        block_segment_ids=(0, 1),
        score_scale=1.0,
        num_retrieved=7,
        max_block_length=288,
        max_joint_length=384,
        marginalization="token",
        **kwargs,
    ):
        super().__init__(**kwargs)
        block_table.check_index(index)
        self.query_embedder = query_embedder
        self.block_embedder = block_embedder
        self.knowledge_augmented_encoder = knowledge_augmented_encoder
        self.index = index
        self.block_table = block_table
        self.cls_id = cls_id
        self.sep_id = sep_id
        self.block_segment_ids = tuple(block_segment_ids)
        self.score_scale = score_scale
        self.num_retrieved = min(num_retrieved, index.num_blocks)
        self.num_searched = min(num_retrieved + NUM_SPARE, index.num_blocks)
        self.max_block_length = max_block_length
        self.join_bert = packing.JoinBert(sep_id, max_joint_length)
        self.marginal_likelihood = MarginalLikelihood(marginalization)
        self._trackers = {
            name: keras.metrics.Mean(name=name)
            for name in (
                "mlm_accuracy",
                # In nats for each masked wordpiece.
                "retrieval_utility",
                "null_probability",
                # Of p(z|x), in nats.
                "entropy",
                # Whether a candidate is of the sentence's own article, of the
                # sentences that come from one.
                "article_recall",
                # Whether a candidate holds the masked wordpieces of a span.
                "answer_recall",
            )
        }

    def call(self, inputs, training=False):
        # JAX's `fit` hands NumPy arrays in, which towers refuse beside tensors.
        inputs = {k: ops.convert_to_tensor(v) for k, v in inputs.items()}
        query = packing.query_inputs(inputs)
        drops_out = training and self.query_embedder.drops_out
        # (b, d). The search has no dropout, as the index has none.
        queries = self._embed_queries(
            query, training=training and not drops_out
        )
        found, allowed = self._find_candidates(inputs, queries)
        # (b, 1 + k, d)
        blocks, again = self._embed_candidates(
            found, query if drops_out else None, training=training
        )
        if drops_out:
            queries = again
        candidate_mask = ops.concatenate(
            [ops.ones_like(allowed[:, :1]), allowed], axis=1
        )
        # (b, 1 + k, m, v)
        logits = self._read(
            query, inputs["mask_positions"], found, training=training
        )
        mask_ids = ops.repeat(
            inputs["mask_ids"][:, None], logits.shape[1], axis=1
        )
        log_probs = losses.masked_lm_log_probs(logits, mask_ids)
        marginal = self.marginal_likelihood(
            log_probs,
            queries,
            blocks,
            inputs["mask_weights"],
            candidate_mask,
        )
        stride = _PREDICTION_STRIDE if training else 1
        outputs = {
            **marginal,
            "log_probs": log_probs,
            "candidate_ids": found["block_ids"],
            "candidate_mask": candidate_mask,
            "holds_answer": shares_text(
                ops.where(inputs["mask_weights"] > 0, inputs["mask_ids"], -1),
                found["token_ids"],
            ),
            "predicted_ids": metrics.marginal_predictions(
                logits[::stride],
                marginal["retrieval_log_probs"][::stride],
                candidate_mask[::stride],
            ),
        }
        if "of_article" in found:
            outputs["of_article"] = found["of_article"]
        return outputs

    def _embed_queries(self, query, *, training):
        return self.score_scale * self.query_embedder(query, training=training)

    def _find_candidates(self, inputs, queries):
        """The blocks that queries may be answered from.

        Args:
            inputs: dict of int tensors, as the model's.
            queries: float tensor `(batch_size, embedding_dim)`, scaled.

        Returns:
            `(candidates, mask)`: dict of int tensors, `block_ids` and
            `lengths` `(batch_size, num_retrieved)`, `token_ids` `(batch_size,
            num_retrieved, block_length)`, and of the titles `title_ids` and
            `title_lengths`; bool tensor `(batch_size, num_retrieved)`,
            `False` where too few blocks may be read.
        """
        block_ids = self.retrieve(inputs, ops.stop_gradient(queries))
        found = {
            "block_ids": block_ids,
            **self.block_table.contents(block_ids, own_ids=inputs["block_id"]),
        }
        allowed = may_be_read(found, inputs["block_id"], inputs["sentence_ids"])
        places, allowed = choose(
            allowed, min(self.num_retrieved, block_ids.shape[1])
        )
        return take(found, places), allowed

    def retrieve(self, inputs, queries):
        """The blocks from which candidates are chosen.

        Args:
            inputs: dict of int tensors, as the model's.
            queries: float tensor `(batch_size, embedding_dim)`, scaled.

        Returns:
            int32 tensor `(batch_size, num_searched)` of block ids, best first;
            -1 is no block.
        """
        _, block_ids = self.index.search(queries, self.num_searched)
        return block_ids

    def _embed_candidates(self, found, query, *, training):
        """Embeddings of the null block, of candidates and of queries.

        Args:
            found: dict. As `_find_candidates` gives it.
            query: dict. Queries to embed with dropout, or `None`.
            training: bool.

        Returns:
            float tensor `(batch_size, 1 + num_retrieved, embedding_dim)`, and
            scaled embeddings of the queries, if there are any.
        """
        # The null block has no wordpieces and is the same for every query.
        null = {
            name: ops.zeros_like(values[:1, :1])
            for name, values in found.items()
        }
        groups = [self._join_blocks(null), self._join_blocks(found)]
        is_shared = self.query_embedder is self.block_embedder
        if query is not None and is_shared:
            groups.append(query)
        null, blocks, *queries = self._embed(groups, training=training)
        if queries:
            queries = self.score_scale * queries[0]
        elif query is not None:
            queries = self._embed_queries(query, training=True)
        batch_size, num = (
            ops.shape(found["lengths"])[0],
            found["lengths"].shape[1],
        )
        dim = blocks.shape[-1]
        blocks = ops.concatenate(
            [
                ops.broadcast_to(null[:, None], (batch_size, 1, dim)),
                ops.reshape(blocks, (-1, num, dim)),
            ],
            axis=1,
        )
        return blocks, queries

    def _embed(self, groups, *, training):
        """Embeddings of each group of rows, of one kind and length.

        Where padding costs nothing, all are embedded in one call: the
        gradients of a tower are then not added up from several.
        """
        tower = self.block_embedder
        if not (training and cpu_operations.are_possible()):
            return [tower(rows, training=training) for rows in groups]
        rows = tower(packing.stack(groups), training=True)
        sizes = [ops.shape(group["token_ids"])[0] for group in groups]
        limits = itertools.accumulate(sizes)
        return [
            rows[limit - size : limit]
            for size, limit in zip(sizes, limits, strict=True)
        ]

    def _join_blocks(self, found):
        """Rows `(batch_size * num, block_length)` for the block tower."""
        contents = [found[name] for name in _CONTENT]
        return packing.join_block(
            *(ops.reshape(x, (-1, *x.shape[2:])) for x in contents),
            cls_id=self.cls_id,
            sep_id=self.sep_id,
            max_length=self.max_block_length,
            segment_ids=self.block_segment_ids,
        )

    def _read(self, query, mask_positions, found, *, training):
        """Predicts masked wordpieces from the null block and candidates.

        Args:
            query: dict of int tensors `token_ids` and `padding_mask`,
                `(batch_size, query_length)`.
            mask_positions: int tensor `(batch_size, max_masked)`.
            found: dict. As `_find_candidates` gives it.
            training: bool.

        Returns:
            float32 tensor `(batch_size, 1 + num_retrieved, max_masked,
            vocabulary_size)`, logits.
        """
        num_candidates = 1 + found["lengths"].shape[1]
        # The null block has no body.
        joined = self.join_bert(
            query["token_ids"],
            query["padding_mask"],
            ops.pad(found["token_ids"], [[0, 0], [1, 0], [0, 0]]),
            ops.pad(found["lengths"], [[0, 0], [1, 0]]),
            mask_positions,
        )
        logits = self.knowledge_augmented_encoder(
            packing.trim(joined), training=training
        )
        return ops.reshape(logits, (-1, num_candidates, *logits.shape[1:]))

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Minus the log-likelihood, in nats per masked wordpiece."""
        self._update_trackers(x, y_pred, _PREDICTION_STRIDE if training else 1)
        return -losses.mean_over_masked(
            y_pred["marginal_log_likelihood"], x["mask_weights"]
        )

    def _update_trackers(self, x, outputs, stride):
        priors = outputs["retrieval_log_probs"]
        weights = ops.cast(x["mask_weights"], "float32")
        # Rows that only fill a batch up mask nothing.
        is_query = ops.any(weights > 0, axis=1)
        is_candidate = outputs["candidate_mask"][:, 1:]

        def any_candidate(hits):
            return ops.any(ops.logical_and(hits, is_candidate), axis=1)

        self._trackers["mlm_accuracy"].update_state(
            ops.equal(
                outputs["predicted_ids"],
                ops.cast(x["mask_ids"], "int32")[::stride],
            ),
            sample_weight=weights[::stride],
        )
        of_tokens = {"retrieval_utility": outputs["retrieval_utility"]}
        of_queries = {
            "null_probability": ops.exp(priors[:, 0]),
            "entropy": metrics.retrieval_entropy(
                priors, outputs["candidate_mask"]
            ),
            "answer_recall": any_candidate(outputs["holds_answer"]),
        }
        for values, weight in ((of_tokens, weights), (of_queries, is_query)):
            for name, value in values.items():
                self._trackers[name].update_state(value, sample_weight=weight)
        if "of_article" in outputs:
            self._trackers["article_recall"].update_state(
                any_candidate(outputs["of_article"] > 0),
                sample_weight=ops.convert_to_tensor(x["block_id"]) >= 0,
            )


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


# Guu et al., 2020, section 3.4, rule out the block that the sentence is from.
# Blocks that were cut differently are recognised by their text: half of the
# sentence's 8-grams (our choice), or, of a shorter sentence, the whole of it.
NGRAM_LENGTH = 8
MIN_SHARE = 0.5


def may_be_read(found, block_id, sentence_ids):
    """Marks blocks that are no trivial candidates of their sentences.

    Ruled out are the block that the sentence is from, one that holds the
    sentence or most of it, and one that says the same as one before it.

    Args:
        found: dict of int tensors `block_ids` and `lengths` `(batch_size,
            num_candidates)` and `token_ids` `(batch_size, num_candidates,
            block_length)`. Best first; a block id of -1 is no block.
        block_id: int tensor `(batch_size,)`. Where each sentence is from.
        sentence_ids: int tensor. As of `shares_text`.

    Returns:
        bool tensor `(batch_size, num_candidates)`.
    """
    block_ids, token_ids = found["block_ids"], found["token_ids"]
    allowed = ops.logical_and(
        block_ids >= 0, ops.not_equal(block_ids, block_id[:, None])
    )
    for excluded in (
        shares_text(sentence_ids, token_ids),
        repeats(token_ids, found["lengths"]),
    ):
        allowed = ops.logical_and(allowed, ops.logical_not(excluded))
    return allowed


def shares_text(sentence_ids, token_ids):
    """Marks blocks that hold a sentence, or most of it: trivial retrieval.

    True where at least half of the sentence's 8-grams occur in the block;
    for a sentence of fewer wordpieces, where it occurs there as a whole.

    Args:
        sentence_ids: int tensor `(batch_size, sentence_length)`. Unmasked
            wordpieces, padded with -1.
        token_ids: int tensor `(batch_size, num_candidates, block_length)`.
            Padded with a number that is no wordpiece of a sentence, such as
            0.

    Returns:
        bool tensor `(batch_size, num_candidates)`.
    """
    sentence_length = ops.shape(sentence_ids)[1]
    block_length = ops.shape(token_ids)[2]
    sentences = ops.pad(
        sentence_ids, [[0, 0], [0, NGRAM_LENGTH]], constant_values=-1
    )
    blocks = ops.pad(
        token_ids, [[0, 0], [0, 0], [0, NGRAM_LENGTH]], constant_values=-2
    )
    matches = True
    for offset in range(NGRAM_LENGTH):
        # (b, 1, 1, s) and (b, r, l, 1)
        piece = sentences[:, None, None, offset : offset + sentence_length]
        here = blocks[:, :, offset : offset + block_length, None]
        same = ops.logical_or(piece < 0, ops.equal(piece, here))
        matches = ops.logical_and(matches, same)
    # (b, r, s)
    found = ops.any(matches, axis=2)
    lengths = ops.sum(
        ops.cast(sentence_ids >= 0, "int32"), axis=1, keepdims=True
    )
    # (b, s): where an n-gram begins; a short sentence has one.
    begins = ops.arange(sentence_length, dtype="int32")[None] < ops.maximum(
        lengths - NGRAM_LENGTH + 1, ops.minimum(lengths, 1)
    )
    num_found = ops.sum(
        ops.cast(ops.logical_and(found, begins[:, None]), "float32"), axis=2
    )
    num_begins = ops.sum(ops.cast(begins, "float32"), axis=1, keepdims=True)
    return ops.logical_and(num_found >= MIN_SHARE * num_begins, num_begins > 0)


def repeats(token_ids, lengths):
    """Marks copies of earlier blocks.

    Args:
        token_ids: int tensor `(batch_size, num_candidates, block_length)`.
        lengths: int tensor `(batch_size, num_candidates)`.

    Returns:
        bool tensor `(batch_size, num_candidates)`.
    """
    places = ops.arange(token_ids.shape[1])
    position = ops.arange(ops.shape(token_ids)[2], dtype="int32")
    bodies = ops.where(position < lengths[..., None], token_ids, -1)
    # (b, r, r)
    same = ops.all(ops.equal(bodies[:, :, None], bodies[:, None]), axis=3)
    is_earlier = places[None, :] < places[:, None]
    return ops.any(ops.logical_and(same, is_earlier), axis=2)


def choose(allowed, num_candidates):
    """The places of the first allowed blocks.

    Args:
        allowed: bool tensor `(batch_size, num_retrieved)`. Best first.
        num_candidates: int. How many, at most `num_retrieved`.

    Returns:
        int32 tensor `(batch_size, num_candidates)` of places, and a bool
        tensor of the same shape: `False` where too few blocks are allowed.
    """
    num_retrieved = ops.shape(allowed)[1]
    place = ops.broadcast_to(
        ops.arange(num_retrieved, dtype="int32")[None], ops.shape(allowed)
    )
    keys = ops.where(allowed, place, place + num_retrieved)
    places = ops.cast(ops.argsort(keys, axis=1)[:, :num_candidates], "int32")
    return places, ops.take_along_axis(allowed, places, axis=1)


def take(found, places):
    """Some of each question's blocks.

    Args:
        found: dict of tensors `(batch_size, num_retrieved, ...)`.
        places: int tensor `(batch_size, num_candidates)`, as of `choose`.

    Returns:
        dict of tensors `(batch_size, num_candidates, ...)`.
    """
    return {
        name: ops.take_along_axis(
            values,
            places[..., None] if len(values.shape) == 3 else places,
            axis=1,
        )
        for name, values in found.items()
    }
