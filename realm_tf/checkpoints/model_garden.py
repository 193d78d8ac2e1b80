"""Weights of the TensorFlow Model Garden's BERT encoders, by one table.

Read are checkpoints of TF2 that hold the objects of a `BertEncoderV2` or
`BertEncoder` of tf-models-official, alone or in a larger model, and of the
masked-LM head of `BertPretrainerV2` over it. A `BertEncoderV2` is made and
restored by TensorFlow, then its weights are ours.

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

from realm_tf.checkpoints import tf_checkpoint
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.assignment import assign
from realm_tf.checkpoints.assignment import below
from realm_tf.checkpoints.assignment import expand
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import Source
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)

# Our layer: the Model Garden's.
_BERT_LAYERS = {
    "token_embedding": "word_embeddings",
    "position_embedding": "position_embedding",
    "segment_embedding": "type_embeddings",
    "embeddings_layer_norm": "embeddings/layer_norm",
    "pooled_dense": "pooler_transform",
    **below(
        "transformer_layer_{i}/",
        "transformer/layer_{i}/",
        {
            "self_attention_layer/query": "self_attention/query",
            "self_attention_layer/key": "self_attention/key",
            "self_attention_layer/value": "self_attention/value",
            "self_attention_layer/attention_output": (
                "self_attention/attention_output"
            ),
            "self_attention_layer_norm": "self_attention_layer_norm",
            "feedforward_intermediate_dense": "intermediate",
            "feedforward_output_dense": "output",
            "feedforward_layer_norm": "output_layer_norm",
        },
    ),
}
_HEAD_LAYERS = {
    "masked_lm_head/intermediate_dense": "transform/dense",
    "masked_lm_head/intermediate_layer_norm": "transform/LayerNorm",
}
_OUTPUT_BIAS = ("output_bias/bias", "masked_lm_head/output_bias")
_ENDINGS = {
    name: f"/{name}"
    for name in ("embeddings", "kernel", "bias", "gamma", "beta")
}

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_NORM_FIRST = re.compile(rb"\bnorm_first: *true\b")
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
        InputError: if tf-models-official is not installed, there is no
            encoder or more than one, or it is of a kind that ours cannot be.
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
    _check_norm(prefix, directory)
    _library()
    makers = {BERT: functools.partial(_make, objects, encoder)}
    heads = objects.find_heads(encoder)
    if len(heads) == 1:
        makers[ENCODER] = functools.partial(_make, objects, encoder, heads[0])
    return Source(directory, makers, tensors.files)


def _library():
    try:
        from official.nlp.modeling import layers
        from official.nlp.modeling import networks
    except ImportError as error:
        raise InputError(
            "Checkpoints of the Model Garden are read by tf-models-official "
            f"({error}): pip install 'realm-tf[garden]'."
        ) from error
    return layers, networks


class _Objects:
    """The graph of objects in a checkpoint; a node is a number, the root 0.

    Args:
        tensors: `Tensors`.
    """

    def __init__(self, tensors):
        from google.protobuf.message import DecodeError
        from tensorflow.core.protobuf import trackable_object_graph_pb2

        self.tensors = tensors
        if _GRAPH not in tensors.arrays:
            raise InputError(
                f"{tensors.source} has no graph of objects ({_GRAPH}): "
                "expected a checkpoint of TF2, as tf.train.Checkpoint writes "
                "it, not one of TF1's tf.train.Saver."
            )
        graph = trackable_object_graph_pb2.TrackableObjectGraph
        try:
            # Not item(), which would drop zero bytes at the end.
            nodes = graph.FromString(tensors.read(_GRAPH).tobytes()).nodes
        except DecodeError as error:
            raise InputError(
                f"{tensors.source}: {_GRAPH} is damaged ({error}). Fetch the "
                "checkpoint again."
            ) from error
        self.keys = [[a.checkpoint_key for a in n.attributes] for n in nodes]
        self.children = [
            {child.local_name: child.node_id for child in node.children}
            for node in nodes
        ]

    def paths(self, node=0):
        """The shortest path to each node from one of them."""
        paths, queue = {node: ()}, [node]
        # Grows while it is read.
        for node in queue:
            for name, child in self.children[node].items():
                # Of a SavedModel: metrics and the like.
                if child not in paths and name != "keras_api":
                    paths[child] = (*paths[node], name)
                    queue.append(child)
        return paths

    def find(self, node, path):
        """The node at the end of a path."""
        for name in path.split("/"):
            if name not in self.children[node]:
                raise InputError(
                    f"{self.tensors.source}: the encoder lacks {path}."
                )
            node = self.children[node][name]
        return node

    def shape(self, node, path):
        """The shape of the variable at the end of a path."""
        return self.tensors.shape(self.keys[self.find(node, path)][0])

    def find_encoder(self):
        """The only encoder."""
        parts = {"_embedding_layer", "_transformer_layers"}
        found = {
            "/".join(path): node
            for node, path in self.paths().items()
            if parts <= set(self.children[node])
        }
        if len(found) != 1:
            raise InputError(
                f"{self.tensors.source} holds {len(found) or 'no'} encoders "
                f"({', '.join(found or self.children[0])}): expected the "
                "objects of one BertEncoderV2 or BertEncoder."
            )
        (encoder,) = found.values()
        if "_pool_strides" in self.children[encoder]:
            raise InputError(
                f"{self.tensors.source}: the encoder's layers pool the "
                "sequence (Funnel-Transformer), which is not read here. "
                "Expected a BertEncoderV2."
            )
        return encoder

    def find_heads(self, encoder):
        """The masked-LM heads over an encoder's word embeddings."""
        table = self.find(encoder, "_embedding_layer/embeddings")
        return [
            node
            for node in self.paths()
            if {"dense", "layer_norm"} <= set(self.children[node])
            and self.children[node].get("embedding_table") == table
        ]

    def restore(self, node, layer):
        """Fills a layer of tf_keras with the variables of a node.

        Raises:
            InputError: if one is missing, unknown or of another shape.
        """
        import tensorflow as tf

        path = self.paths()[node]
        tree = layer
        for name in reversed(path):
            tree = tf.train.Checkpoint(**{name: tree})
        checkpoint = tree if path else tf.train.Checkpoint(layer)
        source = self.tensors.source
        try:
            status = checkpoint.read(source)
            status.assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise InputError(
                f"{source} does not fit a {type(layer).__name__} of the Model "
                f"Garden: {error}"
            ) from error
        status.expect_partial()
        known = tf.train.CheckpointView(source).match(tree)
        unknown = [
            key
            for found in self.paths(node)
            if found not in known
            for key in self.keys[found]
            if key in self.tensors.arrays
        ]
        if unknown:
            raise InputError(
                f"{source} has tensors that no {type(layer).__name__} has: "
                f"{', '.join(unknown[:5])}."
            )


