"""What `realm init --set` changes of an initial model."""

import dataclasses

from realm_tf.configs.recipes import Natural
from realm_tf.configs.recipes import Positive
from realm_tf.configs.recipes import Recipe


@dataclasses.dataclass(frozen=True)
class FromBert(Recipe):
    """A model that begins with a BERT.

    Args:
        num_heads: int. Attention heads, of `tf1`, whose files do not say it. 0
            takes one for each 64 of the width.
        projection_dim: int. Width of the embeddings. 0 takes what the source
            says, or 128 as the paper.
        cosine: bool. Embed as MiniLM does: the mean of the wordpieces without
            projection, compared by 20 times the cosine. It learns from less.
        dot: bool. Compare embeddings by inner products, not by cosines, though
            the source does not say so, as multi-qa-mpnet-base-dot-v1.
        query_prefix: str. Text before each question, such as "query: " of E5.
            Empty takes what the source says.
        block_prefix: str. Text before each block, such as "passage: " of E5.
    """

    num_heads: Natural = 0
    projection_dim: Natural = 0
    cosine: bool = False
    dot: bool = False
    query_prefix: str = ""
    block_prefix: str = ""


@dataclasses.dataclass(frozen=True)
class Random(Recipe):
    """A model of random weights.

    Args:
        num_layers: int. Transformer layers.
        num_heads: int. Attention heads.
        hidden_dim: int. Width.
        intermediate_dim: int. Width of the feed-forward layers.
        projection_dim: int. Width of the embeddings.
        cosine: bool. See `FromBert`.
        mimetic: bool. Begin with weights that resemble trained ones (equal
            queries and keys, positions of sines, larger embeddings). A narrow
            model then learns to copy in hundreds of steps instead of thousands.
    """

    num_layers: Positive = 2
    num_heads: Positive = 2
    hidden_dim: Positive = 128
    intermediate_dim: Positive = 512
    projection_dim: Positive = 128
    cosine: bool = False
    mimetic: bool = False
