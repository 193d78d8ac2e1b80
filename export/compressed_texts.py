"""Strings that a graph looks up, compressed as the model holds them."""

from collections.abc import Iterable

import tensorflow as tf

from realm_tf.export import corpus_tables
from realm_tf.export.corpus_tables import STRINGS_PER_GROUP
from realm_tf.models.fixed_weight import shared


class CompressedTexts(tf.Module):
    """A table of strings, looked up by row.

    Neighbours are compressed together with zlib, so that their common text (one
    article's title, its words) is stored once. Only TensorFlow's own ops.

    Args:
        texts: iterable of str, at least one.

    Example:

    >>> texts = CompressedTexts(["Rome", "", "Café"])
    >>> texts.lookup(tf.constant([2, -1, 0])).numpy().tolist()
    [b'Caf\\xc3\\xa9', b'', b'Rome']
    """

    def __init__(self, texts: Iterable[str]):
        super().__init__()
        tables = corpus_tables.of_texts(texts)
        self.groups = table(tables["groups"])
        self.starts = table(tables["starts"])
        self.lengths = table(tables["lengths"])

    def lookup(self, rows):
        """The strings of some rows.

        Args:
            rows: int tensor of any shape. A negative one gives `""`.

        Returns:
            string tensor of that shape.
        """
        flat = tf.maximum(tf.reshape(rows, [-1]), 0)
        group, place = tf.unique(flat // STRINGS_PER_GROUP)
        texts = tf.io.decode_compressed(
            tf.gather(self.groups, group), compression_type="ZLIB"
        )
        strings = tf.strings.substr(
            tf.gather(texts, place),
            tf.cast(tf.gather(self.starts, flat), tf.int32),
            tf.cast(tf.gather(self.lengths, flat), tf.int32),
        )
        return tf.where(rows < 0, "", tf.reshape(strings, tf.shape(rows)))


def table(values) -> tf.Variable:
    """A variable of an array, which is not trained; strings as bytes."""
    dtype = tf.string if values.dtype == object else None
    return tf.Variable(shared(values), dtype=dtype, trainable=False)
