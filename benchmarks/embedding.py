"""Rate of `realm embed` on real blocks, beside Keras' predict in the same run.

    python benchmarks/embedding.py --blocks DIR --model DIR

`embed`: the whole command in one process, over blocks of natural length spread
evenly over DIR: opening the model, reading and sorting the blocks, computing,
writing the shards. Peer is `predict` of the same block tower over the same
blocks, packed beforehand at the full length that blocks may have, at the same
batch size; its model is open and warm. `padding` is the share of what is
computed that is padding.

Ratios are ours to the peer's, in blocks a second.
"""

import argparse
import json
import os
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from realm_tf.artifacts import artifact
from realm_tf.artifacts import index_files
from realm_tf.artifacts import model_directory
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Embeddings
from realm_tf.operations.embed import Embed
from realm_tf.text import packing


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--blocks", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--num-blocks", type=int, default=2_000)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        sample, blocks = _sample(args.blocks, args.num_blocks, directory)
        print(json.dumps(_measure(args, sample, blocks, directory), indent=2))


def _sample(source, num_blocks, directory):
    """A blocks directory of some of the blocks, and these."""
    metadata = artifact.read(source, kind=schema.BLOCKS)
    total = metadata["num_blocks"]
    chosen = set(
        np.linspace(0, total - 1, min(num_blocks, total)).astype(int).tolist()
    )
    blocks = [b for b in schema.read_blocks(source) if b.block_id in chosen]
    output = os.path.join(directory, "blocks")
    with artifact.write(output, kind=schema.BLOCKS) as stage:
        path = stage.path("blocks-00000-of-00001.tfrecord.gz")
        with tf.io.TFRecordWriter(path, options="GZIP") as writer:
            for number, block in enumerate(blocks):
                block.block_id = number
                writer.write(schema.block_to_example(block))
        stage.metadata.update(
            num_blocks=len(blocks),
            shard_rows=[len(blocks)],
            fingerprint="sample",
            max_block_length=metadata["max_block_length"],
            tokenizer=metadata["tokenizer"],
        )
    return output, blocks


def _measure(args, sample, blocks, directory):
    output = os.path.join(directory, "embeddings")
    started = time.perf_counter()
    counts = Embed(
        model=args.model,
        blocks=sample,
        output=output,
        batch_size=args.batch_size,
    ).run()
    seconds = time.perf_counter() - started
    ours = np.concatenate(
        [index_files.load_shard(path) for path, _ in Embeddings(output).shards]
    )
    length = artifact.read(sample, kind=schema.BLOCKS)["max_block_length"]
    rows, peer_seconds = _predict(args, blocks, length)
    computed = counts["wordpieces"] + counts["padding"]
    rate, peer_rate = len(blocks) / seconds, len(blocks) / peer_seconds
    return {
        "benchmark": "embedding",
        "blocks": len(blocks),
        "wordpieces_per_block": round(counts["wordpieces"] / len(blocks), 1),
        "max_block_length": length,
        "embed": {
            "seconds": round(seconds, 1),
            "blocks_per_second": round(rate, 2),
            "padding": round(counts["padding"] / computed, 4),
        },
        "predict": {
            "seconds": round(peer_seconds, 1),
            "blocks_per_second": round(peer_rate, 2),
            "padding": round(
                1 - counts["wordpieces"] / (len(blocks) * length), 4
            ),
        },
        "ratio": round(rate / peer_rate, 2),
        "largest_difference": float(np.abs(ours - rows).max()),
        "cores": len(os.sched_getaffinity(0)),
    }


def _predict(args, blocks, length):
    """Embeddings by Keras' predict at one length, and its seconds."""
    loaded = model_directory.load(args.model)
    inputs = packing.join_bert(
        [(b.title_ids, b.token_ids) for b in blocks],
        cls_id=loaded.tokenizer.cls_id,
        sep_id=loaded.tokenizer.sep_id,
        pad_id=loaded.tokenizer.pad_id,
        max_length=length,
        segment_ids=loaded.block_segment_ids,
    )
    tower = loaded.model.block_embedder
    options = {"batch_size": args.batch_size, "verbose": 0}
    warm = {name: rows[: args.batch_size] for name, rows in inputs.items()}
    tower.predict(warm, **options)
    started = time.perf_counter()
    rows = tower.predict(inputs, **options)
    return rows, time.perf_counter() - started


if __name__ == "__main__":
    main()
