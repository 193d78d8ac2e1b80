"""What pre-training at a size needs: arithmetic, without a model or a device.

Lengths are the recipe's, so that every number is an upper bound.

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
    """What `realm pretrain` needs.

    Args:
        recipe: `PretrainRecipe`.
        sizes: `Sizes`.
        num_blocks: int. Of the knowledge corpus.
        num_devices: int. They share each batch and the tables of the corpus.
    """
    from realm_tf.models.realm import NUM_SPARE
    from realm_tf.retrieval.row_table import ROWS_AT_ONCE

    lengths, batch_size = recipe.lengths, recipe.batch_size
    found = recipe.num_retrieved
    # Rows of a query and their length: queries, blocks, both joined.
    passes = (
        (1, lengths.max_query_length),
        (found, lengths.max_block_length),
        (1 + found, lengths.max_joint_length),
    )
    towers = 1 if sizes.share_embedders else 2
    weights = (
        towers * sizes.tower_weights
        + sizes.encoder_weights
        + sizes.head_weights
    )
    rows = batch_size / num_devices
    own_blocks = num_blocks / num_devices
    num_logits = recipe.masking.max_masked * sizes.vocabulary_size
    # Every device searches its rows for all queries, and looks them up.
    num_scores = 2 * batch_size * min(ROWS_AT_ONCE, own_blocks)
    num_found = batch_size * (found + NUM_SPARE) * lengths.max_block_length
    memory = {
        "weights": weights * sizes.weight_bytes,
        "gradients": weights * FLOAT32,
        "AdamW": 2 * weights * FLOAT32,
        "activations": _kept(recipe, sizes, passes, rows),
        "logits": rows * (1 + found) * num_logits * FLOAT32 * _LOGITS,
        "embeddings": own_blocks * sizes.embedding_dim * FLOAT32,
        # Titles are padded as bodies are.
        "wordpieces": own_blocks * 2 * lengths.max_block_length * _WORDPIECE,
        "search": num_scores * FLOAT32 + num_found * _FOUND,
    }
    embeddings = num_blocks * sizes.embedding_dim * FLOAT32
    refreshed = recipe.index.refresh_every
    checkpointing = recipe.optimizer.gradient_checkpointing
    times = _CHECKPOINTED if checkpointing else _TRAINED
    learned = times * sum(
        sizes.flop(batch_size * number, length) for number, length in passes
    )
    return Need(
        memory=memory,
        disk={
            "a saved state": 3 * weights * FLOAT32,
            # Of two states, that of the builders and their parts.
            "indices": (4 if refreshed else 1) * embeddings,
        },
        flop=learned + 2.0 * num_blocks * sizes.embedding_dim * batch_size,
        num_steps=recipe.num_steps,
        builder_flop=bool(refreshed)
        * sizes.flop(num_blocks, lengths.max_block_length),
        builder_steps=refreshed,
    )


def _kept(recipe, sizes, passes, rows):
    """Bytes of the activations that the backward pass needs."""
    shapes = [(rows * number, length) for number, length in passes]
    layers = [sizes.kept(*shape) for shape in shapes]
    if not recipe.optimizer.gradient_checkpointing:
        return sizes.num_layers * sum(layers)
    inputs = sum(sizes.kept_of_checkpoints(*shape) for shape in shapes)
    return sizes.num_layers * inputs + max(layers)
