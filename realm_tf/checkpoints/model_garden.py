"""Weights of the TensorFlow Model Garden's BERT encoders, by one table.

Read are `BertEncoderV2` and `BertEncoder` of tf-models-official, alone or in
a larger model, and the masked-LM head of `BertPretrainerV2`, as
`tf.train.Checkpoint`, the Model Garden's trainer, its converters of TF1
checkpoints, `save_weights` of tf_keras and SavedModels (`variables/variables`)
keep them. None of it needs tf-models-official.

TF2 calls a variable by the shortest path of attributes that leads to it, so
its name depends on what is saved beside it. The word embeddings are

- `encoder/_embedding_layer/embeddings` in `tf.train.Checkpoint(encoder=...)`
  of a `BertEncoderV2`,
- `encoder/layer_with_weights-0/embeddings` of a `BertEncoder`,
- `masked_lm/embedding_table` in what the trainer writes of either,
- `variables/0` in a SavedModel,

each with `/.ATTRIBUTES/VARIABLE_VALUE` at its end. But a checkpoint also holds
the graph of its objects. So an encoder is found by searching there, and its
variables by their paths from the encoder on, as TensorFlow restores them.

What no variable tells is taken for granted: the tanh GELU (`activation` is for
others; in the masked-LM head it is the same), LayerNorm's epsilon of 1e-12 and
dropout of 0.1, the defaults there; and LayerNorm after each residual sum.
Encoders with `norm_first`, of the very same variables, are refused where the
trainer's params.yaml or a SavedModel's metadata betray them.

References:
    tensorflow/models, official/nlp/modeling/networks/bert_encoder.py,
    models/bert_pretrainer.py and layers/masked_lm.py.
    TensorFlow, tensorflow/core/protobuf/trackable_object_graph.proto.
"""

import dataclasses
import pathlib
import re

from realm_tf.checkpoints import assignment
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)

# The path from an encoder's object on: our path.
_TABLES = {
    "_embedding_layer/embeddings": "token_embedding/embeddings",
    "_position_embedding_layer/embeddings": "position_embedding/embeddings",
    "_type_embedding_layer/embeddings": "segment_embedding/embeddings",
}
# Each of these stands for a kernel and a bias, or a gamma and a beta.
_BERT = {
    "_embedding_norm_layer": "embeddings_layer_norm",
    "_pooler_layer": "pooled_dense",
}
# Below `_transformer_layers/N` and `transformer_layer_N`.
_LAYER = {
    "_attention_layer/_query_dense": "self_attention_layer/query",
    "_attention_layer/_key_dense": "self_attention_layer/key",
    "_attention_layer/_value_dense": "self_attention_layer/value",
    "_attention_layer/_output_dense": "self_attention_layer/attention_output",
    "_attention_layer_norm": "self_attention_layer_norm",
    "_intermediate_dense": "feedforward_intermediate_dense",
    "_output_dense": "feedforward_output_dense",
    "_output_layer_norm": "feedforward_layer_norm",
}
# Below the head's object.
_HEAD = {
    "dense": "masked_lm_head/intermediate_dense",
    "layer_norm": "masked_lm_head/intermediate_layer_norm",
}
_OUTPUT_BIAS = {"bias": "masked_lm_head/output_bias"}

# A functional `BertEncoder` has numbered layers: these, [a projection,] the
# Transformer layers and the pooler. That of tf-models-official 2.3 has no
# other attributes.
_FIRST_LAYERS = (
    "_embedding_layer",
    "_position_embedding_layer",
    "_type_embedding_layer",
    "_embedding_norm_layer",
)
_PROJECTION = "_embedding_projection"
_PART = re.compile(r"(_transformer_layers/\d+|\w+)/(.+)")

