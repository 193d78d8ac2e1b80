"""Embeds blocks with a model's block tower, batch by batch."""

import numpy as np

from realm_tf.text import packing

# Rows are padded to a multiple of this, so that a backend that compiles for
# each shape compiles few.
_LENGTH_STEP = 8


class BlockEmbedder:
    """The block tower with its packing: title and body to an embedding.

    Args:
        loaded: `LoadedModel`.
        max_length: int. Most wordpieces of `[CLS] title [SEP] body [SEP]`.
        predict: function of (model, inputs) that gives the model's outputs
            as an array. Defaults to `None`: `predict_on_batch`, compiled,
            which a plain call is not.
    """

    def __init__(self, loaded, *, max_length: int, predict=None):
        self._loaded = loaded
        self._max_length = max_length
        self._predict = predict or _predict_on_batch

    @property
    def embedding_dim(self) -> int:
        """Width of an embedding."""
        return self._loaded.model.embedding_dim

    def embed_ids(self, title_ids, token_ids):
        """Embeddings of blocks given as wordpieces.

        Args:
            title_ids: list of lists of int.
            token_ids: list of lists of int. Bodies.

        Returns:
            `(embeddings, padding_mask)`: float32 `(batch_size,
            embedding_dim)` and int32 `(batch_size, length)` arrays.
        """
        tokenizer = self._loaded.tokenizer
        rows = list(zip(title_ids, token_ids, strict=True))
        longest = max(len(title) + len(body) for title, body in rows) + 3
        rounded = -(-longest // _LENGTH_STEP) * _LENGTH_STEP
        inputs = packing.join_bert(
            rows,
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            pad_id=tokenizer.pad_id,
            max_length=min(rounded, self._max_length),
            segment_ids=self._loaded.block_segment_ids,
        )
        embeddings = self._predict(self._loaded.model.block_embedder, inputs)
        return np.asarray(embeddings, "float32"), inputs["padding_mask"]


def _predict_on_batch(model, inputs):
    return model.predict_on_batch(inputs)
