"""Blocks, embeddings and an index of any number, drawn at random.

What is found among them means nothing, what finding costs does. Nothing here
needs TensorFlow.
"""

import itertools

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.packed_blocks import PackedBlocks

ROWS_PER_SHARD = 50_000
_NUM_CLUSTERS = 1_000
# [CLS] title [SEP] body [SEP]
_NUM_SPECIAL = 3


def pack_blocks(
    source: str, output: str, num_blocks: int, length: int, seed: int = 0
) -> None:
    """Writes packed blocks, each a piece of the text of others.

    Args:
        source: str. Packed blocks, whose titles and text are taken.
        output: str. The directory to make.
        num_blocks: int.
        length: int. Wordpieces of each with its title, [CLS] and two [SEP].
        seed: int. Where each begins. Defaults to `0`.
    """
    known = PackedBlocks(source)
    text = np.array(known.arrays["token_ids"])
    starts = np.random.default_rng(seed).integers(
        0, len(text) - length, num_blocks
    )
    titles = [known[number].title_ids for number in range(len(known))]
    with PackedBlocks.write(
        output,
        tokenizer=known.metadata["tokenizer"],
        parents={
            "blocks": fingerprints.fingerprint(
                known.fingerprint, f"{num_blocks} {length} {seed}"
            )
        },
        wordpieces=known.wordpieces,
    ) as (files, stage):

        def append_row(article):
            sizes = [files[name].num_rows for name in PackedBlocks.limits]
            files["blocks"].append([[*sizes, article]])

        for number, (start, title) in enumerate(
            zip(starts, itertools.cycle(titles), strict=False)
        ):
            append_row(number)
            size = length - _NUM_SPECIAL - len(title)
            files["token_ids"].append(text[start : start + size])
            files["sentences"].append([0])
            files["title_ids"].append(title)
        append_row(num_blocks)
        stage.metadata.update(
            tokenizer=known.metadata["tokenizer"], num_blocks=num_blocks
        )


def draw_embeddings(model: str, blocks: str, output: str, seed: int) -> None:
    """Writes an embeddings directory of random rows, of length 1."""
    parents, parts, stop = _drawn(model, blocks, seed)
    with artifact.write(
        output,
        kind="embeddings",
        parameters={"rows_per_shard": ROWS_PER_SHARD},
        parents=parents,
    ) as stage:
        names = []
        for number, rows in enumerate(parts):
            names.append(f"embeddings-{number:05d}.npy")
            np.save(stage.path(names[-1]), rows)
        stage.metadata.update(
            num_blocks=stop,
            dtype="float32",
            shards=names,
            fingerprint=fingerprints.fingerprint(*parents.values(), str(seed)),
        )


def draw_index(model: str, blocks: str, output: str, seed: int) -> None:
    """Writes an exact index of such rows, as `realm index` would of them."""
    parents, parts, stop = _drawn(model, blocks, seed)
    with artifact.write(
        output,
        kind="index",
        parameters={"kind": "brute_force"},
        parents=parents,
    ) as stage:
        rows = np.concatenate(list(parts))
        np.save(stage.path("embeddings.npy"), rows)
        stage.metadata.update(
            num_blocks=stop,
            embedding_dim=rows.shape[1],
            fingerprint=fingerprints.fingerprint(*parents.values(), str(seed)),
            recall_queries=0,
            **{"recall@5": 1.0},
        )


def _drawn(model, blocks, seed):
    """Parents, parts of the rows, how many rows there are."""
    model, blocks = Model(model), Blocks(blocks)
    tower = model.config["block_embedder"]
    width = tower["projection_dim"] or tower["encoder"]["hidden_dim"]
    stop = blocks.num_blocks

    def parts():
        random = np.random.default_rng(seed)
        centres = random.standard_normal((_NUM_CLUSTERS, width), "float32")
        for first in range(0, stop, ROWS_PER_SHARD):
            num_rows = min(ROWS_PER_SHARD, stop - first)
            rows = centres[random.integers(0, _NUM_CLUSTERS, num_rows)]
            rows += random.standard_normal(rows.shape, "float32")
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            yield rows

    parents = {"block_tower": model.block_tower, "blocks": blocks.fingerprint}
    return parents, parts(), stop
