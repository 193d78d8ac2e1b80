"""The process that builds indices for a trainer in another process.

It has a low priority and ends with the trainer:

  python -m realm_tf.operations.rebuild_index --model DIR --blocks DIR
      --exchange DIR --max-block-length N [--pipeline [Beam options]]
"""

import argparse
import os
import sys
import threading
import time

from realm_tf.artifacts import index_files
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError
from realm_tf.operations.build_index import BuildIndex
from realm_tf.operations.embed import Embed
from realm_tf.training.index_exchange import IndexExchange

# A tenth of the trainer's share of a busy core (our choice).
_NICENESS = 10
_SECONDS_BETWEEN_LOOKS = 0.2


def build_by_pipeline(exchange, loaded, step, blocks, *, beam_options=()):
    """Publishes the index of a snapshot by the operations of `realm`.

    Blocks are embedded whole, as `realm embed` does. What a killed run left
    is used again.

    Args:
        exchange: `IndexExchange`.
        loaded: `LoadedModel`. Its block tower has the snapshot's weights.
        step: int. Of the snapshot.
        blocks: str. Directory that `realm chunk` wrote.
        beam_options: list of str.
    """
    from realm_tf.models import model_directory

    model, embeddings = (
        kind(os.path.join(exchange.directory, f"{name}-{step:08d}"))
        for name, kind in (("model", Model), ("embeddings", Embeddings))
    )
    if not model.is_complete:
        model_directory.save(loaded, model.path)
    if not embeddings.is_complete:
        Embed(
            model=model,
            blocks=blocks,
            output=embeddings.path,
            beam_options=beam_options,
        ).run()
    BuildIndex(
        embeddings=embeddings,
        output=exchange.index_path(step),
        kind="brute_force",
        beam_options=beam_options,
    ).run()
    for directory in (model, embeddings):
        remove(directory.path)


def _build_indices(args, beam_options):
    """Makes an index of the newest snapshot, again and again."""
    from realm_tf.artifacts.packed_blocks import PackedBlocks
    from realm_tf.retrieval.block_embedder import BlockEmbedder
    from realm_tf.training.index_builder import embed_blocks

    exchange = IndexExchange(args.exchange)
    loaded = Model(args.model).load()
    embedder = BlockEmbedder(loaded, max_length=args.max_block_length)
    blocks = None if args.pipeline else PackedBlocks(args.blocks)
    while True:
        step = exchange.newest_snapshot()
        if step is None or step == exchange.newest_index():
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            continue
        loaded.model.block_embedder.set_weights(exchange.read_snapshot(step))
        if args.pipeline:
            build_by_pipeline(
                exchange, loaded, step, args.blocks, beam_options=beam_options
            )
        else:
            index_files.write_exact(
                embed_blocks(embedder, blocks),
                exchange.index_path(step),
                parents={},
            )


def main(argv: list[str] | None = None) -> int:
    """The process of `index_builder.ProcessBuilder`."""
    parser = argparse.ArgumentParser(prog="realm_tf.operations.rebuild_index")
    parser.add_argument("--model", required=True)
    parser.add_argument("--blocks", required=True)
    parser.add_argument("--exchange", required=True)
    parser.add_argument("--max-block-length", type=int, required=True)
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
