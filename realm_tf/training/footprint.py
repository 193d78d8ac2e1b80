"""What training at a size needs: arithmetic, without a model or a device.

Each function gives a `Need`: bytes on each device by what they are for, bytes
on the disk, floating-point operations of a step, steps. Lengths are the
recipe's, so that all of it is an upper bound: what is shorter is padded less.

Weights: AdamW keeps two numbers for each that learns, and a gradient; all are
float32, and what computes in bfloat16 copies weights. Activations were fitted
to XLA's buffers of the gradient of `BertEncoder` (float32, jax 0.10, CPU; four
layers, 256 and 512 wide, 4 and 8 heads, 128 to 384 wordpieces; within 5 %): a
layer keeps 26 numbers a wordpiece and hidden unit, and 4.5 a pair of wordpieces
and head, as attention's scores are held; 2 of these in bfloat16 (jax 0.11, an
H100; BERT-base). With gradient checkpointing a layer keeps the inputs of its
four parts (`models.transformer_encoder`), and one at a time all of it. What an
H100 held of the paper's steps is in docs/measurements/training.md.
"""

import dataclasses
import math

FLOAT32 = 4
_HIDDEN = 26.0
# By bytes of a number.
_PAIRS = {2: 2.0, 4: 4.5}
_CHECKPOINTED_PARTS = 4
# Logits, their logarithms and gradients.
_LOGITS = 3
# uint16 in tables, int32 where they are looked up.
_WORDPIECE, _FOUND = 2, 4
# Forward, and twice that back; with checkpointing, forward again.
_TRAINED, _CHECKPOINTED = 3, 4


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of a model. Defaults to BERT-base with REALM's projection.

    Args:
        num_layers: int.
        hidden_dim: int.
        num_heads: int.
        intermediate_dim: int.
        vocabulary_size: int.
        num_positions: int.
        embedding_dim: int. Of blocks.
        share_embedders: bool. Whether both towers are one.
        value_bytes: int. 2: Transformer layers compute in bfloat16; 4: in
            float32.
    """

    num_layers: int = 12
    hidden_dim: int = 768
    num_heads: int = 12
    intermediate_dim: int = 3072
    vocabulary_size: int = 30_522
    num_positions: int = 512
    embedding_dim: int = 128
    share_embedders: bool = True
    value_bytes: int = 2

    @property
    def weight_bytes(self) -> int:
        """Of a weight, with its copy in bfloat16 where that computes."""
        copied = self.value_bytes if self.value_bytes < FLOAT32 else 0
        return FLOAT32 + copied

    @property
    def layer_weights(self) -> int:
        """Weights of all Transformer layers."""
        hidden, inner = self.hidden_dim, self.intermediate_dim
        products = 4 * hidden**2 + 2 * hidden * inner
        return self.num_layers * (products + 9 * hidden + inner)

    @property
    def encoder_weights(self) -> int:
        """Weights of a BERT with its pooler."""
        tables = self.vocabulary_size + self.num_positions + 4
        pooler = self.hidden_dim**2 + self.hidden_dim
        return tables * self.hidden_dim + self.layer_weights + pooler

    @property
    def tower_weights(self) -> int:
        """Weights of an embedder."""
        return self.encoder_weights + self.embedding_dim * (self.hidden_dim + 3)

    @property
    def head_weights(self) -> int:
        """Weights of the masked-LM head, whose table is the encoder's."""
        return self.hidden_dim**2 + 3 * self.hidden_dim + self.vocabulary_size

    def flop(self, rows: float, length: int) -> float:
        """Of one pass forward through the layers."""
        pairs = 4 * length * self.hidden_dim * self.num_layers
        return rows * length * (2 * self.layer_weights + pairs)

    def kept(self, rows: float, length: int) -> float:
        """Bytes that a layer keeps of a pass for its gradient."""
        pairs = _PAIRS[self.value_bytes] * self.num_heads * length
        numbers = _HIDDEN * self.hidden_dim + pairs
        return rows * length * numbers * self.value_bytes

    def kept_of_checkpoints(self, rows: float, length: int) -> float:
        """The same with gradient checkpointing."""
        numbers = _CHECKPOINTED_PARTS * self.hidden_dim
        return rows * length * numbers * self.value_bytes


