"""Checkpoints of Hugging Face's BERT and REALM, by one mapping table."""

import dataclasses
import json
import os

import numpy as np

from realm_tf.checkpoints import tensor_files
from realm_tf.checkpoints.assignment import assign
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.reader import Reader

# What a checkpoint can hold.
EMBEDDER = "embedder"
QUERY_EMBEDDER = "query_embedder"
READER = "reader"
ENCODER = "encoder"
BERT = "bert"
# Embeddings of all blocks, in a RealmForOpenQA: no weight of the model.
BLOCK_EMBEDDINGS = "block_emb"

# Hugging Face's name to ours. A dense layer is {weight, bias} there and
# {kernel, bias} here, a LayerNorm {weight, bias} and {gamma, beta}.
_TABLES = {
    "embeddings.word_embeddings": "token_embedding",
    "embeddings.position_embeddings": "position_embedding",
    "embeddings.token_type_embeddings": "segment_embedding",
}
_NORMS = {"embeddings.LayerNorm": "embeddings_layer_norm"}
_DENSE = {"pooler.dense": "pooled_dense"}
_LAYER_DENSE = {
    "attention.self.query": "self_attention_layer/query",
    "attention.self.key": "self_attention_layer/key",
    "attention.self.value": "self_attention_layer/value",
    "attention.output.dense": "self_attention_layer/attention_output",
    "intermediate.dense": "feedforward_intermediate_dense",
    "output.dense": "feedforward_output_dense",
}
_LAYER_NORMS = {
    "attention.output.LayerNorm": "self_attention_layer_norm",
    "output.LayerNorm": "feedforward_layer_norm",
}
_EMBEDDER_DENSE = {"cls.dense": "projection"}
_EMBEDDER_NORMS = {"cls.LayerNorm": "projection_layer_norm"}
_READER_DENSE = {
    "qa_outputs.dense_intermediate": "span_scorer/endpoints",
    "qa_outputs.dense_output": "span_scorer/score",
}
_READER_NORMS = {"qa_outputs.layer_normalization": "span_scorer/layer_norm"}
_HEAD = "cls.predictions."
_HEAD_DENSE = {f"{_HEAD}transform.dense": "masked_lm_head/intermediate_dense"}
_HEAD_NORMS = {
    f"{_HEAD}transform.LayerNorm": "masked_lm_head/intermediate_layer_norm"
}
_HEAD_BIAS = {f"{_HEAD}bias": ("masked_lm_head/output_bias", "as")}

# Our argument of `BertEncoder`: the name in config.json.
_CONFIG_NAMES = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
}
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approximate",
    "gelu_pytorch_tanh": "gelu_approximate",
}
# Of TensorFlow's names in the oldest files, such as bert-base-uncased's.
_OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}

CONFIG = "config.json"


def bert_mapping(num_layers: int, prefix: str = "") -> dict:
    """A BERT's tensor names to `(our path, transform)`.

    Args:
        num_layers: int. Transformer layers of the target.
        prefix: str. Before their names. Defaults to `""`.

    Returns:
        dict. The transform is `"as"` (reshape only) or `"transpose"`:
        PyTorch keeps a dense kernel as [out, in].
    """
    mapping = {
        f"{theirs}.weight": (f"{ours}/embeddings", "as")
        for theirs, ours in _TABLES.items()
    }
    mapping |= _layers(_DENSE, _NORMS)
    for i in range(num_layers):
        layer = _layers(_LAYER_DENSE, _LAYER_NORMS)
        mapping |= {
            f"encoder.layer.{i}.{theirs}": (
                f"transformer_layer_{i}/{ours}",
                transform,
            )
            for theirs, (ours, transform) in layer.items()
        }
    return {f"{prefix}{name}": target for name, target in mapping.items()}


def knowledge_augmented_encoder_mapping(
    num_layers: int, prefix: str = "realm."
) -> dict:
    """As `bert_mapping`, for a BERT with its masked-LM head."""
    return {
        **bert_mapping(num_layers, prefix),
        **_layers(_HEAD_DENSE, _HEAD_NORMS),
        **_HEAD_BIAS,
    }


