"""Models of Hugging Face's BERT and REALM checkpoints."""

import dataclasses
import functools
import os

import numpy as np

from realm_tf.checkpoints import tensor_files
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.assignment import assign
from realm_tf.checkpoints.hugging_face_names import HEAD
from realm_tf.checkpoints.hugging_face_names import encoder_config
from realm_tf.checkpoints.hugging_face_names import mapping
from realm_tf.checkpoints.hugging_face_names import read_config
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import QUERY_EMBEDDER
from realm_tf.checkpoints.source import READER
from realm_tf.checkpoints.source import BlockEmbeddings
from realm_tf.checkpoints.source import Source
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.reader import Reader

# Embeddings of all blocks, in a RealmForOpenQA: no weight of the model.
BLOCK_EMBEDDINGS = "block_emb"

_DESCRIPTIONS = {
    BERT: "a BERT",
    EMBEDDER: "an embedder",
    ENCODER: "a BERT with a masked-LM head",
    READER: "a reader",
}
# Of TensorFlow's names in the oldest files, such as bert-base-uncased's.
_OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}

CONFIG = "config.json"


def open_source(directory: str) -> Source:
    """The parts of a REALM or BERT in a directory.

    Args:
        directory: str. Local; see `open_checkpoint`.

    Returns:
        `Source`.

    Raises:
        InputError: see `open_checkpoint`.
    """
    checkpoint = open_checkpoint(directory)
    tensors = checkpoint.tensors
    has_rows = BLOCK_EMBEDDINGS in tensors.arrays
    return Source(
        directory,
        checkpoint.makers(),
        tensors.files,
        checkpoint.ignored,
        BlockEmbeddings(tensors, BLOCK_EMBEDDINGS) if has_rows else None,
    )


