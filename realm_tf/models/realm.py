"""REALM's pre-training model: retrieve, then predict masked words."""

import itertools
import math

import keras
from keras import ops

from realm_tf import losses
from realm_tf import metrics
from realm_tf.models import candidates
from realm_tf.models import cpu_operations
from realm_tf.models import packing
from realm_tf.models.marginal_likelihood import MarginalLikelihood
from realm_tf.text import packing as text_packing

# Blocks retrieved beyond those that are read: they replace the blocks that may
# not be read (our choice).
NUM_SPARE = 8
# The block fields that the towers and the reader need (`packing.join_block`).
_CONTENT = ("title_ids", "title_lengths", "token_ids", "lengths")


class RealmModel(keras.Model):
    """Predicts masked wordpieces from retrieved blocks, and learns to.

        p(y|x) = sum_{z in Z} p(y|z,x) p(z|x)
        p(z|x) = softmax_{z in Z} f(x,z),  f(x,z) = Embed(x) . Embed(z)

    Z are the null block (empty title and body, always first) and the best
    `num_retrieved` blocks of the index. Never among them: the block that the
    sentence is from, one that holds the sentence or most of it, one that says
    the same as a better one; the next best take their places. The index only
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
        index: `retrieval.index.Index` over the block embeddings. `None` if
            only `embed_candidates` and `read` are called, as `realm probe` does.
        block_table: `BlockTable` of the same blocks, with titles, or `None`.
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
        most = math.inf
        if index is not None:
            block_table.check_index(index)
            most = index.num_blocks
        self.query_embedder = query_embedder
        self.block_embedder = block_embedder
        self.knowledge_augmented_encoder = knowledge_augmented_encoder
        self.index = index
        self.block_table = block_table
        self.cls_id = cls_id
        self.sep_id = sep_id
        self.block_segment_ids = tuple(block_segment_ids)
        self.score_scale = score_scale
        self.num_retrieved = min(num_retrieved, most)
        self.num_searched = min(num_retrieved + NUM_SPARE, most)
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
        # (b, d). The index is searched as the host and the builder embed.
        queries = self._embed_queries(
            query, training=training and not drops_out
        )
        found, allowed = self.find_candidates(inputs, queries)
        # (b, 1 + k, d)
        if not drops_out:
            blocks = self.embed_candidates(found, training=training)
        elif self.query_embedder is self.block_embedder:
            queries, blocks = self._embed_together(query, found)
        else:
            queries = self._embed_queries(query, training=True)
            blocks = self.embed_candidates(found, training=True)
        candidate_mask = ops.concatenate(
            [ops.ones_like(allowed[:, :1]), allowed], axis=1
        )
        # (b, 1 + k, m, v)
        logits = self.read(
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
        outputs = {
            **marginal,
            "log_probs": log_probs,
            "candidate_ids": found["block_ids"],
            "candidate_mask": candidate_mask,
            "holds_answer": candidates.shares_text(
                ops.where(inputs["mask_weights"] > 0, inputs["mask_ids"], -1),
                found["token_ids"],
            ),
            "predicted_ids": metrics.marginal_predictions(
                logits, marginal["retrieval_log_probs"], candidate_mask
            ),
        }
        if "of_article" in found:
            outputs["of_article"] = found["of_article"]
        return outputs

    def _embed_queries(self, query, *, training):
        return self.score_scale * self.query_embedder(query, training=training)

    def find_candidates(self, inputs, queries):
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
        allowed = candidates.may_be_read(
            found, inputs["block_id"], inputs["sentence_ids"]
        )
        places, allowed = candidates.choose(
            allowed, min(self.num_retrieved, block_ids.shape[1])
        )
        return candidates.take(found, places), allowed

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

    def embed_candidates(self, found, *, training):
        """Embeddings of the null block and of candidates, by current weights.

        Args:
            found: dict. As `find_candidates` gives it.
            training: bool.

        Returns:
            float tensor `(batch_size, 1 + num_retrieved, embedding_dim)`.
        """
        null, blocks = self._embed(
            [self._null_block(), self._join_blocks(found)], training=training
        )
        return self._with_null(null, blocks, found)

    def _embed_together(self, query, found):
        """Embeddings of queries and candidates by the tower of both."""
        groups = [query, self._null_block(), self._join_blocks(found)]
        queries, null, blocks = self._embed(groups, training=True)
        return self.score_scale * queries, self._with_null(null, blocks, found)

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

    def _null_block(self):
        """`[CLS] [SEP] [SEP]`; it is the same for every query."""
        return text_packing.join_bert(
            [([], [])],
            cls_id=self.cls_id,
            sep_id=self.sep_id,
            pad_id=0,
            max_length=3,
            segment_ids=self.block_segment_ids,
        )

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

    def _with_null(self, null, blocks, found):
        """`(batch_size, 1 + num_retrieved, embedding_dim)`."""
        batch_size, num = (
            ops.shape(found["lengths"])[0],
            found["lengths"].shape[1],
        )
        dim = blocks.shape[-1]
        return ops.concatenate(
            [
                ops.broadcast_to(null[:, None], (batch_size, 1, dim)),
                ops.reshape(blocks, (-1, num, dim)),
            ],
            axis=1,
        )

    def read(self, query, mask_positions, found, *, training):
        """Predicts masked wordpieces from the null block and candidates.

        Args:
            query: dict of int tensors `token_ids` and `padding_mask`,
                `(batch_size, query_length)`.
            mask_positions: int tensor `(batch_size, max_masked)`.
            found: dict. As `find_candidates` gives it.
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
        self._update_trackers(x, y_pred)
        return -losses.mean_over_masked(
            y_pred["marginal_log_likelihood"], x["mask_weights"]
        )

    def _update_trackers(self, x, outputs):
        priors = outputs["retrieval_log_probs"]
        weights = ops.cast(x["mask_weights"], "float32")
        # Rows that only fill a batch up mask nothing.
        is_query = ops.any(weights > 0, axis=1)
        is_candidate = outputs["candidate_mask"][:, 1:]

        def any_candidate(hits):
            return ops.any(ops.logical_and(hits, is_candidate), axis=1)

        of_tokens = {
            "mlm_accuracy": ops.equal(
                outputs["predicted_ids"], ops.cast(x["mask_ids"], "int32")
            ),
            "retrieval_utility": outputs["retrieval_utility"],
        }
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
