"""The open-QA model: two towers and a reader."""

import keras


class OpenQa(keras.Model):
    """The content of a model directory: query tower, block tower, reader.

    `RetrieveAndRead` puts an index and block texts around it for training
    and prediction. While the towers are shared, both names are one object.

    Args:
        query_embedder: `Embedder`.
        block_embedder: `Embedder`. The same instance, or another.
        reader: `Reader`.
        knowledge_augmented_encoder: `KnowledgeAugmentedEncoder` over the
            reader's encoder, which pre-training leaves: one encoder with two
            heads. Defaults to `None`.
        score_scale: float. Multiplies the query's embedding, so that loss,
            index, reader and server agree. 1 for REALM; about 20 for
            normalised towers such as MiniLM, whose scores between -1 and 1
            would give a flat p(z|x). Defaults to `1.0`.

    References:
        [Lee et al., 2019](https://arxiv.org/abs/1906.00300);
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.3.
    """

    def __init__(
        self,
        query_embedder,
        block_embedder,
        reader,
        *,
        knowledge_augmented_encoder=None,
        score_scale=1.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if query_embedder.embedding_dim != block_embedder.embedding_dim:
            raise ValueError(
                "Both towers must have one embedding_dim. Received: "
                f"query_embedder.embedding_dim={query_embedder.embedding_dim}, "
                f"block_embedder.embedding_dim={block_embedder.embedding_dim}"
            )
        self.query_embedder = query_embedder
        self.block_embedder = block_embedder
        self.reader = reader
        self.knowledge_augmented_encoder = knowledge_augmented_encoder
        self.score_scale = score_scale
        # Its parts are functional models with weights of their own.
        self.built = True

    @property
    def share_embedders(self) -> bool:
        """Whether both towers are one."""
        return self.query_embedder is self.block_embedder

    @property
    def embedding_dim(self) -> int:
        """Width of both towers' embeddings."""
        return self.block_embedder.embedding_dim

    def embed_queries(self, inputs, training=False):
        """Scaled query embeddings, `(batch_size, embedding_dim)`.

        Args:
            inputs: dict of `token_ids`, `segment_ids` and `padding_mask`,
                int tensors `(batch_size, query_length)`.
            training: bool. A frozen tower ignores it: dropout would change
                the embeddings of which the index was made. Defaults to `False`.
        """
        tower = self.query_embedder
        return self.score_scale * tower(
            inputs, training=training and tower.trainable
        )

    def embed_blocks(self, inputs, training=False):
        """Block embeddings, `(batch_size, embedding_dim)`."""
        return self.block_embedder(
            inputs, training=training and self.block_embedder.trainable
        )

    def without_masked_lm_head(self):
        """A model of the same parts, less what only pre-training uses.

        Returns:
            `OpenQa`. This one, if it has no such head.
        """
        if self.knowledge_augmented_encoder is None:
            return self
        return OpenQa(
            self.query_embedder,
            self.block_embedder,
            self.reader,
            score_scale=self.score_scale,
        )

    def separate_towers(self):
        """A model whose block tower is a frozen copy of the query tower's.

        Fine-tuning moves the query tower while the index stays as it is
        (REALM's default): the tower that made the index is kept with it.

        Returns:
            `OpenQa`. This one, its block tower frozen, if the towers are
            separate already.
        """
        if not self.share_embedders:
            # Without gradients, but weight decay would still move it.
            self.block_embedder.trainable = False
            return self
        block_embedder = self.block_embedder.copy()
        block_embedder.trainable = False
        return OpenQa(
            self.query_embedder,
            block_embedder,
            self.reader,
            score_scale=self.score_scale,
        )
