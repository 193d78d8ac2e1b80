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

from realm_tf.artifacts.paths import Path
from realm_tf.checkpoints import source as sources
from realm_tf.checkpoints import tf_checkpoint
from realm_tf.checkpoints.assignment import KERAS_ENDINGS
from realm_tf.checkpoints.assignment import expand
from realm_tf.errors import InputError

# Our layer: the attribute of the Model Garden's.
_BERT_LAYERS = {
    "token_embedding": "_embedding_layer",
    "position_embedding": "_position_embedding_layer",
    "segment_embedding": "_type_embedding_layer",
    "embeddings_layer_norm": "_embedding_norm_layer",
    "pooled_dense": "_pooler_layer",
} | {
    f"transformer_layer_{{i}}/{ours}": f"_transformer_layers/{{i}}/{theirs}"
    for ours, theirs in {
        "self_attention_layer/query": "_attention_layer/_query_dense",
        "self_attention_layer/key": "_attention_layer/_key_dense",
        "self_attention_layer/value": "_attention_layer/_value_dense",
        "self_attention_layer/attention_output": "_attention_layer/_output_dense",
        "self_attention_layer_norm": "_attention_layer_norm",
        "feedforward_intermediate_dense": "_intermediate_dense",
        "feedforward_output_dense": "_output_dense",
        "feedforward_layer_norm": "_output_layer_norm",
    }.items()
}
_HEAD_LAYERS = {
    "masked_lm_head/intermediate_dense": "dense",
    "masked_lm_head/intermediate_layer_norm": "layer_norm",
    # Its name there is "output_bias/bias".
    "masked_lm_head/output_bias": "output_bias.Sbias",
}
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def open_source(source: str) -> sources.Source:
    """The BERT of a checkpoint, with its masked-LM head if there is one.

    Args:
        source: str. Prefix of a checkpoint, or a directory with only one.

    Returns:
        `Source`.

    Raises:
        InputError: if there is no encoder or more than one, or it is of a
            kind that ours cannot be.
    """
    tensors, directory = tf_checkpoint.open_single(source)
    objects = _Objects(tensors)
    # A Funnel-Transformer has the same variables and pools.
    encoders = objects.having(
        {"_embedding_layer", "_transformer_layers"}, without="_pool_strides"
    )
    if len(encoders) != 1:
        raise InputError(
            f"{tensors.source} holds {len(encoders) or 'no'} encoders: expected one."
        )
    (encoder,) = encoders
    parameters = Path(directory) / "params.yaml"
    if parameters.exists() and "norm_first: true" in parameters.read_text():
        raise InputError(
            f"{source}: encoders with LayerNorm before attention, norm_first in "
            f"{parameters}, are not read."
        )
    makers = {sources.BERT: functools.partial(_make, objects, encoder)}
    words = objects.find(encoder, "_embedding_layer/embeddings")
    # The masked-LM head over these word embeddings.
    for head in objects.having({"dense", "layer_norm"}):
        if objects.children[head].get("embedding_table") == words:
            part = sources.ENCODER
            makers[part] = functools.partial(_make, objects, encoder, head)
    return sources.Source(directory, makers, tensors.files)


class _Objects:
    """The graph of objects in a checkpoint; a node is a number, the root 0.

    Args:
        tensors: `Tensors`.
    """

    def __init__(self, tensors):
        from tensorflow.core.protobuf import trackable_object_graph_pb2

        self.tensors = tensors
        # Only checkpoints of TF2 have it.
        graph = trackable_object_graph_pb2.TrackableObjectGraph
        # Not item(), which would drop zero bytes at the end.
        nodes = graph.FromString(tensors.read(_GRAPH).tobytes()).nodes
        # The keys of each node's values that are stored.
        self.keys = [
            {a.checkpoint_key for a in node.attributes} & tensors.arrays.keys()
            for node in nodes
        ]
        # Slashes in names are spelled as in keys.
        self.children = [
            {c.local_name.replace("/", ".S"): c.node_id for c in node.children}
            for node in nodes
        ]

    def having(self, names, without=""):
        """The nodes with some children."""
        return [
            node
            for node, children in enumerate(self.children)
            if names <= set(children) and without not in children
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
        """Paths to the keys of the variables at their ends, if any."""
        return {
            path: key
            for path in paths
            if (end := self.find(node, path)) is not None
            for key in self.keys[end]
        }


def _make(objects, encoder, head=None):
    """Ours, of the nodes of an encoder and of its head."""
    layers = objects.children[objects.find(encoder, "_transformer_layers")]
    table = expand(_BERT_LAYERS, len(layers), endings=KERAS_ENDINGS)
    names = objects.variables(encoder, table)
    # What else the encoder has is refused by its key.
    for node in objects.below(encoder):
        unknown = objects.keys[node].difference(names.values())
        names |= {key: key for key in unknown}
    part = sources.BERT if head is None else sources.ENCODER
    if head is not None:
        head_table = expand(_HEAD_LAYERS, 0, endings=KERAS_ENDINGS)
        names |= objects.variables(head, head_table)
        table |= head_table
    tensors = objects.tensors.renamed(names)
    # The query's and the block's; BertEncoderV2 makes 16 rows by default.
    segments = "_type_embedding_layer/embeddings"
    tensors.arrays[segments] = tensors.read(segments, 0, 2)
    layer = "_transformer_layers/0"
    query = tensors.shape(f"{layer}/_attention_layer/_query_dense/kernel")
    config = sources.bert_sizes(
        tensors,
        words="_embedding_layer/embeddings",
        positions="_position_embedding_layer/embeddings",
        intermediate=f"{layer}/_intermediate_dense/kernel",
    )
    config |= {"hidden_dim": query[0], "num_heads": query[1]}
    config["num_layers"] = len(layers)
    return sources.make_part(part, config, table, tensors)
