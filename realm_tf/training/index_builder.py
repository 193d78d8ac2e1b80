"""Builds indices while a trainer goes on.

A worker takes the newest snapshot of the trainer's block tower, embeds all
blocks, publishes an index, and begins again (`IndexExchange`).
"""

import time
from collections.abc import Callable

import numpy as np

from realm_tf.artifacts import index_files
from realm_tf.retrieval.block_embedder import BlockEmbedder
from realm_tf.training.callbacks import Diverged
from realm_tf.training.index_exchange import IndexExchange

# Blocks embedded at once (our choice): of like length, so a batch of them is
# hardly padded.
_BATCH_SIZE = 64
_SECONDS_BETWEEN_LOOKS = 0.2
# The trainer reads the newest while the one before may still be in use.
_KEPT_INDICES = 2


def embed_blocks(embedder, blocks, *, before_batch=lambda: None) -> np.ndarray:
    """The embeddings of all blocks, with the tower as it is.

    Args:
        embedder: `BlockEmbedder`.
        blocks: `PackedBlocks`.
        before_batch: function without arguments. What it raises ends this.

    Returns:
        float32 array `(num_blocks, embedding_dim)`.

    Raises:
        Diverged: if one is not finite.
    """
    found = np.empty((len(blocks), embedder.embedding_dim), "float32")
    order = np.argsort(blocks.count_wordpieces(), kind="stable")
    for first in range(0, len(order), _BATCH_SIZE):
        before_batch()
        places = order[first : first + _BATCH_SIZE]
        rows = [blocks[place] for place in places.tolist()]
        found[places], _ = embedder.embed_ids(
            [block.title_ids for block in rows],
            [block.token_ids for block in rows],
        )
    if not np.isfinite(found).all():
        raise Diverged(
            "Embeddings of blocks are not finite: the block tower's weights "
            "are lost. Train again with a lower learning rate, such as --set "
            "learning_rate=1e-5."
        )
    return found


class TowerBuild:
    """Makes the index of a snapshot in this process.

    Args:
        exchange: `IndexExchange`.
        loaded: `LoadedModel`. Its block tower takes the snapshot's weights.
        blocks: `PackedBlocks`.
        max_block_length: int. As the trainer's.
    """

    def __init__(self, exchange, loaded, blocks, *, max_block_length: int):
        self._exchange = exchange
        self._loaded = loaded
        self._blocks = blocks
        # What it raises ends the making of an index.
        self.before_batch = lambda: None
        self._embedder = BlockEmbedder(loaded, max_length=max_block_length)

    def __call__(self, step: int) -> None:
        """Publishes the index of a snapshot, unless it is gone."""
        snapshot = self._exchange.read_snapshot(step)
        self._loaded.model.block_embedder.set_weights(snapshot.weights)
        index_files.write_exact(
            embed_blocks(
                self._embedder, self._blocks, before_batch=self.before_batch
            ),
            self._exchange.index_path(step),
            parents={
                "block_tower": self._loaded.block_tower_fingerprint(),
                "blocks": self._blocks.fingerprint,
            },
        )


def build_indices(
    exchange: IndexExchange,
    build: Callable[[int], None],
    *,
    should_stop: Callable[[], bool],
) -> None:
    """Makes an index of the newest snapshot, again and again.

    Args:
        exchange: `IndexExchange`.
        build: function that makes the index of a step's snapshot.
        should_stop: function. Asked between two indices.
    """
    while not should_stop():
        step = exchange.newest_snapshot()
        if step is None or step == exchange.newest_index():
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            continue
        build(step)
        exchange.prune_indices(keep=_KEPT_INDICES)
