"""Strings come out as they went in, and take less."""

import random

import tensorflow as tf

from realm_tf.export.compressed_texts import STRINGS_PER_GROUP
from realm_tf.export.compressed_texts import CompressedTexts

STRINGS = ["Rome", "", "Café 🚀", "a\x00b", "x" * 70_000, "", "end"] * 5


def test_every_string_is_found_whatever_the_shape():
    texts = CompressedTexts(STRINGS)
    found = texts.lookup(tf.range(len(STRINGS)))
    assert [s.decode() for s in found.numpy()] == STRINGS
    rows = random.Random(0).choices(range(-1, len(STRINGS)), k=24)
    found = texts.lookup(tf.reshape(tf.constant(rows, tf.int64), (2, 3, 4)))
    assert found.shape == (2, 3, 4)
    assert [s.decode() for s in found.numpy().ravel()] == [
        "" if row < 0 else STRINGS[row] for row in rows
    ]
    assert texts.lookup(tf.zeros([0, 5], tf.int32)).shape == (0, 5)


def test_few_or_empty_strings():
    for strings in ([""], ["one"], ["", ""] * STRINGS_PER_GROUP):
        found = CompressedTexts(strings).lookup(tf.range(len(strings)))
        assert [s.decode() for s in found.numpy()] == strings


def test_what_is_held_is_small():
    words = [
        *("the", "river", "flows", "to", "the", "city", "of", "Rome", "and"),
        *("then", "to", "the", "sea"),
    ]
    draw = random.Random(0)
    strings = [" ".join(draw.choices(words, k=80)) for _ in range(100)]
    texts = CompressedTexts(strings)
    held = sum(len(group) for group in texts.groups.numpy())
    assert held < 0.5 * sum(map(len, strings))
    # Starts below 65,536 take two bytes; where eight strings are long, four.
    assert texts.starts.dtype == texts.lengths.dtype == tf.uint16
    assert CompressedTexts(STRINGS).starts.dtype == tf.int32
