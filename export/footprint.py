"""What an index and an export need of the machine that makes them.

Lines through what was measured (docs/measurements/corpus.md): building indexes of
3,000,000 blocks of 128 numbers and of 1,000,000 of 384, within an eighth;
exports of 200,000 and of 400,000 passages of 116 wordpieces, within 5 %.
"""

from realm_tf.retrieval.scann import Scann
from realm_tf.training.footprint import FLOAT32
from realm_tf.training.footprint import Need
from realm_tf.training.footprint import Sizes

# Of building an index: bytes of the process, and of ScaNN for each byte of the
# rows, while it builds and afterwards.
_PROCESS = 0.5e9
_SCANN_BUILT, _SCANN_THERE = 2.9, 1.95
# Of an export: bytes of the process; of a wordpiece, with its text and places,
# in memory and written; of what a kind of search makes of a byte of the rows.
_EXPORTING = 0.85e9
_EXPORTED_WORDPIECE, _WRITTEN_WORDPIECE = 14.3, 11.9
_EXPORTED_ROWS = {"brute_force": 0.0, "ivf": 1.05, "scann": 1.15}


def index(num_blocks: int, embedding_dim: int, kind: str):
    """Of `realm index`, on one machine.

    Memory is beside the file of the embeddings, which is mapped.

    Args:
        num_blocks: int.
        embedding_dim: int.
        kind: str. One of `retrieval.index.KINDS`.

    Returns:
        `Need`.
    """
    rows = num_blocks * embedding_dim * FLOAT32
    memory = {"the process itself": _PROCESS}
    if kind == "ivf":
        memory["rows by partition"] = rows
    elif kind == "scann":
        num_parts = Scann.resolve(num_blocks)["num_parts"]
        memory["the part that is built"] = _SCANN_BUILT * rows / num_parts
        memory["parts that are there"] = (
            _SCANN_THERE * rows * (1 - 1 / num_parts)
        )
    return Need(
        memory=memory,
        disk={
            "embeddings": rows,
            **_search_state(num_blocks, embedding_dim, kind),
        },
        flop=0.0,
        num_steps=0,
    )


def export(
    sizes: Sizes,
    num_blocks: int,
    *,
    kind: str,
    block_length: int,
):
    """Of `realm export`, on one machine, of blocks as long as given.

    Args:
        sizes: `Sizes`.
        num_blocks: int.
        kind: str. Of the index; see `index`.
        block_length: int. Wordpieces.

    Returns:
        `Need`.
    """
    wordpieces = num_blocks * block_length
    state = _search_state(num_blocks, sizes.embedding_dim, kind)
    rows = num_blocks * sizes.embedding_dim * FLOAT32
    towers = 1 if sizes.share_embedders else 2
    weights = towers * sizes.tower_weights + sizes.encoder_weights
    memory = {
        "the process itself": _EXPORTING,
        "towers and reader": weights * sizes.value_bytes,
        "texts and wordpieces": wordpieces * _EXPORTED_WORDPIECE,
        "search": rows * _EXPORTED_ROWS[kind],
    }
    disk = {
        "towers and reader": weights * sizes.value_bytes,
        "embeddings": rows,
        **state,
        "texts and wordpieces": wordpieces * _WRITTEN_WORDPIECE,
    }
    return Need(memory=memory, disk=disk, flop=0.0, num_steps=0)


def _search_state(num_blocks, embedding_dim, kind):
    """What an index has on the disk beside the embeddings."""
    if kind == "ivf":
        return {"partitions": 4 * num_blocks}
    if kind == "scann":
        return {"codes": num_blocks * (embedding_dim / 2 + 4)}
    return {}
