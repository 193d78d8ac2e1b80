"""Annotated passages from marked sentences, and directories of them."""

import re

import pytest

from realm_tf.artifacts import artifact
from realm_tf.artifacts import schema
from realm_tf.text.tokenizer import Tokenizer


def mark_passage(*sentences, block_id=0, title="Title"):
    """A passage of sentences in which `<...>` marks the salient spans."""
    passage = schema.AnnotatedPassage(block_id=block_id, title=title, text="")
    for sentence in sentences:
        if passage.sentence_byte_start:
            passage.text += " "
        passage.sentence_byte_start.append(len(passage.text.encode()))
        for piece in re.split("([<>])", sentence):
            place = len(passage.text.encode())
            if piece == "<":
                passage.span_byte_start.append(place)
                passage.span_label.append("name")
            elif piece == ">":
                passage.span_byte_limit.append(place)
            else:
                passage.text += piece
        passage.sentence_byte_limit.append(len(passage.text.encode()))
    return passage


def write_annotated(directory, passages):
    """A directory as `realm annotate` leaves it, of two shards."""
    import tensorflow as tf

    with artifact.write(str(directory), kind=schema.ANNOTATED) as stage:
        half = len(passages) // 2
        for number, part in enumerate([passages[:half], passages[half:]]):
            path = stage.path(f"annotated-{number:05d}.tfrecord.gz")
            with tf.io.TFRecordWriter(path, options="GZIP") as writer:
                for passage in part:
                    writer.write(schema.annotated_to_example(passage))
        stage.metadata["num_passages"] = len(passages)
        stage.metadata["fingerprint"] = "abc"
    return str(directory)


@pytest.fixture(name="mark_passage")
def _mark_passage():
    return mark_passage


@pytest.fixture(name="write_annotated")
def _write_annotated():
    return write_annotated


@pytest.fixture(scope="session")
def letters():
    """A tokenizer of some words and of all letters as pieces of words."""
    from realm_tf.text.tokenizer import Tokenizer

    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] . , ' - the of in was river city"
    words += " cafe 東 京 ##bara"
    return Tokenizer(
        words.split() + list(alphabet) + [f"##{letter}" for letter in alphabet]
    )


@pytest.fixture(scope="session")
def tokenizer(vocabulary_path):
    """The tiny world's."""
    return Tokenizer.from_file(vocabulary_path)
