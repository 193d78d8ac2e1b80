"""The process that builds indices for a trainer in another process.

It has a low priority and ends with the trainer:

  python -m realm_tf.operations.rebuild_index --model DIR --blocks DIR
      --exchange DIR --max-block-length N --precision P [--pipeline [Beam options]]
"""

import argparse
import os
import sys
import threading
import time

import numpy as np

from realm_tf.artifacts import index_files
from realm_tf.artifacts import weight_files
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError
from realm_tf.operations.embed import Embed

# A tenth of the trainer's share of a busy core (our choice).
_NICENESS = 10
_SECONDS_BETWEEN_LOOKS = 0.2


def build_by_pipeline(
    directory, loaded, blocks, *, precision="auto", beam_options=()
):
    """Embeddings of all blocks, as `realm embed` makes them.

    What a killed process left of the same weights is used again.

    Args:
        directory: str. Local; for what is needed meanwhile.
        loaded: `LoadedModel`.
        blocks: str. Directory that `realm chunk` wrote.
        precision: str. Of `Embed`. Defaults to `"auto"`.
        beam_options: list of str.

    Returns:
        float32 array `(num_blocks, embedding_dim)`.
    """
    from realm_tf.models import model_directory

    model = Model(os.path.join(directory, "model"))
    embeddings = Embeddings(os.path.join(directory, "embeddings"))
    if not model.is_complete:
        model_directory.save(loaded, model.path)
    if not embeddings.is_complete:
        Embed(
            model=model,
            blocks=blocks,
            output=embeddings.path,
            precision=precision,
            beam_options=beam_options,
        ).run()
    found = np.concatenate(
        [index_files.load_array(path) for path, _ in embeddings.shards]
    )
    for made in (model, embeddings):
        remove(made.path)
    return found


def _build_indices(args, beam_options):
    """Embeds all blocks with the weights that come, again and again."""
    from realm_tf.artifacts.packed_blocks import PackedBlocks
    from realm_tf.retrieval.block_embedder import BlockEmbedder
    from realm_tf.training import index_builder

    loaded = Model(args.model).load(precision=args.precision)
    embedder = BlockEmbedder(loaded, max_length=args.max_block_length)
    blocks = None if args.pipeline else PackedBlocks(args.blocks)
    weights = os.path.join(args.exchange, index_builder.WEIGHTS)
    while True:
        if not os.path.exists(weights):
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            continue
        loaded.model.block_embedder.set_weights(
            list(weight_files.read(weights).values())
        )
        remove(weights)
        if args.pipeline:
            found = build_by_pipeline(
                args.exchange,
                loaded,
                args.blocks,
                precision=args.precision,
                beam_options=beam_options,
            )
        else:
            found = index_builder.embed_blocks(embedder, blocks)
        weight_files.write(
            os.path.join(args.exchange, index_builder.EMBEDDINGS),
            {"embeddings": found},
        )


def main(argv: list[str] | None = None) -> int:
    """The process of `index_builder.ProcessBuilder`."""
    parser = argparse.ArgumentParser(prog="realm_tf.operations.rebuild_index")
    parser.add_argument("--model", required=True)
    parser.add_argument("--blocks", required=True)
    parser.add_argument("--exchange", required=True)
    parser.add_argument("--max-block-length", type=int, required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--pipeline", action="store_true")
    args, beam_options = parser.parse_known_args(argv)
    _end_with_the_trainer()
    os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)

    try:
        _build_indices(args, beam_options)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2


def _end_with_the_trainer():
    def wait():
        # Not sys.stdin: its lock would be held when Python ends by itself.
        while os.read(sys.stdin.fileno(), 1):
            continue
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