# Attributes of encoders that ours cannot be.
_VARIANTS = {
    _PROJECTION: "embeddings narrower than its layers (embedding_width)",
    "_pool_strides": "layers that pool the sequence (Funnel-Transformer)",
}
_NORM_FIRST = re.compile(rb'\bnorm_first"?: *true\b')

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# Parts of keys that are of no model, and what they are.
_ASIDE = {
    _GRAPH: "the graph of objects, by which the others are found",
    ".OPTIMIZER_SLOT": "a state of the optimizer",
    "optimizer": "a state of the optimizer",
    "keras_api": "a state of a metric",
    "OBJECT_CONFIG_JSON": "the configuration of an object",
    "save_counter": "the number of checkpoints saved",
    "global_step": "the number of training steps",
}
# Ours knows the query's and the block's. BertEncoderV2 makes 16 rows unless
# told otherwise.
_NUM_SEGMENTS = 2


def mapping(num_layers: int) -> dict:
    """Paths of an encoder's variables to `(our path, transform)`.

    Args:
        num_layers: int. Transformer layers.

    Returns:
        dict. Its keys are paths of attributes of a `BertEncoderV2`; see
        `assignment.assign` for its values.
    """
    pairs = dict(_BERT)
    for i in range(num_layers):
        for theirs, ours in _LAYER.items():
            pairs[f"_transformer_layers/{i}/{theirs}"] = (
                f"transformer_layer_{i}/{ours}"
            )
    return _same({**_TABLES, **_with_variables(pairs)})


def head_mapping() -> dict:
    """As `mapping`, for the attributes of a `MaskedLM`, the head."""
    return _same({**_with_variables(_HEAD), **_OUTPUT_BIAS})


def has_masked_lm_head(bundle, *, scope: str | None = None) -> bool:
    """Whether an encoder has a masked-LM head tied to its word embeddings.

    Args:
        bundle: `TensorBundle`.
        scope: str. See `make_bert`.

    Returns:
        bool.

    Raises:
        InputError: if there is no encoder or more than one.
    """
    return bool(_heads(_select(bundle, scope)))


def ignored_names(
    bundle, *, scope: str | None = None, masked_lm_head: bool = False
) -> dict:
    """What is not read of a checkpoint.

    Args:
        bundle: `TensorBundle`.
        scope: str. See `make_bert`.
        masked_lm_head: bool. Whether the head is read. Defaults to `False`.

    Returns:
        dict of tensor name to the reason, one phrase. What is in neither this
        dict nor what is read is unknown.

    Raises:
        InputError: if there is no encoder or more than one.
    """
    return _ignored(_select(bundle, scope), masked_lm_head)


def bert_config(
    bundle,
    *,
    scope: str | None = None,
    num_heads: int | None = None,
    activation: str = "gelu_approximate",
) -> dict:
    """The arguments of `BertEncoder` that variables' shapes tell.

    Args:
        bundle: `TensorBundle`.
        scope: str. See `make_bert`.
        num_heads: int. See `make_bert`.
        activation: str. See `make_bert`.

    Returns:
        dict.

    Raises:
        InputError: if there is no encoder or more than one, it is of a kind
            that ours cannot be, a variable that tells a size is missing or of
            another rank, or the heads are not `num_heads`.
    """
    return _config(_select(bundle, scope), num_heads, activation)


def make_bert(
    bundle,
    num_heads: int | None = None,
    *,
    scope: str | None = None,
    activation: str = "gelu_approximate",
) -> BertEncoder:
    """The encoder of a checkpoint, without its head.

    Of the embeddings of types the first two rows are taken, of segments 0
    and 1.

    Args:
        bundle: `TensorBundle`.
        num_heads: int. What the attention heads must be. Defaults to `None`:
            kernels tell.
        scope: str. Path of the encoder's object, such as `"encoder"`, where
            there are several. Defaults to `None`: the only one.
        activation: str. What `hidden_activation` was: `"gelu_approximate"` or
            `"gelu"`, the exact one. Defaults to `"gelu_approximate"`, which
            the Model Garden calls gelu.

    Returns:
        `BertEncoder` with the weights.

    Raises:
        InputError: see `bert_config`; or if a variable is missing, unknown,
            misshapen or not finite.
    """
    encoder = _select(bundle, scope)
    model = BertEncoder(**_config(encoder, num_heads, activation))
    return _fill(model, encoder, head=None)


