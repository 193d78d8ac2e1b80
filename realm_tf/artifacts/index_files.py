"""The files of a search index over block embeddings.

`realm index` (beam_pipelines/build_index.py) writes them. Every index holds
the embeddings themselves (embeddings.npy), because fine-tuning scores blocks
with them; an index loads what its kind needs.
"""

import dataclasses
import os

import numpy as np

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.errors import InputError
from realm_tf.retrieval.index import Index

# Rows of an embeddings shard. What a killed run loses for each of its threads,
# and what workers share out: 15 MB of 384-wide float32 rows (our choice).
ROWS_PER_SHARD = 10_000

_EMBEDDINGS = "embeddings.npy"


def embedding_shards(directory: str) -> list[tuple[str, int]]:
    """The files that `realm embed` wrote, in order of block id.

    Args:
        directory: str. Embeddings directory.

    Returns:
        list of (path, first block id).

    Raises:
        InputError: if the directory is not complete.
    """
    metadata = artifact.read(directory, kind=schema.EMBEDDINGS)
    rows_per_shard = metadata["parameters"]["rows_per_shard"]
    return [
        (os.path.join(directory, name), number * rows_per_shard)
        for number, name in enumerate(metadata["shards"])
    ]


def load_shard(path: str) -> np.ndarray:
    """One of `embedding_shards`; memory-mapped if it is local.

    Returns:
        float32 array `(num_rows, embedding_dim)`.

    Raises:
        InputError: if it is missing or damaged.
    """
    return _load_array(path)


def write_embeddings(embeddings: str, directory: str) -> np.ndarray:
    """Joins the shards of embeddings to the file that an index holds.

    One shard is in memory at a time.

    Args:
        embeddings: str. Embeddings directory.
        directory: str. Index directory that is being written.

    Returns:
        float32 array `(num_blocks, embedding_dim)`; memory-mapped if local.

    Raises:
        InputError: if a shard is missing or damaged, or has another number of
            rows than it should.
    """
    num_blocks = artifact.read(embeddings, kind=schema.EMBEDDINGS)["num_blocks"]
    shards = embedding_shards(embeddings)
    limits = [first for _, first in shards[1:]] + [num_blocks]
    path = os.path.join(directory, _EMBEDDINGS)
    with Path(path).open("wb") as file:
        for (shard, first), limit in zip(shards, limits, strict=True):
            rows = load_shard(shard)
            if not first:
                header = np.lib.format.header_data_from_array_1_0(rows)
                header["shape"] = (num_blocks, *rows.shape[1:])
                np.lib.format.write_array_header_1_0(file, header)
            if len(rows) != limit - first:
                raise InputError(
                    f"{shard} holds {len(rows)} rows, expected "
                    f"{limit - first}: run `realm embed` again."
                )
            file.write(rows.tobytes())
    return _load_array(path)


def write_exact(
    embeddings: np.ndarray, output: str, *, parents: dict[str, str]
) -> None:
    """Makes a brute-force index directory of embeddings in memory.

    Args:
        embeddings: float32 array `(num_blocks, embedding_dim)`.
        output: str. Directory to make.
        parents: dict. As `check_parents` reads them.

    Raises:
        InputError: if `output` exists or cannot be made.
    """
    with artifact.write(
        output,
        kind=schema.INDEX,
        parameters={"kind": "brute_force"},
        parents=parents,
    ) as stage:
        with Path(stage.path(_EMBEDDINGS)).open("wb") as file:
            np.save(file, embeddings)
        stage.metadata.update(
            num_blocks=embeddings.shape[0],
            embedding_dim=embeddings.shape[1],
            fingerprint=fingerprints.fingerprint(embeddings.tobytes()),
        )


def write_state(
    kind: str, state: dict[str, np.ndarray], directory: str
) -> None:
    """Writes what an index keeps beside the embeddings, its `state()`.

    Args:
        kind: str. `"ivf"` or `"scann"`.
        state: dict of name to array.
        directory: str. Index directory that is being written.
    """
    for name, array in state.items():
        with Path(_state_path(directory, kind, name)).open("wb") as file:
            np.save(file, array)


def _read_state(directory, kind, names):
    return {
        name: _load_array(_state_path(directory, kind, name)) for name in names
    }


def _state_path(directory, kind, name):
    return os.path.join(directory, f"{kind}-{name}.npy")