def _check_norm(prefix, directory):
    path = os.path.join(directory, "params.yaml")
    if not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        if _NORM_FIRST.search(file.read()):
            raise InputError(
                f"{prefix}: the encoder has LayerNorm before attention and "
                f"feed-forward layers (norm_first in {path}), which is not "
                "read here. Expected a BertEncoderV2 with norm_first=False."
            )


def _make(objects, encoder, head=None):
    """Ours, of the nodes of an encoder and of its head."""
    import tensorflow as tf

    layers, networks = _library()
    tables = {
        name: objects.shape(encoder, f"_{name}_layer/embeddings")
        for name in ("embedding", "position_embedding", "type_embedding")
    }
    layer = "_transformer_layers/0/"
    query = f"{layer}_attention_layer/_query_dense/kernel"
    hidden_dim, num_heads, _ = objects.shape(encoder, query)
    kernel = f"{layer}_intermediate_dense/kernel"
    _, intermediate_dim = objects.shape(encoder, kernel)
    num_layers = len(objects.children[objects.find(encoder, layer[:-3])])
    theirs = networks.BertEncoderV2(
        vocab_size=tables["embedding"][0],
        hidden_size=hidden_dim,
        num_layers=num_layers,
        num_attention_heads=num_heads,
        max_sequence_length=tables["position_embedding"][0],
        type_vocab_size=tables["type_embedding"][0],
        inner_dim=intermediate_dim,
    )
    # Makes the variables.
    theirs(theirs.inputs)
    objects.restore(encoder, theirs)
    values = _values(theirs)
    name = "type_embeddings/embeddings"
    values[name] = values[name][:_NUM_SEGMENTS]
    mapping = functools.partial(expand, endings=_ENDINGS, transform="same")
    table = mapping(_BERT_LAYERS, num_layers)
    model = BertEncoder(
        vocabulary_size=tables["embedding"][0],
        num_layers=num_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        intermediate_dim=intermediate_dim,
        max_sequence_length=tables["position_embedding"][0],
    )
    if head is not None:
        masked_lm = layers.MaskedLM(theirs.get_embedding_table())
        masked_lm(tf.zeros((1, 1, hidden_dim)), tf.zeros((1, 1), "int32"))
        objects.restore(head, masked_lm)
        values |= _values(masked_lm)
        table |= mapping(_HEAD_LAYERS, 0)
        table["output_bias/bias"] = ("masked_lm_head/output_bias", "as")
        model = KnowledgeAugmentedEncoder(model)
    tensors = Tensors(values, objects.tensors.source)
    assign(model, table, tensors, what="a BERT")
    return model


def _values(model):
    """Weights by name, less the model's own."""
    return {
        v.name.removesuffix(":0").split("/", 1)[1]: v.numpy()
        for v in model.variables
    }