def make_knowledge_augmented_encoder(
    bundle,
    num_heads: int | None = None,
    *,
    scope: str | None = None,
    activation: str = "gelu_approximate",
) -> KnowledgeAugmentedEncoder:
    """The encoder of a checkpoint with its masked-LM head.

    Args:
        bundle: `TensorBundle`.
        num_heads: int. See `make_bert`.
        scope: str. See `make_bert`.
        activation: str. Of the encoder and of the head. See `make_bert`.

    Returns:
        `KnowledgeAugmentedEncoder` with the weights.

    Raises:
        InputError: see `make_bert`; or if there is no such head.
    """
    encoder = _select(bundle, scope)
    heads = _heads(encoder)
    if len(heads) != 1:
        raise InputError(
            f"{bundle.source} holds {len(heads) or 'no'} masked-LM heads that "
            f"share the word embeddings of {encoder}, expected one. "
            "Save a BertPretrainerV2: "
            "tf.train.Checkpoint(**pretrainer.checkpoint_items)."
        )
    bert = BertEncoder(**_config(encoder, num_heads, activation))
    return _fill(KnowledgeAugmentedEncoder(bert), encoder, heads[0])


class _Objects:
    """The graph of a checkpoint's objects; a node is a number, the root 0."""

    def __init__(self, bundle):
        nodes = _read_graph(bundle).nodes
        self.bundle = bundle
        # Names of tensors to their nodes.
        self.tensors = {
            attribute.checkpoint_key: number
            for number, node in enumerate(nodes)
            for attribute in node.attributes
        }
        self._keys = {
            number: key
            for key, number in self.tensors.items()
            if key.endswith(_SUFFIX)
        }
        self._children = [
            {child.local_name: child.node_id for child in node.children}
            for node in nodes
        ]

    def children(self, node):
        """A node's attributes by name."""
        return self._children[node]

    def find(self, node, path):
        """The node at the end of a path, or `None`."""
        for name in path.split("/"):
            if node is not None:
                node = self.children(node).get(name)
        return node

    def key(self, node, scope, path):
        """The name of the variable at the end of a path from a node.

        If it is missing, what it would be called, the node being `scope`.
        """
        if node is not None:
            node = self.find(node, path)
        return self._keys.get(node) or f"{scope}/{path}{_SUFFIX}".lstrip("/")

    def paths(self):
        """The shortest path to each node from the root."""
        paths = {0: ""}
        # Grows while it is read.
        queue = [0]
        for node in queue:
            for name, child in self.children(node).items():
                if child not in paths:
                    paths[child] = f"{paths[node]}/{name}".lstrip("/")
                    queue.append(child)
        return paths

    def below(self, node):
        """All nodes that an object leads to, itself among them."""
        found, queue = {node}, [node]
        for node in queue:
            for name, child in self.children(node).items():
                if child not in found and name not in _ASIDE:
                    found.add(child)
                    queue.append(child)
        return found


@dataclasses.dataclass(frozen=True)
class _Encoder:
    """An encoder among the objects of a checkpoint.

    Args:
        objects: `_Objects`.
        node: int.
        scope: str. Its path from the root.
        parts: dict. Nodes of its layers by their paths in a `BertEncoderV2`.
    """

    objects: _Objects
    node: int
    scope: str
    parts: dict

    def __str__(self):
        return f"the encoder {self.scope!r}" if self.scope else "the encoder"

    def num_layers(self):
        """Transformer layers; one that is missing counts too."""
        numbers = [
            int(path.removeprefix("_transformer_layers/"))
            for path in self.parts
            if re.fullmatch(r"_transformer_layers/\d+", path)
        ]
        return max(numbers, default=0) + 1

    def key(self, path):
        """The name of a variable, by its path in a `BertEncoderV2`."""
        part, rest = _PART.fullmatch(path).groups()
        scope = f"{self.scope}/{part}".lstrip("/")
        return self.objects.key(self.parts.get(part), scope, rest)

    def shape(self, path, rank):
        """The shape of a variable."""
        bundle, key = self.objects.bundle, self.key(path)
        if key not in bundle.names():
            raise InputError(f"{bundle.source} lacks the tensor {key}.")
        shape = bundle.shape(key)
        if len(shape) != rank or 0 in shape:
            raise InputError(
                f"{bundle.source}: {key} has the shape {shape}, expected "
                f"{rank} dimensions, none of them 0."
            )
        return shape


