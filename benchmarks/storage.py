"""Writing and reading blocks: Arrow IPC files beside gzip TFRecords.

    python benchmarks/storage.py [--num-blocks 100000]

Blocks are drawn at random: 130 words of 250 wordpieces each. The peer is
TensorFlow's own code: `tf.train.Example` in gzip TFRecords, of which
`tf.io.parse_example` parses a thousand at once. Prints seconds and megabytes.
"""

import dataclasses
import json
import os
import tempfile
import time

import drawn
import numpy as np
import tensorflow as tf
import tyro

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.schema import Block

_NUM_WORDPIECES = 250
_BATCH = 1_000
_SPEC = {
    field.name: tf.io.FixedLenFeature((), tf.string)
    if field.type is str
    else tf.io.RaggedFeature(tf.int64)
    for field in dataclasses.fields(Block)
}


def main(*, num_blocks: int = 100_000):
    """Measures writing, opening and reading."""
    blocks, found = _draw(num_blocks), {}

    def measure(name, work):
        started = time.perf_counter()
        work()
        found[name] = round(time.perf_counter() - started, 2)

    with tempfile.TemporaryDirectory() as root:
        arrow, records = f"{root}/arrow", f"{root}/tfrecords"
        measure(
            "write_seconds",
            lambda: drawn.write_blocks(
                arrow, iter(blocks), num_blocks, max_block_length=256
            ),
        )
        measure("peer_write_seconds", lambda: _write_records(blocks, records))
        # Otherwise the garbage collector visits them again and again.
        blocks.clear()
        measure("read_seconds", lambda: _drain(Blocks(arrow).read()))
        measure("open_seconds", lambda: Blocks(arrow).records)
        peer = tf.data.TFRecordDataset(f"{records}/blocks", "GZIP")
        peer = peer.batch(_BATCH).map(lambda x: tf.io.parse_example(x, _SPEC))
        measure("peer_read_seconds", lambda: _drain(peer))
        for name, path in (("", arrow), ("peer_", records)):
            sizes = sum(each.stat().st_size for each in os.scandir(path))
            found[f"{name}megabytes"] = round(sizes / 1e6)
    return found


def _draw(num_blocks):
    random = np.random.default_rng(0)
    words = [f"word{number}" for number in range(5_000)]
    starts = np.arange(_NUM_WORDPIECES) * 4
    found = []
    for number in range(num_blocks):
        text = " ".join(words[n] for n in random.integers(0, 5_000, 130))
        ids = random.integers(1_000, 30_000, _NUM_WORDPIECES)
        lists = [2_000], ids, starts, starts + 3, [0, 200, 400], [], []
        found.append(Block(number, str(number), "Title", text, "", *lists))
    return found


def _write_records(blocks, directory):
    os.mkdir(directory)
    with tf.io.TFRecordWriter(f"{directory}/blocks", "GZIP") as writer:
        for block in blocks:
            example = tf.train.Example()
            for name, value in vars(block).items():
                feature = example.features.feature[name]
                if isinstance(value, str):
                    feature.bytes_list.value.append(value.encode())
                else:
                    feature.int64_list.value.extend(np.atleast_1d(value))
            writer.write(example.SerializeToString())


def _drain(rows):
    for _ in rows:
        pass


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__)))
