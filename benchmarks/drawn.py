"""Blocks, embeddings and an index of any number, drawn at random.

What is found among them means nothing, what finding costs does. Nothing here
needs TensorFlow.
"""

import numpy as np

from realm_tf.artifacts import array_files
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model

ROWS_PER_SHARD = 50_000
_NUM_CLUSTERS = 1_000
# [CLS] title [SEP] body [SEP]
_NUM_SPECIAL = 3


def draw_blocks(
    source: str, output: str, num_blocks: int, length: int, seed: int = 0
) -> None:
    """Writes blocks without texts, each a piece of the wordpieces of others.

    Args:
        source: str. Blocks, whose titles and wordpieces are taken.
        output: str. The directory to make.
        num_blocks: int.
        length: int. Wordpieces of each with its title, [CLS] and two [SEP].
        seed: int. Where each begins. Defaults to `0`.
    """
    known = Blocks(source)
    records = known.records
    pieces = np.concatenate([each.token_ids for each in records])
    titles = [each.title_ids for each in records]
    starts = np.random.default_rng(seed).integers(
        0, len(pieces) - length, num_blocks
    )
    with artifact.write(output, kind="blocks") as stage:

        def row(number):
            title = titles[number % len(titles)]
            size = length - _NUM_SPECIAL - len(title)
            return schema.Block(
                number,
                str(number),
                "",
                "",
                title_ids=title,
                token_ids=pieces[starts[number] :][:size],
                token_starts=np.zeros(size, "int32"),
                token_limits=np.zeros(size, "int32"),
                sentence_starts=[0],
            )

        shards = [
            range(first, min(first + ROWS_PER_SHARD, num_blocks))
            for first in range(0, num_blocks, ROWS_PER_SHARD)
        ]
        for number, shard in enumerate(shards):
            name = f"blocks-{number:05d}{record_files.ENDING}"
            record_files.write_rows(
                stage.path(name), schema.Block, list(map(row, shard))
            )
        array_files.write_vocabulary(stage.directory, records.wordpieces)
        stage.metadata.update(
            tokenizer=known.tokenizer,
            num_blocks=num_blocks,
            shard_rows=list(map(len, shards)),
            max_block_length=length,
            fingerprint=fingerprints.fingerprint(
                known.fingerprint, f"{num_blocks} {length} {seed}"
            ),
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