@dataclasses.dataclass(frozen=True)
class Need:
    """What one run needs.

    Args:
        memory: dict. What for to bytes on each device.
        disk: dict. What for to bytes beside the inputs.
        flop: float. Of a step, all devices together.
        num_steps: int.
        builder_flop: float. To embed all blocks once. Defaults to 0: nobody
            does.
        builder_steps: int. Steps that this may take. Defaults to 0.
    """

    memory: dict[str, float]
    disk: dict[str, float]
    flop: float
    num_steps: int
    builder_flop: float = 0.0
    builder_steps: int = 0

    @property
    def device_bytes(self) -> float:
        """Bytes on each device."""
        return sum(self.memory.values())


def pretrain(recipe, sizes: Sizes, num_blocks: int, num_devices: int) -> Need:
    """Of `realm pretrain`.

    Args:
        recipe: `PretrainRecipe`.
        sizes: `Sizes`.
        num_blocks: int. Of the knowledge corpus.
        num_devices: int. That share each batch, and the tables of the corpus.
    """
    from realm_tf.models.realm import NUM_SPARE
    from realm_tf.retrieval.row_table import ROWS_AT_ONCE

    candidates, lengths = recipe.candidates, recipe.lengths
    rows = recipe.batch_size / num_devices
    found = candidates.num_retrieved
    passes = {
        "queries": (1, lengths.max_query_length),
        "blocks": (found, lengths.max_block_length),
        "joined": (1 + found, lengths.max_joint_length),
    }
    towers = 1 if sizes.share_embedders else 2
    weights = (
        towers * sizes.tower_weights
        + sizes.encoder_weights
        + sizes.head_weights
    )
    logits = recipe.masking.max_masked * sizes.vocabulary_size
    memory = {
        **_weights(weights, sizes),
        "activations": _kept(recipe, sizes, passes, rows),
        "logits": rows * (1 + found) * logits * FLOAT32 * _LOGITS,
    }
    memory |= _corpus(num_blocks / num_devices, sizes, lengths.max_block_length)
    memory["search"] = _search(
        recipe.batch_size,
        min(ROWS_AT_ONCE, num_blocks / num_devices),
        found + NUM_SPARE,
        lengths.max_block_length,
    )
    embeddings = num_blocks * sizes.embedding_dim * FLOAT32
    num_scored = num_blocks
    if candidates.search == "partitions":
        num_centroids, num_scored = _partitions(num_blocks)
        # Every device has all rows, and reads those of one query at a time.
        memory["embeddings"] = embeddings
        memory["search"] = _search(
            rows,
            num_centroids,
            found + NUM_SPARE,
            lengths.max_block_length,
        )
        memory["search"] += 2 * num_scored * sizes.embedding_dim * FLOAT32
        num_scored += num_centroids
    searched = 2.0 * num_scored * sizes.embedding_dim * recipe.batch_size
    refreshed = recipe.index.num_steps
    return Need(
        memory=memory,
        disk={
            "a saved state": 3 * weights * FLOAT32,
            # Of two states, that of the builders and their parts.
            "indices": (4 if refreshed else 1) * embeddings,
        },
        flop=_flop(recipe, sizes, passes, recipe.batch_size) + searched,
        num_steps=recipe.num_steps,
        builder_flop=bool(refreshed)
        * sizes.flop(num_blocks, lengths.max_block_length),
        builder_steps=refreshed,
    )


def ict(recipe, sizes: Sizes, num_blocks: int, num_devices: int) -> Need:
    """Of `realm ict`; as `pretrain`."""
    lengths, rows = recipe.lengths, recipe.batch_size / num_devices
    passes = {
        "queries": (1, lengths.max_query_length),
        "blocks": (1, lengths.max_block_length),
    }
    towers = 1 if sizes.share_embedders else 2
    weights = towers * sizes.tower_weights
    return Need(
        memory={
            **_weights(weights, sizes),
            "activations": _kept(recipe, sizes, passes, rows),
            "logits": rows * recipe.batch_size * FLOAT32 * _LOGITS,
        },
        disk={"a saved state": 3 * weights * FLOAT32},
        flop=_flop(recipe, sizes, passes, recipe.batch_size),
        num_steps=recipe.num_steps,
    )


