"""Packs wordpieces into memory-mapped arrays, for training.

  realm pack --blocks DIR --output DIR
  realm pack --annotated DIR --model DIR --output DIR
  realm pack --annotated DIR --vocab FILE --output DIR

Training reads them in any order without TensorFlow: pack where `realm chunk`
and `realm annotate` ran, then copy the directory to the machine that trains.
"""

import argparse
import json
import os
import sys
import time

from realm_tf.artifacts import artifact
from realm_tf.artifacts import packed_blocks
from realm_tf.artifacts import packed_passages
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError


def add_arguments(parser):
    """Arguments of `realm pack`."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--blocks", help="directory of `realm chunk`")
    source.add_argument("--annotated", help="directory of `realm annotate`")
    parser.add_argument("--output", required=True, help="directory to make")
    vocabulary = parser.add_mutually_exclusive_group()
    vocabulary.add_argument(
        "--model",
        help="with --annotated: model directory whose vocabulary is taken",
    )
    vocabulary.add_argument(
        "--vocab", help="with --annotated: the vocab.txt of the model"
    )
    parser.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with --vocab: lower-case and strip accents, as uncased BERT "
        "(default: yes)",
    )


def run(args, extra):
    """`realm pack`."""
    counts = pack(
        args.output,
        blocks=args.blocks,
        annotated=args.annotated,
        model=args.model,
        vocab=args.vocab,
        lowercase=args.lowercase,
    )
    shown = ", ".join(f"{k} {v:,}" for k, v in counts.items())
    print(f"{args.output}: {shown}")


def pack(
    output: str,
    *,
    blocks: str | None = None,
    annotated: str | None = None,
    model: str | None = None,
    vocab: str | None = None,
    lowercase: bool = True,
) -> dict:
    """Packs a directory of blocks or of annotated passages.

    Args:
        output: str. The directory to make, on a local disk.
        blocks: str. A directory that `realm chunk` wrote; its wordpieces are
            taken as they are.
        annotated: str. A directory that `realm annotate` wrote; its sentences
            are tokenised with the vocabulary of `model` or with `vocab`.
        model: str. Model directory.
        vocab: str. A `vocab.txt`.
        lowercase: bool. With `vocab`. Defaults to `True`, as uncased BERT.

    Returns:
        dict of int, what was counted.

    Raises:
        InputError: if an argument is missing or too many, or a directory is
            not complete.
    """
    if (blocks is None) == (annotated is None):
        raise InputError("One of --blocks and --annotated must be given.")
    if blocks is not None:
        if model or vocab:
            raise InputError(
                "--model and --vocab are for --annotated: blocks have their "
                "wordpieces."
            )
        total = artifact.read(blocks, kind=schema.BLOCKS)["num_blocks"]
        return packed_blocks.pack_blocks(
            blocks, output, progress=_Progress("blocks", total)
        )
    metadata = artifact.read(annotated, kind=schema.ANNOTATED)
    return packed_passages.pack_passages(
        annotated,
        _tokenizer(model, vocab, lowercase),
        output,
        progress=_Progress("passages", metadata["num_passages"]),
    )


def _tokenizer(model, vocab, lowercase):
    from realm_tf.text.tokenizer import Tokenizer

    if (model is None) == (vocab is None):
        raise InputError("--annotated takes one of --model and --vocab.")
    if model is None:
        return Tokenizer.from_file(vocab, lowercase=lowercase)
    artifact.read(model, kind=schema.MODEL)
    config = json.loads(Path(os.path.join(model, "config.json")).read_text())
    return Tokenizer.from_file(
        os.path.join(model, "vocab.txt"), lowercase=config["lowercase"]
    )


class _Progress:
    """Prints a line now and then, with an estimate of the time left."""

    def __init__(self, what, total, *, every_seconds=15.0):
        self._what = what
        self._total = total
        self._every_seconds = every_seconds
        self._started = self._last = time.monotonic()

    def __call__(self, done):
        now = time.monotonic()
        if now - self._last < self._every_seconds:
            return
        self._last = now
        left = (now - self._started) / done * (self._total - done)
        print(
            f"      {done:,}/{self._total:,} {self._what}, {left:.0f} s left",
            file=sys.stdout,
            flush=True,
        )
