"""Embeds blocks with a model's block tower, batch by batch."""

import keras
import numpy as np

from realm_tf.text import packing

# Rows are padded to a multiple of this, so that a backend that compiles for
# each shape compiles few.
_LENGTH_STEP = 8
# Blocks that each of several devices embeds at once.
_ROWS_PER_DEVICE = 8


class BlockEmbedder:
    """The block tower with its packing: title and body to an embedding.

    Args:
        loaded: `LoadedModel`.
        max_length: int. Most wordpieces of `[CLS] title [SEP] body [SEP]`.
        tower: `Embedder`. Defaults to `None`: that of `loaded`.
    """

    def __init__(self, loaded, *, max_length: int, tower=None):
        self._loaded = loaded
        self._max_length = max_length
        self._tower = tower or loaded.model.block_embedder

    @property
    def embedding_dim(self) -> int:
        """Width of an embedding."""
        return self._tower.embedding_dim

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
        embeddings = predict(self._tower, inputs)
        return np.asarray(embeddings, "float32"), inputs["padding_mask"]


def predict(model, inputs: dict):
    """The outputs of rows that do not depend on each other.

    They are compiled, which a plain call is not. Several devices in use each
    take a part of them. As Keras refuses a batch that devices cannot share
    evenly, it is filled up with repetitions of the last row.

    Args:
        model: `keras.Model` of one output.
        inputs: dict of arrays `(num_rows, ...)`, at least one row.

    Returns:
        float array of `num_rows` rows.
    """
    if keras.distribution.distribution() is None:
        return model.predict_on_batch(inputs)
    batch_size = _ROWS_PER_DEVICE * len(keras.distribution.list_devices())
    num_rows = len(next(iter(inputs.values())))
    added = -num_rows % batch_size
    inputs = {
        name: np.concatenate([rows, np.repeat(rows[-1:], added, axis=0)])
        for name, rows in inputs.items()
    }
    outputs = model.predict(inputs, batch_size=batch_size, verbose=0)
    return outputs[:num_rows]