def finetune(
    recipe,
    sizes: Sizes,
    num_blocks: int,
    *,
    num_questions: int,
    max_query_length: int,
    max_block_length: int,
    span_hidden_dim: int = 256,
    max_span_width: int = 10,
) -> Need:
    """Of `realm finetune`, which trains on one device; as `pretrain`.

    Args:
        recipe: `OpenQaRecipe`.
        sizes: `Sizes`.
        num_blocks: int.
        num_questions: int. To learn from.
        max_query_length: int. Of a question.
        max_block_length: int. Of a block.
        span_hidden_dim: int. See `Reader`. Defaults to `256`.
        max_span_width: int. See there. Defaults to `10`.
    """
    candidates = recipe.candidates
    whole = max_query_length + max_block_length
    length = min(candidates.max_joint_length or whole, whole)
    read = candidates.num_reader_blocks * recipe.train_reader
    passes = {"joined": (read, length)}
    weights = sizes.encoder_weights * recipe.train_reader
    if recipe.train_query_tower:
        passes["queries"] = (1, max_query_length)
        weights += sizes.tower_weights
    spans = read * length * max_span_width * span_hidden_dim
    return Need(
        memory={
            **_weights(weights, sizes),
            "activations": _kept(recipe, sizes, passes, recipe.batch_size),
            "spans": recipe.batch_size * spans * FLOAT32,
            **_corpus(num_blocks, sizes, max_block_length),
            "search": _search(
                recipe.batch_size,
                num_blocks,
                candidates.num_candidates,
                max_block_length,
            ),
        },
        disk={"a saved state": 3 * weights * FLOAT32},
        flop=_flop(recipe, sizes, passes, recipe.batch_size)
        + 2.0 * num_blocks * sizes.embedding_dim * recipe.batch_size,
        num_steps=recipe.num_epochs
        * math.ceil(num_questions / recipe.batch_size),
    )


def _weights(number, sizes):
    return {
        "weights": number * sizes.weight_bytes,
        "gradients": number * FLOAT32,
        "AdamW": 2 * number * FLOAT32,
    }


def _corpus(num_rows, sizes, max_block_length):
    # Titles are padded as bodies are.
    return {
        "embeddings": num_rows * sizes.embedding_dim * FLOAT32,
        "wordpieces": num_rows * 2 * max_block_length * _WORDPIECE,
    }


def _search(batch_size, rows_at_once, num_found, max_block_length):
    """Every device searches its rows for all queries, and looks them up."""
    scores = 2 * batch_size * rows_at_once * FLOAT32
    return scores + batch_size * num_found * max_block_length * _FOUND


def _partitions(num_blocks):
    """How many centroids there is room for, and rows that a query scores."""
    from realm_tf.retrieval.ivf import Ivf
    from realm_tf.retrieval.ivf import capacity

    numbers = Ivf.resolve(num_blocks)
    num_scored = math.ceil(
        num_blocks * numbers["num_probed"] / numbers["num_partitions"]
    )
    return capacity(numbers["num_partitions"]), num_scored


def _kept(recipe, sizes, passes, rows):
    shapes = [(rows * number, length) for number, length in passes.values()]
    layers = [sizes.kept(*shape) for shape in shapes]
    if not recipe.optimizer.gradient_checkpointing:
        return sizes.num_layers * sum(layers)
    inputs = sum(sizes.kept_of_checkpoints(*shape) for shape in shapes)
    return sizes.num_layers * inputs + max(layers)


def _flop(recipe, sizes, passes, batch_size):
    checkpointing = recipe.optimizer.gradient_checkpointing
    times = _CHECKPOINTED if checkpointing else _TRAINED
    return times * sum(
        sizes.flop(batch_size * number, length)
        for number, length in passes.values()
    )
