"""Blocks, embeddings and an index of any number, repeated or drawn at random.

The results of a search in them mean nothing, its cost does. Nothing here
needs TensorFlow.
"""

import dataclasses
import itertools
import os
import shutil

import numpy as np
import workers

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


def make_corpus(
    model: str, source: str, folder: str, num_blocks: int, kind: str
) -> tuple[str, str]:
    """Repeats blocks, draws their embeddings and builds an index.

    Keeps each of them that an earlier call made.

    Args:
        model: str. Its block tower has the width of the embeddings.
        source: str. Blocks to repeat.
        folder: str. Where all are made.
        num_blocks: int.
        kind: str. Of the index.

    Returns:
        The directories of the blocks and of the index.
    """
    blocks, embeddings, index = (
        os.path.join(folder, name) for name in ("blocks", "embeddings", kind)
    )
    if not artifact.is_complete(blocks):
        repeat_blocks(source, blocks, num_blocks)
    if not artifact.is_complete(embeddings):
        draw_embeddings(model, blocks, embeddings)
    if not artifact.is_complete(index):
        workers.seconds(
            *("index", "--embeddings", embeddings, "--output", index),
            *("--kind", kind),
        )
    return blocks, index


def repeat_blocks(source: str, output: str, num_blocks: int) -> None:
    """Writes a blocks directory of the blocks of another, repeated."""
    metadata = artifact.read(source, kind="blocks")
    known = list(Blocks(source).read())
    numbered = enumerate(itertools.islice(itertools.cycle(known), num_blocks))
    with artifact.write(output, kind="blocks") as stage:
        rows = [
            min(ROWS_PER_SHARD, num_blocks - first)
            for first in range(0, num_blocks, ROWS_PER_SHARD)
        ]
        for shard, num_rows in enumerate(rows):
            name = f"blocks-{shard:05d}-of-{len(rows):05d}{record_files.ENDING}"
            rows_of_shard = [
                dataclasses.replace(block, block_id=number)
                for number, block in itertools.islice(numbered, num_rows)
            ]
            record_files.write_rows(
                stage.path(name), schema.Block, rows_of_shard
            )
        shutil.copy(
            os.path.join(source, array_files.VOCABULARY),
            stage.path(array_files.VOCABULARY),
        )
        kept = ("tokenizer", "max_block_length", "longest_block")
        stage.metadata.update(
            {name: metadata[name] for name in kept},
            num_blocks=num_blocks,
            shard_rows=rows,
            fingerprint=fingerprints.fingerprint(
                metadata["fingerprint"], str(num_blocks)
            ),
        )


def draw_blocks(source: str, output: str, num_blocks: int, length: int) -> None:
    """Writes blocks without texts, each a piece of the wordpieces of others.

    Args:
        source: str. Blocks, whose titles and wordpieces are taken.
        output: str. The directory to make.
        num_blocks: int.
        length: int. Wordpieces of each with its title, [CLS] and two [SEP].
    """
    known = Blocks(source)
    records = known.records
    pieces = np.concatenate([each.token_ids for each in records])
    titles = [each.title_ids for each in records]
    starts = np.random.default_rng(0).integers(
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
                known.fingerprint, f"{num_blocks} {length}"
            ),
        )


def draw_embeddings(model: str, blocks: str, output: str) -> None:
    """Writes an embeddings directory of random rows, of length 1."""
    parents, parts, stop = _drawn(model, blocks)
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
            fingerprint=fingerprints.fingerprint(*parents.values()),
        )


def draw_index(model: str, blocks: str, output: str) -> None:
    """Writes an exact index of such rows, as `realm index` would of them."""
    parents, parts, stop = _drawn(model, blocks)
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
            fingerprint=fingerprints.fingerprint(*parents.values()),
            recall_queries=0,
            **{"recall@5": 1.0},
        )


def _drawn(model, blocks):
    """Parents, parts of the rows, how many rows there are."""
    model, blocks = Model(model), Blocks(blocks)
    tower = model.config["block_embedder"]
    width = tower["projection_dim"] or tower["encoder"]["hidden_dim"]
    stop = blocks.num_blocks

    def parts():
        random = np.random.default_rng(0)
        centres = random.standard_normal((_NUM_CLUSTERS, width), "float32")
        for first in range(0, stop, ROWS_PER_SHARD):
            num_rows = min(ROWS_PER_SHARD, stop - first)
            rows = centres[random.integers(0, _NUM_CLUSTERS, num_rows)]
            rows += random.standard_normal(rows.shape, "float32")
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            yield rows

    parents = {"block_tower": model.block_tower, "blocks": blocks.fingerprint}
    return parents, parts(), stop
