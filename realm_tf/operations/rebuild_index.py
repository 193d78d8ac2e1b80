"""The process that builds indices for a trainer in another process.

It has a low priority and ends with the trainer:

  python -m realm_tf.operations.rebuild_index --model DIR --blocks DIR
      --exchange DIR --max-block-length N [--pipeline [Beam options]]
"""

import argparse
import os
import sys
import threading

from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import remove
from realm_tf.errors import InputError
from realm_tf.operations.build_index import BuildIndex
from realm_tf.operations.embed import Embed
from realm_tf.training.index_exchange import IndexExchange

# A tenth of the trainer's share of a busy core (our choice).
_NICENESS = 10


class PipelineBuild:
    """Makes the index of a snapshot with the operations of `realm`.

    Blocks are embedded whole, as `realm embed` does. What a killed run left
    is used again.

    Args:
        exchange: `IndexExchange`.
        loaded: `LoadedModel`. Its block tower takes the snapshot's weights.
        blocks: str. Directory that `realm chunk` wrote.
        beam_options: list of str.
    """

    def __init__(self, exchange, loaded, blocks: str, *, beam_options=()):
        self._exchange = exchange
        self._loaded = loaded
        self._blocks = blocks
        self._beam_options = list(beam_options)

    def __call__(self, step: int) -> None:
        """Publishes the index of a snapshot, unless it is gone."""
        from realm_tf.artifacts import model_directory

        snapshot = self._exchange.read_snapshot(step)
        model, embeddings = (
            kind(os.path.join(self._exchange.directory, f"{name}-{step:08d}"))
            for name, kind in (("model", Model), ("embeddings", Embeddings))
        )
        if not model.is_complete:
            self._loaded.model.block_embedder.set_weights(snapshot.weights)
            model_directory.save(self._loaded, model.path)
        if not embeddings.is_complete:
            Embed(
                model=model,
                blocks=self._blocks,
                output=embeddings.path,
                beam_options=self._beam_options,
            ).run()
        BuildIndex(
            embeddings=embeddings,
            output=self._exchange.index_path(step),
            kind="brute_force",
            beam_options=self._beam_options,
        ).run()
        for directory in (model, embeddings):
            remove(directory.path)


def main(argv: list[str] | None = None) -> int:
    """The process of `index_workers.ProcessWorker`."""
    parser = argparse.ArgumentParser(prog="realm_tf.operations.rebuild_index")
    parser.add_argument("--model", required=True)
    parser.add_argument("--blocks", required=True)
    parser.add_argument("--exchange", required=True)
    parser.add_argument("--max-block-length", type=int, required=True)
    parser.add_argument("--pipeline", action="store_true")
    args, beam_options = parser.parse_known_args(argv)
    _end_with_the_trainer()
    os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)

    from realm_tf.artifacts.packed_blocks import PackedBlocks
    from realm_tf.training import index_builder

    exchange = IndexExchange(args.exchange)
    try:
        loaded = Model(args.model).load()
        if args.pipeline:
            build = PipelineBuild(
                exchange, loaded, args.blocks, beam_options=beam_options
            )
        else:
            build = index_builder.TowerBuild(
                exchange,
                loaded,
                PackedBlocks(args.blocks),
                max_block_length=args.max_block_length,
            )
        index_builder.build_indices(exchange, build, should_stop=lambda: False)
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
