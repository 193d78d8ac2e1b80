"""Weights of the TensorFlow Model Garden's BERT encoders, by one table.

Read are checkpoints of TF2 that hold the objects of a `BertEncoderV2` or
`BertEncoder` of tf-models-official, alone or in a larger model, and of the
masked-LM head of `BertPretrainerV2` over it. Their graph of objects says which
variable is which; kernels are kept as Keras keeps them.

What no variable tells is taken for granted: the tanh GELU, LayerNorm's epsilon
of 1e-12 and dropout of 0.1, the defaults there; and LayerNorm after each
residual sum. Encoders with `norm_first`, of the very same variables, are
refused where the trainer's params.yaml tells.

References:
    tensorflow/models, official/nlp/modeling/networks/bert_encoder.py,
    models/bert_pretrainer.py and layers/masked_lm.py.
"""

import functools
import os
import re

from realm_tf.artifacts.paths import Path
from realm_tf.checkpoints import tf_checkpoint
from realm_tf.checkpoints.assignment import expand
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import Source
from realm_tf.checkpoints.source import make_part
from realm_tf.errors import InputError

# Our layer: the attribute of the Model Garden's.
_BERT_LAYERS = {
    "token_embedding": "_embedding_layer",
    "position_embedding": "_position_embedding_layer",
    "segment_embedding": "_type_embedding_layer",
    "embeddings_layer_norm": "_embedding_norm_layer",
    "pooled_dense": "_pooler_layer",
    **{
        f"transformer_layer_{{i}}/{ours}": f"_transformer_layers/{{i}}/{theirs}"
        for ours, theirs in {
            "self_attention_layer/query": "_attention_layer/_query_dense",
            "self_attention_layer/key": "_attention_layer/_key_dense",
            "self_attention_layer/value": "_attention_layer/_value_dense",
            "self_attention_layer/attention_output": (
                "_attention_layer/_output_dense"
            ),
            "self_attention_layer_norm": "_attention_layer_norm",
            "feedforward_intermediate_dense": "_intermediate_dense",
            "feedforward_output_dense": "_output_dense",
            "feedforward_layer_norm": "_output_layer_norm",
        }.items()
    },
}
_HEAD_LAYERS = {
    "masked_lm_head/intermediate_dense": "dense",
    "masked_lm_head/intermediate_layer_norm": "layer_norm",
    # Its name there is "output_bias/bias".
    "masked_lm_head/output_bias": "output_bias.Sbias",
}
_ENDINGS = {
    name: f"/{name}"
    for name in ("embeddings", "kernel", "bias", "gamma", "beta")
}
_SEGMENTS = "_type_embedding_layer/embeddings"

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_NORM_FIRST = re.compile(r"\bnorm_first: *true\b")
# Ours knows the query's and the block's. BertEncoderV2 makes 16 rows unless
# told otherwise.
_NUM_SEGMENTS = 2


def open_source(source: str) -> Source:
    """The BERT of a checkpoint, with its masked-LM head if there is one.

    Args:
        source: str. Prefix of a checkpoint, or a directory with only one.

    Returns:
        `Source`.

    Raises:
        InputError: if there is no encoder or more than one, or it is of a
            kind that ours cannot be.
    """
    prefix, directory = source, os.path.dirname(source)
    if os.path.isdir(source):
        prefixes = tf_checkpoint.find_checkpoints(source)
        if len(prefixes) != 1:
            raise InputError(
                f"{source} must hold one checkpoint (*.index), but it holds "
                f"{', '.join(prefixes) or 'none'}. Name one by its prefix."
            )
        prefix, directory = prefixes[0], source
    tensors = tf_checkpoint.open_checkpoint(prefix)
    objects = _Objects(tensors)
    encoder = objects.find_encoder()
    parameters = Path(directory) / "params.yaml"
    if parameters.exists() and _NORM_FIRST.search(parameters.read_text()):
        raise InputError(
            f"{prefix}: the encoder has LayerNorm before attention and "
            f"feed-forward layers (norm_first in {parameters}), which is not "
            "read here. Expected a BertEncoderV2 with norm_first=False."
        )
    makers = {BERT: functools.partial(_make, objects, encoder)}
    head = objects.find_head(encoder)
    if head is not None:
        makers[ENCODER] = functools.partial(_make, objects, encoder, head)
    return Source(directory, makers, tensors.files)


