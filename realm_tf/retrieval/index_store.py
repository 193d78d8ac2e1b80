"""Builds a search index over block embeddings, and loads it again.

  realm index --embeddings DIR --output DIR --kind scann

`brute_force` is exact and runs everywhere; `scann` is ScaNN's op, for CPU.
Both directories hold the embeddings themselves (embeddings.npy), because
fine-tuning scores blocks with them; an index loads what its kind needs.
"""

import numpy as np

from realm_tf import stages
from realm_tf.data import schema
from realm_tf.errors import InputError
from realm_tf.retrieval.index import KINDS
from realm_tf.retrieval.index import Index

_EMBEDDINGS = "embeddings.npy"


def add_arguments(parser):
    """Arguments of `realm index`."""
    parser.add_argument(
        "--embeddings", required=True, help="what `realm embed` wrote"
    )
    parser.add_argument("--output", required=True, help="directory to make")
    parser.add_argument(
        "--kind",
        choices=KINDS,
        default="scann",
        help="kind of search (default: scann)",
    )
    parser.add_argument(
        "--reordering",
        choices=("float32", "int8"),
        default="float32",
        help="scann: what the best candidates are scored with; int8 takes a "
        "third of the memory and costs some recall (default: float32)",
    )
    parser.add_argument(
        "--num-reordered",
        type=int,
        default=200,
        help="scann, from 20,000 blocks on: candidates that are scored again "
        "(default: 200)",
    )


def run(args, extra):
    """`realm index`."""
    metadata = build(
        args.embeddings,
        args.output,
        kind=args.kind,
        reordering=args.reordering,
        num_reordered=args.num_reordered,
    )
    print(
        f"{args.output}: {args.kind} over {metadata['num_blocks']:,} blocks, "
        f"recall@5 against exact search {metadata['recall@5']:.3f} "
        f"({metadata['recall_queries']} queries)"
    )


def read_embeddings(directory: str) -> np.ndarray:
    """All rows that `realm embed` wrote, in order of block id.

    Args:
        directory: str. Embeddings directory.

    Returns:
        float32 array `(num_blocks, embedding_dim)`; memory-mapped where it is
        one local shard.

    Raises:
        InputError: if the directory is incomplete or a shard is damaged.
    """
    metadata = stages.read(directory, kind=schema.EMBEDDINGS)
    shards = [
        _load_array(stages.join(directory, name)) for name in metadata["shards"]
    ]
    rows = shards[0] if len(shards) == 1 else np.concatenate(shards)
    if len(rows) != metadata["num_blocks"]:
        raise InputError(
            f"{directory} holds {len(rows)} rows, expected "
            f"{metadata['num_blocks']}: run `realm embed` again."
        )
    return rows


def build(
    embeddings: str,
    output: str,
    *,
    kind: str = "scann",
    reordering: str = "float32",
    num_reordered: int = 200,
) -> dict:
    """Builds an index directory.

    Args:
        embeddings: str. Directory that `realm embed` wrote.
        output: str. Directory to make.
        kind: str. `"scann"` or `"brute_force"`. Defaults to `"scann"`.
        reordering: str. Of ScaNN: `"float32"` or `"int8"`. Defaults to
            `"float32"`.
        num_reordered: int. Of ScaNN, from 20,000 blocks on. Defaults to
            `200`.

    Returns:
        dict, the metadata, with the measured recall@5.
    """
    metadata = stages.read(embeddings, kind=schema.EMBEDDINGS)
    rows = read_embeddings(embeddings)
    parameters = {"kind": kind}
    if kind == "scann":
        parameters.update(reordering=reordering, num_reordered=num_reordered)
    with stages.write(
        output,
        kind=schema.INDEX,
        parameters=parameters,
        parents=metadata["parents"],
    ) as stage:
        _save_array(stage.path(_EMBEDDINGS), rows)
        recall, num_queries = 1.0, 0
        if kind == "scann":
            from realm_tf.retrieval.scann import Scann

            index = Scann.build(
                rows, reordering=reordering, num_reordered=num_reordered
            )
            for name, array in index.state().items():
                _save_array(stage.path(f"scann-{name}.npy"), array)
            recall, num_queries = measure_recall(index, rows, k=5)
            index.close()
        stage.metadata.update(
            num_blocks=len(rows),
            embedding_dim=rows.shape[1],
            fingerprint=stages.fingerprint(
                metadata["fingerprint"], str(sorted(parameters.items()))
            ),
            recall_queries=num_queries,
            **{"recall@5": round(recall, 4)},
        )
    return stages.read(output, kind=schema.INDEX)


def measure_recall(
    index: Index, rows: np.ndarray, *, k: int, num_queries: int = 200
):
    """Recall of an index against brute force, on blocks as queries.

    Args:
        index: `Index`.
        rows: float array `(num_blocks, embedding_dim)`. What it indexes.
        k: int. Neighbours, at most the number of blocks.
        num_queries: int. Blocks drawn with a fixed seed. Defaults to `200`.

    Returns:
        `(recall, num_queries)`: the share of the true `k` best that the
        index finds.
    """
    from realm_tf.retrieval.brute_force import BruteForce

    k = min(k, len(rows))
    chosen = np.random.default_rng(0).permutation(len(rows))[:num_queries]
    queries = np.asarray(rows[np.sort(chosen)], "float32")
    found = np.asarray(index.search(queries, k)[1])
    truth = np.asarray(BruteForce(rows).search(queries, k)[1])
    shared = [
        len(set(a) & set(b)) / k
        for a, b in zip(found.tolist(), truth.tolist(), strict=True)
    ]
    return float(np.mean(shared)), len(queries)


def load(directory: str, *, for_export: bool = False) -> Index:
    """Opens an index directory.

    Args:
        directory: str. Written by `realm index`.
        for_export: bool. Give an index whose search can be saved in a
            SavedModel. Defaults to `False`.

    Returns:
        `BruteForce` or `Scann`.
    """
    metadata = stages.read(directory, kind=schema.INDEX)
    parameters = metadata["parameters"]
    if parameters["kind"] == "brute_force":
        from realm_tf.retrieval.brute_force import BruteForce

        return BruteForce(load_embeddings(directory))
    from realm_tf.retrieval import scann

    state = {
        name: _load_array(stages.join(directory, f"scann-{name}.npy"))
        for name in scann.STATE_NAMES
    }
    kind = scann.ExportedScann if for_export else scann.Scann
    return kind(
        state,
        num_blocks=metadata["num_blocks"],
        embedding_dim=metadata["embedding_dim"],
        reordering=parameters["reordering"],
        num_reordered=parameters["num_reordered"],
    )


def load_embeddings(directory: str) -> np.ndarray:
    """The embeddings inside an index directory."""
    stages.read(directory, kind=schema.INDEX)
    return _load_array(stages.join(directory, _EMBEDDINGS))


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
    metadata = stages.read(directory, kind=schema.INDEX)
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
    if not stages.exists(path):
        raise InputError(f"{path} is missing: make its directory again.")
    try:
        if not stages.is_remote(path):
            return np.load(path, mmap_mode="r", allow_pickle=False)
        import tensorflow as tf

        with tf.io.gfile.GFile(path, "rb") as file:
            return np.load(file, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(
            f"{path} is damaged ({error}): make its directory again."
        ) from error


def _save_array(path, array):
    if stages.is_remote(path):
        import tensorflow as tf

        with tf.io.gfile.GFile(path, "wb") as file:
            np.save(file, array)
    else:
        np.save(path, array)