def load(
    directory: str, *, for_export: bool = False, quantize: str = "none"
) -> Index:
    """Opens an index directory.

    Args:
        directory: str. Written by `realm index`.
        for_export: bool. Give an index whose search can be saved in a
            SavedModel; an exact one then scores 65,536 rows at a time.
            Defaults to `False`.
        quantize: str. How embeddings are held in memory, and in a SavedModel:
            `"none"`, `"int8"` or `"bfloat16"`; see `RowTable`. Defaults to
            `"none"`.

    Returns:
        `BruteForce`, `QuantizedBruteForce`, `Ivf` or `Scann`.

    Raises:
        InputError: if the directory is damaged or `quantize` is not to be had
            of its kind.
    """
    metadata = artifact.read(directory, kind=schema.INDEX)
    kind = metadata["parameters"]["kind"]
    if kind == "brute_force":
        return _load_brute_force(directory, for_export, quantize)
    if kind == "ivf":
        return _load_ivf(directory, metadata, quantize)
    if quantize != "none":
        raise InputError(
            f"{directory} is a ScaNN index, which holds its rows as it was "
            f"built: expected quantize='none', received {quantize!r}; build "
            "it with `realm index --reordering int8` instead."
        )
    return _load_scann(directory, metadata, for_export)


def _load_brute_force(directory, for_export, quantize):
    from realm_tf.retrieval import brute_force
    from realm_tf.retrieval.row_table import ROWS_AT_ONCE

    embeddings = load_embeddings(directory)
    if quantize != "none":
        return brute_force.QuantizedBruteForce(embeddings, quantize=quantize)
    return brute_force.BruteForce(
        embeddings, rows_per_block=ROWS_AT_ONCE if for_export else None
    )


def _load_ivf(directory, metadata, quantize):
    from realm_tf.retrieval import ivf
    from realm_tf.retrieval.partitions import Partitions

    embeddings = load_embeddings(directory)
    names = [field.name for field in dataclasses.fields(Partitions)]
    partitions = Partitions(**_read_state(directory, "ivf", names))
    if not partitions.hold_once(embeddings.shape):
        raise InputError(
            f"{directory} is damaged, for its partitions do not hold each of "
            f"{len(embeddings)} blocks once: make it again."
        )
    parameters = metadata["parameters"]
    return ivf.Ivf(
        embeddings,
        partitions,
        num_partitions=parameters["num_partitions"],
        num_probed=parameters["num_probed"],
        quantize=quantize,
    )


def _load_scann(directory, metadata, for_export):
    from realm_tf.retrieval import scann

    parameters = metadata["parameters"]
    kind = scann.ExportedScann if for_export else scann.Scann
    return kind(
        _read_state(directory, "scann", scann.STATE_NAMES),
        num_blocks=metadata["num_blocks"],
        embedding_dim=metadata["embedding_dim"],
        reordering=parameters["reordering"],
        num_reordered=parameters["num_reordered"],
    )


def load_embeddings(directory: str) -> np.ndarray:
    """The embeddings inside an index directory."""
    artifact.read(directory, kind=schema.INDEX)
    return _load_array(os.path.join(directory, _EMBEDDINGS))


def check_parents(directory: str, *, block_tower: str, blocks: str) -> dict:
    """Refuses an index that another model or other blocks made.

    Args:
        directory: str. Index directory.
        block_tower: str. Fingerprint of the model's block tower.
        blocks: str. Fingerprint of the blocks.

    Returns:
        dict, the index's metadata.

    Raises:
        InputError: if either differs.
    """
    metadata = artifact.read(directory, kind=schema.INDEX)
    parents = metadata["parents"]
    for name, expected, what in (
        ("blocks", blocks, "these blocks"),
        ("block_tower", block_tower, "this model's block tower"),
    ):
        if parents[name] != expected:
            raise InputError(
                f"The index {directory} was not made from {what} (it is from "
                f"{parents[name]}, expected {expected}). Run `realm embed` "
                "and `realm index` again."
            )
    return metadata


def _load_array(path):
    if not Path(path).exists():
        raise InputError(f"{path} is missing: make its directory again.")
    try:
        if not is_remote(path):
            return np.load(path, mmap_mode="r", allow_pickle=False)
        import tensorflow as tf

        with tf.io.gfile.GFile(path, "rb") as file:
            return np.load(file, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(
            f"{path} is damaged ({error}): make its directory again."
        ) from error