def embedder_mapping(num_layers: int) -> dict:
    """As `bert_mapping`, for a `RealmEmbedder`."""
    return {
        **bert_mapping(num_layers, "realm."),
        **_layers(_EMBEDDER_DENSE, _EMBEDDER_NORMS),
    }


def reader_mapping(num_layers: int) -> dict:
    """As `bert_mapping`, for a `RealmReader`."""
    return {
        **bert_mapping(num_layers, "realm."),
        **_layers(_READER_DENSE, _READER_NORMS),
    }


def _layers(dense, norms):
    mapping = {}
    for theirs, ours in dense.items():
        mapping[f"{theirs}.weight"] = (f"{ours}/kernel", "transpose")
        mapping[f"{theirs}.bias"] = (f"{ours}/bias", "as")
    for theirs, ours in norms.items():
        mapping[f"{theirs}.weight"] = (f"{ours}/gamma", "as")
        mapping[f"{theirs}.bias"] = (f"{ours}/beta", "as")
    return mapping


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
            f"{directory} is no directory: expected one that Hugging Face's "
            f"libraries wrote, with {CONFIG} and weights."
        )
    try:
        with open(path, encoding="utf-8") as file:
            config = read_config(file.read(), source=path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror or error}): it says what "
            "the weights beside it are."
        ) from error
    tensors = tensor_files.open_directory(directory)
    return Checkpoint(config, tensors, tensors.source, tensors.files())


def read_config(text: str, *, source: str) -> dict:
    """The content of a config.json.

    Raises:
        InputError: if it is not JSON or not that of a BERT.
    """
    try:
        config = json.loads(text)
    except ValueError as error:
        raise InputError(f"{source} is not JSON ({error}).") from error
    needed = {"hidden_act", *_CONFIG_NAMES.values()}
    missing = needed - set(config if isinstance(config, dict) else ())
    if missing:
        raise InputError(
            f"{source} is no BERT's config.json: it lacks "
            f"{', '.join(sorted(missing))}."
        )
    if config["hidden_act"] not in _ACTIVATIONS:
        raise InputError(
            f"{source}: hidden_act {config['hidden_act']!r} is not one of "
            f"{sorted(_ACTIVATIONS)}."
        )
    return config


def encoder_config(config: dict) -> dict:
    """The arguments of `BertEncoder` that a config.json asks for.

    Args:
        config: dict. As `read_config` gives it.
    """
    return {
        "activation": _ACTIVATIONS[config["hidden_act"]],
        **{ours: config[theirs] for ours, theirs in _CONFIG_NAMES.items()},
    }


