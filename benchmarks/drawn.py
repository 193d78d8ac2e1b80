"""Blocks, embeddings and an index of any number, repeated or drawn at random.

The results of a search in them are meaningless, its cost is not. TensorFlow is
not needed.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterable
from collections.abc import Iterator

import numpy as np
import workers

from realm_tf.artifacts import array_files
from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model

_ROWS_PER_SHARD = 50_000
_NUM_CLUSTERS = 1_000
# [CLS] title [SEP] body [SEP]
_NUM_SPECIAL = 3


def make_corpus(
    model: str, source: str, folder: str, num_blocks: int, kind: str
) -> tuple[str, str]:
    """Repeats blocks, draws their embeddings and builds an index.

    Keeps each output of an earlier call.

    Args:
        model: str. Its block tower has the width of the embeddings.
        source: str. Blocks to repeat.
        folder: str. Where all outputs go.
        num_blocks: int.
        kind: str. Of the index.

    Returns:
        The directories of the blocks and of the index.
    """
    blocks, embeddings, index = (
        os.path.join(folder, name) for name in ("blocks", "embeddings", kind)
    )
    if not artifact.is_complete(blocks):
        known = Blocks(source)
        repeated = itertools.cycle(list(known.read()))
        write_blocks(
            known,
            blocks,
            (
                dataclasses.replace(block, block_id=number)
                for number, block in zip(
                    range(num_blocks), repeated, strict=False
                )
            ),
            max_block_length=known.metadata["max_block_length"],
        )
    if not artifact.is_complete(embeddings):
        parents, parts = draw_rows(model, blocks)
        write_embeddings(embeddings, parts, parents)
    if not artifact.is_complete(index):
        workers.run(
            *("index", "--embeddings", embeddings, "--output", index),
            *("--kind", kind),
        )
    return blocks, index


def write_blocks(
    known: Blocks,
    output: str,
    blocks: Iterable[schema.Block],
    *,
    max_block_length: int,
) -> None:
    """Writes blocks that are made of known ones, with their vocabulary."""
    blocks, rows = iter(blocks), []
    with artifact.write(output, kind="blocks") as stage:
        while shard := list(itertools.islice(blocks, _ROWS_PER_SHARD)):
            name = f"blocks-{len(rows):05d}{record_files.ENDING}"
            record_files.write_rows(stage.path(name), schema.Block, shard)
            rows.append(len(shard))
        array_files.write_vocabulary(stage.directory, known.records.wordpieces)
        stage.metadata.update(
            tokenizer=known.tokenizer,
            num_blocks=sum(rows),
            shard_rows=rows,
            max_block_length=max_block_length,
            longest_block=max_block_length,
            fingerprint=fingerprints.fingerprint(
                known.fingerprint, f"{rows} {max_block_length}"
            ),
        )


def draw_blocks(
    known: Blocks, num_blocks: int, length: int
) -> Iterator[schema.Block]:
    """Yields blocks without texts, each a piece of the wordpieces of others.

    Args:
        known: `Blocks`. Their titles and wordpieces are used.
        num_blocks: int.
        length: int. Wordpieces of each with its title, [CLS] and two [SEP].
    """
    records = known.records
    pieces = np.concatenate([each.token_ids for each in records])
    titles = [each.title_ids for each in records]
    starts = np.random.default_rng(0).integers(
        0, len(pieces) - length, num_blocks
    )
    for number, start in enumerate(starts):
        title = titles[number % len(titles)]
        size = length - _NUM_SPECIAL - len(title)
        yield schema.Block(
            number,
            str(number),
            "",
            "",
            title_ids=title,
            token_ids=pieces[start:][:size],
            token_starts=np.zeros(size, "int32"),
            token_limits=np.zeros(size, "int32"),
            sentence_starts=[0],
        )


def write_embeddings(
    output: str, parts: Iterable[np.ndarray], parents: dict
) -> None:
    """Writes an embeddings directory with a shard for each part.

    Args:
        output: str.
        parts: iterable of float32 arrays `(num_rows, embedding_dim)`.
        parents: dict. Fingerprints of `block_tower` and `blocks`.
    """
    with artifact.write(
        output,
        kind="embeddings",
        parameters={"rows_per_shard": _ROWS_PER_SHARD},
        parents=parents,
    ) as stage:
        names, num_blocks = [], 0
        for number, rows in enumerate(parts):
            names.append(f"embeddings-{number:05d}.npy")
            np.save(stage.path(names[-1]), rows)
            num_blocks += len(rows)
        stage.metadata.update(
            num_blocks=num_blocks,
            dtype="float32",
            shards=names,
            fingerprint=fingerprints.fingerprint(str(parents), output),
        )


def draw_index(model: str, blocks: str, output: str) -> None:
    """Writes an exact index of random rows, in the form of `realm index`."""
    parents, parts = draw_rows(model, blocks)
    with artifact.write(
        output,
        kind="index",
        parameters={"kind": "brute_force"},
        parents=parents,
    ) as stage:
        rows = np.concatenate(list(parts))
        np.save(stage.path("embeddings.npy"), rows)
        stage.metadata.update(
            num_blocks=len(rows),
            embedding_dim=rows.shape[1],
            fingerprint=fingerprints.fingerprint(*parents.values()),
            recall_queries=0,
            **{"recall@5": 1.0},
        )


def draw_rows(model: str, blocks: str) -> tuple[dict, Iterator[np.ndarray]]:
    """The parents of random embeddings of length 1, and parts of their rows."""
    model, blocks = Model(model), Blocks(blocks)
    tower = model.config["block_embedder"]
    width = tower["projection_dim"] or tower["encoder"]["hidden_dim"]

    def parts():
        random = np.random.default_rng(0)
        centres = random.standard_normal((_NUM_CLUSTERS, width), "float32")
        for number_of in row_counts(blocks.num_blocks):
            rows = centres[random.integers(0, _NUM_CLUSTERS, number_of)]
            rows += random.standard_normal(rows.shape, "float32")
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            yield rows

    parents = {"block_tower": model.block_tower, "blocks": blocks.fingerprint}
    return parents, parts()


def row_counts(num_rows: int) -> list[int]:
    """Rows of each shard."""
    whole, rest = divmod(num_rows, _ROWS_PER_SHARD)
    return [_ROWS_PER_SHARD] * whole + [rest] * bool(rest)
