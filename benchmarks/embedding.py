"""Rate of `realm embed` on real blocks, beside Keras' predict in the same run.

    python benchmarks/embedding.py --blocks DIR --model DIR

`embed`: the whole command in one process, over blocks of natural length spread
evenly over DIR: opening the model, reading and sorting the blocks, computing,
writing the shards. Peer is `predict` of the same block tower over the same
blocks, packed beforehand at the full length that blocks may have, at the same
batch size; its model is open and warm.

Ratios are ours to the peer's, in blocks a second. Both compute in float32.
"""

import json
import os
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tyro

from realm_tf.artifacts import artifact
from realm_tf.artifacts import record_files
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.schema import Block
from realm_tf.models import model_directory
from realm_tf.operations.embed import Embed
from realm_tf.text import packing

_BATCH_SIZE = 32


def main(
    *,
    blocks: str,
    model: str,
    num_blocks: int = 600,
):
    """Measures over so many of the blocks."""
    with tempfile.TemporaryDirectory() as directory:
        sample, chosen = _sample(blocks, num_blocks, directory)
        return _measure(model, sample, chosen, directory)


def _sample(source, num_blocks, directory):
    """A blocks directory of some of the blocks, and these."""
    metadata = artifact.read(source, kind="blocks")
    total = metadata["num_blocks"]
    chosen = set(
        np.linspace(0, total - 1, min(num_blocks, total)).astype(int).tolist()
    )
    blocks = [b for b in Blocks(source).read() if b.block_id in chosen]
    output = os.path.join(directory, "blocks")
    with artifact.write(output, kind="blocks") as stage:
        for number, block in enumerate(blocks):
            block.block_id = number
        path = stage.path("blocks-00000-of-00001.arrow")
        record_files.write_rows(path, Block, blocks)
        stage.metadata.update(
            num_blocks=len(blocks),
            shard_rows=[len(blocks)],
            fingerprint="sample",
            max_block_length=metadata["max_block_length"],
            tokenizer=metadata["tokenizer"],
        )
    return output, blocks


def _measure(model, sample, blocks, directory):
    output = os.path.join(directory, "embeddings")
    started = time.perf_counter()
    Embed(
        model=model,
        blocks=sample,
        output=output,
        batch_size=_BATCH_SIZE,
        precision="float32",
    ).run()
    seconds = time.perf_counter() - started
    length = artifact.read(sample, kind="blocks")["max_block_length"]
    peer_seconds = _predict(model, blocks, length)
    lengths = [3 + len(b.title_ids) + len(b.token_ids) for b in blocks]
    rate, peer_rate = len(blocks) / seconds, len(blocks) / peer_seconds
    return {
        "blocks": len(blocks),
        "wordpieces_per_block": round(sum(lengths) / len(blocks), 1),
        "max_block_length": length,
        "embed": {
            "seconds": round(seconds, 1),
            "blocks_per_second": round(rate, 2),
        },
        "predict": {
            "seconds": round(peer_seconds, 1),
            "blocks_per_second": round(peer_rate, 2),
        },
        "ratio": round(rate / peer_rate, 2),
        "cores": len(os.sched_getaffinity(0)),
    }


def _predict(model, blocks, length):
    """Seconds of Keras' predict at one length."""
    loaded = model_directory.load(model)
    inputs = packing.join_bert(
        [(b.title_ids, b.token_ids) for b in blocks],
        cls_id=loaded.tokenizer.cls_id,
        sep_id=loaded.tokenizer.sep_id,
        pad_id=loaded.tokenizer.pad_id,
        max_length=length,
        segment_ids=loaded.block_segment_ids,
    )
    tower = loaded.model.block_embedder
    options = {"batch_size": _BATCH_SIZE, "verbose": 0}
    warm = {name: rows[:_BATCH_SIZE] for name, rows in inputs.items()}
    tower.predict(warm, **options)
    started = time.perf_counter()
    tower.predict(inputs, **options)
    return time.perf_counter() - started


if __name__ == "__main__":
    found = tyro.cli(main, description=__doc__)
    print(json.dumps(found, indent=2))