def open_checkpoint(directory: str):
    """Opens a directory with config.json and weights.

    Args:
        directory: str. Local.

    Returns:
        `Checkpoint`.

    Raises:
        InputError: if something is missing, damaged or of no known kind.
    """
    path = os.path.join(directory, CONFIG)
    if not os.path.isdir(directory):
        raise InputError(
            f"{directory} is no directory, and nothing is downloaded: fetch "
            f"it, such as by `hf download {directory} --local-dir DIR`, and "
            f"name the directory with {CONFIG}, weights and vocab.txt."
        )
    try:
        with open(path, encoding="utf-8") as file:
            config = read_config(file.read(), source=path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror or error}): it says what "
            "the weights beside it are."
        ) from error
    return Checkpoint(config, tensor_files.open_directory(directory))


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A BERT or some parts of a REALM as they were read.

    Each method makes a model with the weights; what it leaves out, and why,
    is added to `ignored`.

    Args:
        config: dict. The content of its config.json (`read_config`).
        tensors: `Tensors`.
        ignored: dict. Name of a tensor to the reason.

    Raises:
        InputError: if a tensor is of no known part.
    """

    config: dict
    tensors: Tensors
    ignored: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self.parts()

    def parts(self) -> dict:
        """What it holds: each part's name to the prefix of its tensors."""
        names = set(self.tensors.names())
        parts = {}
        for prefix in ("", "embedder.", "query_embedder.", "reader."):
            part = _part(names, prefix)
            if part:
                parts[part] = prefix
        unknown = {
            name
            for name in names - {BLOCK_EMBEDDINGS}
            if not name.startswith(tuple(parts.values()))
        }
        if unknown or not parts:
            some = ", ".join(sorted(unknown)[:5]) or "no tensor"
            raise InputError(
                f"{self.tensors.source} holds what is no part of a BERT or "
                f"REALM: {some}."
            )
        return parts

    def makers(self) -> dict:
        """`Source.makers`: the functions below, by part."""
        makers = {
            BERT: self.bert,
            EMBEDDER: self.embedder,
            QUERY_EMBEDDER: functools.partial(self.embedder, QUERY_EMBEDDER),
            READER: self.reader,
            ENCODER: self.knowledge_augmented_encoder,
        }
        parts = set(self.parts())
        if BERT in parts and f"{HEAD}bias" in self.tensors.arrays:
            parts.add(ENCODER)
        return {part: make for part, make in makers.items() if part in parts}

    def bert(self) -> BertEncoder:
        """A BERT, less its heads."""
        has_heads = _has_bert(self.tensors.arrays)
        return self._filled(
            self._bert(),
            BERT,
            BERT,
            prefix="bert." if has_heads else "",
            ignored={"cls.": "the encoder alone was asked for"}
            if has_heads
            else {},
        )

    def knowledge_augmented_encoder(self) -> KnowledgeAugmentedEncoder:
        """A BERT with its masked-LM head, or a `RealmKnowledgeAugEncoder`.

        Raises:
            InputError: if the head is not tied to the word embeddings.
        """
        is_realm = ENCODER in self.parts()
        home = ENCODER if is_realm else BERT
        prefix = "realm." if is_realm else "bert."
        return self._filled(
            KnowledgeAugmentedEncoder(self._bert()),
            ENCODER,
            home,
            prefix=prefix,
            ignored={
                **_tied(self._part(home), prefix),
                "cls.seq_relationship.": "REALM has no next-sentence head",
            },
        )

    def embedder(self, part: str = EMBEDDER) -> Embedder:
        """A `RealmEmbedder`, of `EMBEDDER` or of `QUERY_EMBEDDER`."""
        model = Embedder(
            self._bert(),
            projection_dim=self._part(part).shape("cls.dense.weight")[0],
            layer_norm_epsilon=self.config["layer_norm_eps"],
        )
        ignored = {HEAD: "no embedder reads its head"}
        return self._filled(model, EMBEDDER, part, ignored=ignored)

    def reader(self) -> Reader:
        """A `RealmReader`."""
        score = self._part(READER).shape("qa_outputs.dense_output.weight")
        model = Reader(
            self._bert(),
            span_hidden_dim=score[1],
            max_span_width=self.config.get("max_span_width", 10),
            layer_norm_epsilon=self.config.get("reader_layer_norm_eps", 1e-3),
        )
        ignored = {HEAD: "no reader reads its head"}
        return self._filled(model, READER, READER, ignored=ignored)

    def _bert(self):
        return BertEncoder(**encoder_config(self.config))

    def _part(self, part):
        """The tensors of a part, without its prefix, by their new names."""
        parts = self.parts()
        if part not in parts:
            raise InputError(
                f"{self.tensors.source} holds no {part}; it holds "
                f"{', '.join(parts)}."
            )
        prefix = parts[part]
        names = {}
        for name in self.tensors.names():
            if not name.startswith(prefix) or name == BLOCK_EMBEDDINGS:
                continue
            stem, dot, ending = name[len(prefix) :].rpartition(".")
            ending = _OLD_ENDINGS.get(dot + ending, dot + ending)
            names[stem + ending] = name
        return self.tensors.renamed(names)

    def _filled(self, model, kind, home, *, prefix="realm.", ignored):
        """A model of a kind with the weights of a part, its home.

        `ignored` is by beginnings of names.
        """
        tensors = self._part(home)
        reasons = {
            name: "only the numbers from 0"
            for name in tensors.names()
            if name.endswith("embeddings.position_ids")
        }
        for start, reason in ignored.items():
            names = [n for n in tensors.names() if n.startswith(start)]
            reasons |= dict.fromkeys(names, reason)
        not_read = assign(
            model,
            mapping(kind, self.config["num_hidden_layers"], prefix),
            tensors,
            what=_DESCRIPTIONS[kind],
            ignored=reasons,
        )
        # Two towers have tensors of the same names.
        self.ignored.update(
            {self.parts()[home] + name: why for name, why in not_read.items()}
        )
        return model


def _part(names, prefix):
    """What the tensors with a prefix are, or `None`."""
    if f"{prefix}qa_outputs.dense_output.weight" in names:
        return READER
    if f"{prefix}cls.dense.weight" in names:
        return QUERY_EMBEDDER if prefix == "query_embedder." else EMBEDDER
    if prefix:
        return None
    if "realm.embeddings.word_embeddings.weight" in names:
        return ENCODER
    is_bert = "embeddings.word_embeddings.weight" in names or _has_bert(names)
    return BERT if is_bert else None


def _has_bert(names):
    return "bert.embeddings.word_embeddings.weight" in names


def _tied(tensors, prefix):
    """Copies of tensors that some files hold, and some do not."""
    found = {}
    for copy, original in (
        ("decoder.weight", f"{prefix}embeddings.word_embeddings.weight"),
        ("decoder.bias", f"{HEAD}bias"),
    ):
        copy = f"{HEAD}{copy}"
        if not {copy, original} <= set(tensors.arrays):
            continue
        if not np.array_equal(tensors.read(copy), tensors.read(original)):
            raise InputError(
                f"{tensors.source}: {copy} differs from {original}. A head "
                "that is not tied to the word embeddings cannot be read."
            )
        found[copy] = f"equal to {original}"
    return found
