"""What an index and an export need of the machine that makes them.

Lines through what was measured (docs/measurements/corpus.md): building indexes of
3,000,000 blocks of 128 numbers and of 1,000,000 of 384, within an eighth;
exports of 200,000 and of 400,000 passages of 116 wordpieces, within 5 %.
"""

from realm_tf.retrieval.scann import Scann

_FLOAT32, _BFLOAT16 = 4, 2
# Of building an index: bytes of the process, and of ScaNN for each byte of the
# rows, while it builds and afterwards.
_PROCESS = 0.5e9
_SCANN_BUILT, _SCANN_THERE = 2.9, 1.95
# Of an export: bytes of the process; of a wordpiece, with its text and places,
# in memory and written; of what a kind of search makes of a byte of the rows.
_EXPORTING = 0.85e9
_EXPORTED_WORDPIECE, _WRITTEN_WORDPIECE = 14.3, 11.9
_EXPORTED_ROWS = {"brute_force": 0.0, "ivf": 1.05, "scann": 1.15}


def index(config: dict, num_blocks: int, *, kind: str, block_length: int):
    """Of `realm index`, on one machine.

    Memory is beside the file of the embeddings, which is mapped.

    Args:
        config: dict. Of a model directory.
        num_blocks: int.
        kind: str. One of `retrieval.index.KINDS`.
        block_length: int. Not read: an index holds no wordpieces.

    Returns:
        dict: `memory` and `disk`, what for to bytes.
    """
    dim = _embedding_dim(config)
    rows = num_blocks * dim * _FLOAT32
    memory = {"the process itself": _PROCESS}
    if kind == "ivf":
        memory["rows by partition"] = rows
    elif kind == "scann":
        num_parts = Scann.resolve(num_blocks)["num_parts"]
        memory["the part that is built"] = _SCANN_BUILT * rows / num_parts
        memory["parts that are there"] = (
            _SCANN_THERE * rows * (1 - 1 / num_parts)
        )
    state = _search_state(num_blocks, dim, kind)
    return {"memory": memory, "disk": {"embeddings": rows, **state}}


def export(config: dict, num_blocks: int, *, kind: str, block_length: int):
    """Of `realm export`, on one machine, of blocks as long as given.

    Args:
        config: dict. Of a model directory.
        num_blocks: int.
        kind: str. Of the index; see `index`.
        block_length: int. Wordpieces.

    Returns:
        dict: `memory` and `disk`, what for to bytes.
    """
    dim = _embedding_dim(config)
    wordpieces = num_blocks * block_length
    rows = num_blocks * dim * _FLOAT32
    parts = ["query_embedder", "block_embedder", "reader"]
    if config["share_embedders"]:
        parts.remove("block_embedder")
    weights = _BFLOAT16 * sum(
        _num_weights(**config[part]["encoder"]) for part in parts
    )
    memory = {
        "the process itself": _EXPORTING,
        "towers and reader": weights,
        "texts and wordpieces": wordpieces * _EXPORTED_WORDPIECE,
        "search": rows * _EXPORTED_ROWS[kind],
    }
    disk = {
        "towers and reader": weights,
        "embeddings": rows,
        **_search_state(num_blocks, dim, kind),
        "texts and wordpieces": wordpieces * _WRITTEN_WORDPIECE,
    }
    return {"memory": memory, "disk": disk}


def _embedding_dim(config):
    tower = config["query_embedder"]
    return tower["projection_dim"] or tower["encoder"]["hidden_dim"]


def _num_weights(
    *,
    vocabulary_size,
    num_layers,
    hidden_dim,
    intermediate_dim,
    max_sequence_length=512,
    **_,
):
    """Of an encoder with its pooler."""
    products = 4 * hidden_dim**2 + 2 * hidden_dim * intermediate_dim
    layer = products + 9 * hidden_dim + intermediate_dim
    # Two segments, gain and bias of the norm; the pooler, its bias.
    rows = vocabulary_size + max_sequence_length + 4 + hidden_dim + 1
    return rows * hidden_dim + num_layers * layer


def _search_state(num_blocks, embedding_dim, kind):
    """What an index has on the disk beside the embeddings."""
    if kind == "ivf":
        return {"partitions": 4 * num_blocks}
    if kind == "scann":
        return {"codes": num_blocks * (embedding_dim / 2 + 4)}
    return {}
