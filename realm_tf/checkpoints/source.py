"""Checkpoints that people have, opened: the parts of a model in them."""

import dataclasses
import json
import os

import numpy as np

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts import hubs
from realm_tf.artifacts.paths import Path
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

_VOCABULARIES = ("vocab.txt", "assets/vocab.txt")
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


def open_source(kind: str, source: str, num_heads: int | None = None) -> Source:
    """Opens a checkpoint.

    Args:
        kind: str. `"hf"`, `"tf1"` or `"garden"`.
        source: str. A local directory; of the first also the address of one,
            see `artifacts.hubs`, of the last two also the prefix of a
            checkpoint.
        num_heads: int. Attention heads of `"tf1"`, whose files do not say it;
            see `tf1.bert_config`.

    Returns:
        `Source`.

    Raises:
        InputError: if something is missing, damaged or of no known kind.
    """
    if kind == "hf":
        from realm_tf.checkpoints import hugging_face

        return hugging_face.open_source(source)
    if hubs.is_address(source):
        raise InputError(
            f"{source}: what is read from the hub is in Hugging Face's form, "
            f'"hf", and not "{kind}".'
        )
    if kind == "tf1":
        from realm_tf.checkpoints import tf1

        return tf1.open_source(source, num_heads)
    from realm_tf.checkpoints import model_garden

    return model_garden.open_source(source)


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


def find(directories, *names) -> str | None:
    """The first of some files in some directories, or `None`."""
    for directory in directories:
        for name in names:
            path = os.path.join(directory, name)
            if os.path.exists(path):
                return path
    return None


def find_tokenizer(directories, vocab: str | None = None, *, cased=False):
    """The tokenizer of a checkpoint.

    Args:
        directories: list of str. Where its vocab.txt may be, or Hugging Face's
            tokenizer.json, and their tokenizer_config.json.
        vocab: str. Another vocab.txt. Defaults to `None`.
        cased: bool. Whether it is a cased BERT's, whatever a
            tokenizer_config.json says. Defaults to `False`.

    Returns:
        `Tokenizer`.

    Raises:
        InputError: if there is none.
    """
    from realm_tf.text.tokenizer import Tokenizer

    path = vocab or find(directories, *_VOCABULARIES, TOKENIZER)
    if not path:
        raise InputError(
            f"{', '.join(directories)} holds no vocab.txt: name that of its "
            "BERT with --vocab."
        )
    said = find(directories, "tokenizer_config.json")
    if said:
        try:
            config = json.loads(Path(said).read_text())
        except ValueError as error:
            raise InputError(f"{said} is not JSON ({error}).") from error
        cased = cased or not config.get("do_lower_case", True)
    if os.path.basename(path) == TOKENIZER:
        wordpieces, lowercase = _read_tokenizer(path)
        return Tokenizer(wordpieces, lowercase=lowercase and not cased)
    return Tokenizer.from_file(path, lowercase=not cased)


def _read_tokenizer(path):
    """Of a tokenizer.json, the vocabulary in the order of its ids, and whether
    texts are lower-cased."""
    try:
        content = json.loads(Path(path).read_text())
        model, normalizer = content["model"], content.get("normalizer") or {}
        kind, ids = model.get("type", "WordPiece"), dict(model["vocab"])
        lowercase = normalizer.get("lowercase", True)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is no tokenizer of Hugging Face's ({error!r})."
        ) from error
    if kind != "WordPiece" or sorted(ids.values()) != list(range(len(ids))):
        raise InputError(
            f"{path} is of the kind {kind}, of {len(ids):,} pieces: expected "
            "WordPiece, a BERT's, with ids from 0 on."
        )
    return sorted(ids, key=ids.get), lowercase


def find_header(directories) -> dict:
    """What the header of a README.md says: `license` and `languages`."""
    from realm_tf.artifacts import model_card

    path = find(directories, "README.md")
    return model_card.read_header(Path(path).read_text()) if path else {}
