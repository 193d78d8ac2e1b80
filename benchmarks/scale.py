"""What a question costs by the number of blocks: export, server and memory.

    python benchmarks/scale.py --model DIR --blocks DIR --output DIR

As many blocks as asked for are those of a directory over and over, and their
embeddings are drawn around random centres: what is found means nothing, what
it costs does. For each number and kind the script runs `realm index`, `realm
export` and `realm serve`, each a process of its own, and one client that asks
question after question. Exports stay in OUTPUT.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import shutil
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import drawn
import load
import workers

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import record_files
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.schema import Block

_SIGNATURES = ("embed_query", "retrieve", "serving_default")
_VOCABULARY = "vocab.txt"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--blocks", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument(
        "--num-blocks", nargs="+", type=int, default=[10_000, 50_000, 1_000_000]
    )
    parser.add_argument(
        "--kinds", nargs="+", default=["brute_force", "ivf", "scann"]
    )
    parser.add_argument("--quantize-embeddings", default="none")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for num_blocks in args.num_blocks:
        folder = os.path.join(args.output, str(num_blocks))
        blocks = os.path.join(folder, "blocks")
        embeddings = os.path.join(folder, "embeddings")
        if not artifact.is_complete(blocks):
            repeat_blocks(args.blocks, blocks, num_blocks)
        if not artifact.is_complete(embeddings):
            drawn.draw_embeddings(args.model, blocks, embeddings, args.seed)
        for kind in args.kinds:
            found = measure(args, blocks, embeddings, folder, kind)
            found = {"num_blocks": num_blocks, "kind": kind, **found}
            print(json.dumps(found), flush=True)


def repeat_blocks(source: str, output: str, num_blocks: int) -> None:
    """Writes a blocks directory of the blocks of another, over and over."""
    metadata = artifact.read(source, kind="blocks")
    known = list(Blocks(source).read())
    numbered = enumerate(itertools.islice(itertools.cycle(known), num_blocks))
    with artifact.write(output, kind="blocks") as stage:
        rows = [
            min(drawn.ROWS_PER_SHARD, num_blocks - first)
            for first in range(0, num_blocks, drawn.ROWS_PER_SHARD)
        ]
        for shard, num_rows in enumerate(rows):
            name = f"blocks-{shard:05d}-of-{len(rows):05d}{record_files.ENDING}"
            rows_of_shard = [
                dataclasses.replace(block, block_id=number)
                for number, block in itertools.islice(numbered, num_rows)
            ]
            record_files.write_rows(stage.path(name), Block, rows_of_shard)
        shutil.copy(os.path.join(source, _VOCABULARY), stage.path(_VOCABULARY))
        kept = ("tokenizer", "max_block_length", "longest_block")
        stage.metadata.update(
            {name: metadata[name] for name in kept},
            num_blocks=num_blocks,
            shard_rows=rows,
            fingerprint=fingerprints.fingerprint(
                metadata["fingerprint"], str(num_blocks)
            ),
        )


def measure(args, blocks, embeddings, folder, kind) -> dict:
    """Seconds, megabytes and latencies of one kind of index."""
    index = os.path.join(folder, kind)
    base = os.path.join(folder, f"export-{kind}-{args.quantize_embeddings}")
    found = {"quantize_embeddings": args.quantize_embeddings}
    if not artifact.is_complete(index):
        found["index_seconds"] = workers.seconds(
            *("index", "--embeddings", embeddings, "--output", index),
            *("--kind", kind),
        )
    version = os.path.join(base, "1")
    if not artifact.is_complete(version):
        found["export_seconds"] = workers.seconds(
            *("export", "--model", args.model, "--blocks", blocks),
            *("--index", index, "--output", base),
            *("--quantize-embeddings", args.quantize_embeddings),
        )
    found["export_megabytes"] = (
        sum(f.stat().st_size for f in pathlib.Path(base).rglob("*")) / 1e6
    )
    questions = load.questions_of(version)
    started = time.perf_counter()
    with load.serve(base, "--rest-port", "none") as server:
        found["ready_seconds"] = time.perf_counter() - started
        for signature in _SIGNATURES:
            found[signature] = load.closed_loop(
                server.target,
                questions,
                signature=signature,
                num_clients=1,
                seconds=args.seconds,
            )
        found["server_megabytes"] = load.resident_megabytes(server.process.pid)
    return {
        name: round(value, 1) if isinstance(value, float) else value
        for name, value in found.items()
    }


if __name__ == "__main__":
    main()
