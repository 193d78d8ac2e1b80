"""Strings that a graph looks up, compressed as the model holds them."""

import itertools
import zlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from realm_tf.artifacts.array_files import smallest_dtype
from realm_tf.models.fixed_weight import shared

# Strings compressed together: half the size of English blocks, where one by
# one they keep 0.59 and in sixteens 0.48 of it (zlib, level 9, 4,000 passages
# of 540 bytes), and looking one up unpacks no more than these.
STRINGS_PER_GROUP = 8


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
        packed, lengths, starts = [], [], []
        # Group by group: all texts need not be in memory.
        texts = map(str.encode, texts)
        while group := list(itertools.islice(texts, STRINGS_PER_GROUP)):
            sizes = list(map(len, group))
            lengths += sizes
            starts += itertools.accumulate(sizes[:-1], initial=0)
            packed.append(zlib.compress(b"".join(group), 9))
        self.groups = tf.Variable(packed, dtype=tf.string, trainable=False)
        self.starts = small_table(np.array(starts))
        self.lengths = small_table(np.array(lengths))

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


def small_table(values) -> tf.Variable:
    """Integers from 0 on, in the least type that takes them."""
    dtype = smallest_dtype(int(values.max()))
    return tf.Variable(
        shared(values.astype(dtype, copy=False)), trainable=False
    )
