"""A vocabulary of all words of a corpus."""

import pathlib
import re

from realm_tf.articles import readers
from realm_tf.text.tokenizer import CLS
from realm_tf.text.tokenizer import MASK
from realm_tf.text.tokenizer import PAD
from realm_tf.text.tokenizer import SEP
from realm_tf.text.tokenizer import UNK


def write_vocabulary(directory, corpus) -> str:
    """The path of a vocab.txt."""
    words = set()
    for page in readers.read_pages(corpus):
        words.update(re.findall(r"[a-z]+|\d", page.text.lower()))
    path = pathlib.Path(directory, "vocab.txt")
    path.write_text("\n".join([PAD, UNK, CLS, SEP, MASK, *sorted(words)]))
    return str(path)