class _Objects:
    """The graph of objects in a checkpoint; a node is a number, the root 0.

    Args:
        tensors: `Tensors`.
    """

    def __init__(self, tensors):
        from tensorflow.core.protobuf import trackable_object_graph_pb2

        self.tensors = tensors
        if _GRAPH not in tensors.arrays:
            raise InputError(
                f"{tensors.source} has no graph of objects ({_GRAPH}): "
                "expected a checkpoint of TF2, as tf.train.Checkpoint writes "
                "it, not one of TF1's tf.train.Saver."
            )
        graph = trackable_object_graph_pb2.TrackableObjectGraph
        # Not item(), which would drop zero bytes at the end.
        nodes = graph.FromString(tensors.read(_GRAPH).tobytes()).nodes
        # Of each node, those of its values that are stored.
        self.keys = [
            {a.checkpoint_key for a in node.attributes} & tensors.arrays.keys()
            for node in nodes
        ]
        # Slashes in names are spelled as in keys.
        self.children = [
            {c.local_name.replace("/", ".S"): c.node_id for c in node.children}
            for node in nodes
        ]

    def below(self, node):
        """A node and all that it leads to, but for what a SavedModel adds."""
        found = [node]
        # Grows while it is read.
        for each in found:
            for name, child in self.children[each].items():
                if child not in found and name != "keras_api":
                    found.append(child)
        return found

    def find(self, node, path):
        """The node at the end of a path, or `None`."""
        for name in path.split("/"):
            node = self.children[node].get(name) if node is not None else None
        return node

    def variables(self, node, paths):
        """Those at the ends of paths to their keys, less what is missing."""
        ends = {path: self.find(node, path) for path in paths}
        return {
            path: key
            for path, end in ends.items()
            if end is not None
            for key in self.keys[end]
        }

    def find_encoder(self):
        """The only encoder."""
        found = [
            node
            for node, children in enumerate(self.children)
            if {"_embedding_layer", "_transformer_layers"} <= set(children)
            # A Funnel-Transformer, of the same variables.
            and "_pool_strides" not in children
        ]
        if len(found) != 1:
            raise InputError(
                f"{self.tensors.source} holds {len(found) or 'no'} encoders: "
                "expected the objects of one BertEncoderV2 or BertEncoder."
            )
        return found[0]

    def find_head(self, encoder):
        """The masked-LM head over an encoder's word embeddings, or `None`."""
        table = self.find(encoder, "_embedding_layer/embeddings")
        found = [
            node
            for node, children in enumerate(self.children)
            if {"dense", "layer_norm"} <= set(children)
            and children.get("embedding_table") == table
        ]
        return found[0] if len(found) == 1 else None


def _make(objects, encoder, head=None):
    """Ours, of the nodes of an encoder and of its head."""
    layers = objects.find(encoder, "_transformer_layers")
    num_layers = len(objects.children[layers])
    table = expand(_BERT_LAYERS, num_layers, endings=_ENDINGS)
    names = objects.variables(encoder, table)
    # What else the encoder has is refused by its key.
    for node in objects.below(encoder):
        unknown = objects.keys[node].difference(names.values())
        names |= {key: key for key in unknown}
    part = BERT
    if head is not None:
        part = ENCODER
        head_table = expand(_HEAD_LAYERS, 0, endings=_ENDINGS)
        names |= objects.variables(head, head_table)
        table |= head_table
    tensors = objects.tensors.renamed(names)
    tensors.arrays[_SEGMENTS] = tensors.read(_SEGMENTS, 0, _NUM_SEGMENTS)
    layer = "_transformer_layers/0/"
    hidden_dim, num_heads, _ = tensors.shape(
        f"{layer}_attention_layer/_query_dense/kernel"
    )
    _, intermediate_dim = tensors.shape(f"{layer}_intermediate_dense/kernel")
    config = {
        "vocabulary_size": tensors.shape("_embedding_layer/embeddings")[0],
        "num_layers": num_layers,
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
        "max_sequence_length": tensors.shape(
            "_position_embedding_layer/embeddings"
        )[0],
    }
    return make_part(part, config, table, tensors)