def from_encoder_config(config: dict) -> dict:
    """The inverse of `encoder_config`.

    Args:
        config: dict. `BertEncoder.get_config()`.
    """
    # The first name that gives it is the usual one.
    activation = next(
        theirs
        for theirs, ours in _ACTIVATIONS.items()
        if ours == config["activation"]
    )
    return {
        "hidden_act": activation,
        **{theirs: config[ours] for ours, theirs in _CONFIG_NAMES.items()},
    }


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A BERT or some parts of a REALM as they were read.

    Each method makes a model with the weights; what it leaves out, and why,
    is added to `ignored`.

    Args:
        config: dict. The content of its config.json (`read_config`).
        tensors: what has `names`, `shape` and `read`; see `tensor_files`.
        source: str. Where they come from, for messages.
        files: tuple of str. That hold them. Defaults to none.
        ignored: dict. Name of a tensor to the reason.

    Raises:
        InputError: if a tensor is of no known part.
    """

    config: dict
    tensors: object
    source: str
    files: tuple = ()
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
                f"{self.source} holds what is no part of a BERT or REALM: "
                f"{some}."
            )
        return parts

    def encoder(self) -> BertEncoder:
        """A BERT, less its heads."""
        encoder = self._bert()
        part = self._part(BERT)
        bert = "bert." if _has_bert(part.names()) else ""
        head = "the encoder alone was asked for"
        self._assign(
            encoder,
            bert_mapping(encoder.num_layers, bert),
            part,
            what="a BERT",
            ignored=_ignore(part, "cls.", head) if bert else {},
        )
        return encoder

    @property
    def has_masked_lm_head(self) -> bool:
        """Whether `knowledge_augmented_encoder` can be made."""
        return any(
            f"{prefix}{_HEAD}bias" in self.tensors.names()
            for part, prefix in self.parts().items()
            if part in (ENCODER, BERT)
        )

    def knowledge_augmented_encoder(self) -> KnowledgeAugmentedEncoder:
        """A BERT with its masked-LM head, or a `RealmKnowledgeAugEncoder`.

        Raises:
            InputError: if the head is not tied to the word embeddings.
        """
        part = self._part(ENCODER if ENCODER in self.parts() else BERT)
        bert = "realm." if ENCODER in self.parts() else "bert."
        model = KnowledgeAugmentedEncoder(self._bert())
        self._assign(
            model,
            knowledge_augmented_encoder_mapping(model.encoder.num_layers, bert),
            part,
            what="a BERT with a masked-LM head",
            ignored={
                **_tied(part, bert, self.source),
                **_ignore(
                    part,
                    "cls.seq_relationship.",
                    "REALM has no next-sentence head",
                ),
            },
        )
        return model

    def embedder(self, part: str = EMBEDDER) -> Embedder:
        """A `RealmEmbedder`, of `EMBEDDER` or of `QUERY_EMBEDDER`."""
        tensors = self._part(part)
        model = Embedder(
            self._bert(),
            projection_dim=tensors.shape("cls.dense.weight")[0],
            layer_norm_epsilon=self.config["layer_norm_eps"],
        )
        self._assign(
            model,
            embedder_mapping(model.encoder.num_layers),
            tensors,
            what="an embedder",
            ignored=_ignore(tensors, _HEAD, "no embedder reads its head"),
        )
        return model

    def reader(self) -> Reader:
        """A `RealmReader`."""
        tensors = self._part(READER)
        model = Reader(
            self._bert(),
            span_hidden_dim=tensors.shape("qa_outputs.dense_output.weight")[1],
            max_span_width=self.config.get("max_span_width", 10),
            layer_norm_epsilon=self.config.get("reader_layer_norm_eps", 1e-3),
        )
        self._assign(
            model,
            reader_mapping(model.encoder.num_layers),
            tensors,
            what="a reader",
            ignored=_ignore(tensors, _HEAD, "no reader reads its head"),
        )
        return model

    def _bert(self):
        return BertEncoder(**encoder_config(self.config))

    def _part(self, part):
        """The tensors of a part, without its prefix, by their new names."""
        parts = self.parts()
        if part not in parts:
            raise InputError(
                f"{self.source} holds no {part}; it holds {', '.join(parts)}."
            )
        prefix = parts[part]
        names = {}
        for name in self.tensors.names():
            if not name.startswith(prefix) or name == BLOCK_EMBEDDINGS:
                continue
            stem, dot, ending = name[len(prefix) :].rpartition(".")
            ending = _OLD_ENDINGS.get(dot + ending, dot + ending)
            names[stem + ending] = name
        return tensor_files.Renamed(self.tensors, names)

    def _assign(self, model, mapping, tensors, *, what, ignored):
        numbers = {
            name: "only the numbers from 0"
            for name in tensors.names()
            if name.endswith("embeddings.position_ids")
        }
        not_read = assign(
            model,
            mapping,
            tensors,
            source=self.source,
            what=what,
            ignored={**ignored, **numbers},
        )
        # By their own names: parts have tensors of the same name.
        self.ignored.update(
            {tensors.name_there(name): why for name, why in not_read.items()}
        )


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


def _ignore(tensors, start, reason):
    return {n: reason for n in tensors.names() if n.startswith(start)}


def _tied(tensors, prefix, source):
    """Copies of tensors that some files hold, and some do not."""
    found = {}
    for copy, original in (
        ("decoder.weight", f"{prefix}embeddings.word_embeddings.weight"),
        ("decoder.bias", f"{_HEAD}bias"),
    ):
        copy = f"{_HEAD}{copy}"
        if copy not in tensors.names() or original not in tensors.names():
            continue
        if not np.array_equal(tensors.read(copy), tensors.read(original)):
            raise InputError(
                f"{source}: {copy} differs from {original}. A head "
                "that is not tied to the word embeddings cannot be read."
            )
        found[copy] = f"equal to {original}"
    return found