@dataclasses.dataclass(frozen=True)
class _TwoSegments:
    """A checkpoint of which one table is cut to its first two rows.

    Args:
        bundle: `TensorBundle`.
        table: str. Name of the table's tensor.
    """

    bundle: object
    table: str

    def names(self):
        return self.bundle.names()

    def shape(self, name):
        shape = self.bundle.shape(name)
        if name == self.table and shape:
            return (min(shape[0], _NUM_SEGMENTS), *shape[1:])
        return shape

    def read(self, name):
        values = self.bundle.read(name)
        return values[:_NUM_SEGMENTS] if name == self.table else values


def _read_graph(bundle):
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    if _GRAPH not in bundle.names():
        raise InputError(
            f"{bundle.source} has no graph of objects ({_GRAPH}): expected a "
            "checkpoint of TF2, as tf.train.Checkpoint writes it, not one of "
            "TF1's tf.train.Saver."
        )
    # Not item(), which would drop zero bytes at the end.
    content = bundle.read(_GRAPH).tobytes()
    try:
        return trackable_object_graph_pb2.TrackableObjectGraph.FromString(
            content
        )
    except DecodeError as error:
        raise InputError(
            f"{bundle.source}: {_GRAPH} is damaged ({error}). Fetch the "
            "checkpoint again."
        ) from error


def _select(bundle, scope):
    """The only encoder, or that of a scope, if it is one as ours."""
    objects = _Objects(bundle)
    encoders = [
        _Encoder(objects, node, path, _parts(objects, node))
        for node, path in objects.paths().items()
        if _is_encoder(objects, node)
    ]
    found = [e for e in encoders if scope in (None, e.scope)]
    if not found:
        where = "" if scope is None else f" in the scope {scope!r}"
        others = [e.scope for e in encoders] or sorted(objects.children(0))
        raise InputError(
            f"{bundle.source} does not hold an encoder{where}. Expected the "
            "objects of the Model Garden's BertEncoderV2 or BertEncoder. "
            f"Found: {', '.join(others)}."
        )
    if len(found) > 1:
        raise InputError(
            f"{bundle.source} holds an encoder more than once. Choose one of "
            f"the scopes {sorted(e.scope for e in found)}."
        )
    _refuse_variants(found[0])
    return found[0]


def _is_encoder(objects, node):
    children = objects.children(node)
    return {"_embedding_layer", "_transformer_layers"} <= set(children) or any(
        name.startswith("layer_with_weights-")
        and _is_transformer_layer(objects, child)
        for name, child in children.items()
    )


def _parts(objects, node):
    """Nodes of an encoder's layers by their paths in a `BertEncoderV2`."""
    parts = dict(objects.children(node))
    numbered = []
    while f"layer_with_weights-{len(numbered)}" in parts:
        numbered.append(parts[f"layer_with_weights-{len(numbered)}"])
    if numbered:
        layers = [n for n in numbered if _is_transformer_layer(objects, n)]
        others = [n for n in numbered if n not in layers]
        names = list(_FIRST_LAYERS)
        if layers and numbered.index(layers[0]) > len(names):
            names.append(_PROJECTION)
        parts = dict(zip([*names, "_pooler_layer"], others, strict=False))
        layers = dict(enumerate(layers))
    else:
        layers = objects.children(parts.pop("_transformer_layers"))
    return parts | {
        f"_transformer_layers/{number}": layer
        for number, layer in layers.items()
    }


def _is_transformer_layer(objects, node):
    return "_attention_layer" in objects.children(node)


