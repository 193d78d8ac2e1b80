"""Checkpoints that people have, opened: the parts of a model in them."""

import dataclasses

import numpy as np

from realm_tf.artifacts import fingerprints
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.assignment import assign
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.reader import Reader

# Parts that a checkpoint can hold, and what is made of them over its BERT.
BERT = "bert"
ENCODER = "encoder"
EMBEDDER = "embedder"
QUERY_EMBEDDER = "query_embedder"
READER = "reader"
_CLASSES = {
    ENCODER: KnowledgeAugmentedEncoder,
    EMBEDDER: Embedder,
    READER: Reader,
}

# The vocabulary and more, in what transformers 5 writes.
TOKENIZER = "tokenizer.json"


@dataclasses.dataclass(frozen=True)
class Embedding:
    """How a tower makes an embedding of what its BERT gives.

    Args:
        pooling: str. See `Embedder`, as the next two.
        projection_dim: int or `None`.
        normalize: bool.
        query_prefix: str. What is read before a question.
        block_prefix: str. What is read before a block.
    """

    pooling: str = "cls"
    projection_dim: int | None = 128
    normalize: bool = False
    query_prefix: str = ""
    block_prefix: str = ""


@dataclasses.dataclass(frozen=True)
class BlockEmbeddings:
    """Published embeddings of all blocks, read in pieces.

    Args:
        tensors: `Tensors`.
        name: str. Of the tensor.
    """

    tensors: Tensors
    name: str

    @property
    def num_rows(self) -> int:
        """Number of blocks."""
        return self.tensors.shape(self.name)[0]

    def read(self, start: int, limit: int) -> np.ndarray:
        """float32 rows.

        Raises:
            InputError: if one holds NaN or infinity.
        """
        rows = np.asarray(self.tensors.read(self.name, start, limit), "float32")
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            raise InputError(
                f"{self.tensors.source}: row {start + int(finite.argmin())} "
                f"of {self.name} holds NaN or infinity."
            )
        return rows


@dataclasses.dataclass(frozen=True)
class Source:
    """A checkpoint that was opened.

    Args:
        directory: str. Where it is, for files beside it.
        makers: dict. Name of each part, such as `BERT`, to the function
            without arguments that makes it with its weights.
        files: tuple of str. Those that hold the weights.
        ignored: dict of tensor name to the reason why it is not read. Makers
            may add to it.
        block_embeddings: `BlockEmbeddings`. Defaults to `None`.
        name: str. What the user calls it. Defaults to `directory`.
        embedding: `Embedding`. Of a BERT that was trained to embed. Defaults to
            `None`.
    """

    directory: str
    makers: dict
    files: tuple[str, ...]
    ignored: dict = dataclasses.field(default_factory=dict)
    block_embeddings: BlockEmbeddings | None = None
    name: str | None = None
    embedding: Embedding | None = None

    def __str__(self):
        return self.name or self.directory

    def checksums(self) -> tuple[tuple[str, str], ...]:
        """Each file of weights with its SHA-256."""
        return tuple(
            (
                path.replace(self.directory, str(self), 1),
                fingerprints.sha256(path),
            )
            for path in self.files
        )


def make_part(part: str, config: dict, mapping: dict, tensors: Tensors, **head):
    """A part of a checkpoint with its weights.

    Args:
        part: str. Such as `BERT`.
        config: dict. Arguments of `BertEncoder`.
        mapping: dict. See `assign`.
        tensors: `Tensors`.
        **head: more arguments of the class of the part.

    Raises:
        InputError: see `assign`.
    """
    model = BertEncoder(**config)
    if part != BERT:
        model = _CLASSES[part](model, **head)
    assign(model, mapping, tensors)
    return model


def add_maker(makers: dict, part: str, make, directory: str):
    """Adds to `Source.makers`.

    Raises:
        InputError: if the part is there already.
    """
    if part in makers:
        raise InputError(
            f"{directory} holds a second {part}: give one --source a part."
        )
    makers[part] = make


def bert_sizes(tensors: Tensors, *, words, positions, intermediate) -> dict:
    """Arguments of `BertEncoder` that the shapes of tensors give.

    Args:
        tensors: `Tensors`.
        words: str. Name of the word embeddings.
        positions: str. Name of the position embeddings.
        intermediate: str. Name of a layer's first feed-forward kernel.

    Raises:
        InputError: if one of them is missing.
    """
    vocabulary_size, hidden_dim = tensors.shape(words)
    return {
        "vocabulary_size": vocabulary_size,
        "hidden_dim": hidden_dim,
        "intermediate_dim": tensors.shape(intermediate)[1],
        "max_sequence_length": tensors.shape(positions)[0],
    }