def _refuse_variants(encoder):
    source = encoder.objects.bundle.source
    children = encoder.objects.children(encoder.node)
    for attribute, what in _VARIANTS.items():
        if attribute in {*children, *encoder.parts}:
            raise InputError(
                f"{source}: {encoder} has {what}, which is not read here. "
                "Expected a BertEncoderV2 without."
            )
    # Of the trainer, and of a SavedModel, whose variables are below it.
    directory = pathlib.Path(source).parent
    for path in (
        directory / "params.yaml",
        directory.parent / "keras_metadata.pb",
    ):
        if path.is_file() and _NORM_FIRST.search(path.read_bytes()):
            raise InputError(
                f"{source}: the encoder has LayerNorm before attention and "
                f"feed-forward layers (norm_first in {path}), which is not "
                "read here. Expected a BertEncoderV2 with norm_first=False."
            )


def _heads(encoder):
    """Nodes of the masked-LM heads over an encoder's word embeddings."""
    objects = encoder.objects
    table = objects.tensors.get(encoder.key("_embedding_layer/embeddings"))
    return [
        node
        for node in objects.paths()
        if table is not None
        and {"dense", "layer_norm"} <= set(objects.children(node))
        and objects.children(node).get("embedding_table") == table
    ]


def _ignored(encoder, masked_lm_head):
    """Names of tensors that are not read, and the reasons."""
    objects = encoder.objects
    table = objects.tensors.get(encoder.key("_embedding_layer/embeddings"))
    heads = {n for head in _heads(encoder) for n in objects.below(head)}
    heads -= {table}
    own = objects.below(encoder.node) - heads
    reasons = {_GRAPH: _ASIDE[_GRAPH]}
    for key, node in objects.tensors.items():
        aside = set(key.split("/")) & set(_ASIDE)
        if aside:
            reasons[key] = _ASIDE[min(aside)]
        elif node in heads:
            if not masked_lm_head:
                reasons[key] = "that head is not read here"
        elif node not in own:
            reasons[key] = "it is of another part than the encoder"
    return reasons


def _config(encoder, num_heads, activation):
    source = encoder.objects.bundle.source
    vocabulary_size, width = encoder.shape("_embedding_layer/embeddings", 2)
    positions, _ = encoder.shape("_position_embedding_layer/embeddings", 2)
    layer = "_transformer_layers/0"
    query = f"{layer}/_attention_layer/_query_dense/kernel"
    hidden_dim, heads, head_dim = encoder.shape(query, 3)
    _, intermediate_dim = encoder.shape(
        f"{layer}/_intermediate_dense/kernel", 2
    )
    if not width == hidden_dim == heads * head_dim:
        raise InputError(
            f"{source}: {encoder} has embeddings of {width} dimensions and "
            f"{heads} attention heads of {head_dim} in layers of {hidden_dim}, "
            "expected the same width everywhere."
        )
    if num_heads not in (None, heads):
        raise InputError(
            f"{source}: {encoder} has {heads} attention heads. Received: "
            f"num_heads={num_heads}"
        )
    return {
        "vocabulary_size": vocabulary_size,
        "num_layers": encoder.num_layers(),
        "num_heads": heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
        "max_sequence_length": positions,
        "activation": activation,
        # tensorflow/models, official/nlp/modeling/networks/bert_encoder.py.
        "layer_norm_epsilon": 1e-12,
        "dropout": 0.1,
    }


def _fill(model, encoder, head):
    objects = encoder.objects
    bundle = objects.bundle
    keys = {
        encoder.key(path): target
        for path, target in mapping(encoder.num_layers()).items()
    }
    if head is not None:
        scope = objects.paths()[head]
        for path, target in head_mapping().items():
            keys[objects.key(head, scope, path)] = target
    assignment.assign(
        model,
        keys,
        _TwoSegments(bundle, encoder.key("_type_embedding_layer/embeddings")),
        source=bundle.source,
        what="a BERT" if head is None else "a BERT with its masked-LM head",
        ignored=_ignored(encoder, masked_lm_head=head is not None),
    )
    return model


def _with_variables(pairs):
    """Names of layers to those of the layers' variables."""
    return {
        f"{theirs}/{variable}": f"{ours}/{variable}"
        for theirs, ours in pairs.items()
        for variable in (
            ("gamma", "beta") if "norm" in theirs else ("kernel", "bias")
        )
    }


def _same(paths):
    return {theirs: (ours, "same") for theirs, ours in paths.items()}
