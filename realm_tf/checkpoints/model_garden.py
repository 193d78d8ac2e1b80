"""Weights of the TensorFlow Model Garden's BERT encoders, by one table.

Read are checkpoints of TF2 that hold the objects of a `BertEncoderV2` or
`BertEncoder` of tf-models-official, alone or in a larger model, and of the
masked-LM head of `BertPretrainerV2` over it. Their graph of objects says which
variable is which; kernels are kept as Keras keeps them.

What no variable tells is taken for granted: the tanh GELU, LayerNorm's epsilon
of 1e-12 and dropout of 0.1, the defaults there; and LayerNorm after each
residual sum. Encoders with `norm_first`, of the very same variables, are
refused where the trainer's params.yaml tells.
"""

import dataclasses
import os

from realm_tf.artifacts.paths import Path
from realm_tf.checkpoints import tf_checkpoint
from realm_tf.checkpoints.source import Names
from realm_tf.checkpoints.source import Source
from realm_tf.checkpoints.source import bert_sizes
from realm_tf.checkpoints.source import make_part
from realm_tf.errors import InputError

_NAMES = Names.of("model_garden")
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SEGMENTS = "encoder/_type_embedding_layer/embeddings"
_QUERY = "encoder/_transformer_layers/0/_attention_layer/_query_dense/kernel"


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
    prefixes = tf_checkpoint.find_checkpoints(source)
    if len(prefixes) != 1:
        raise InputError(
            f"{source} must hold one checkpoint (*.index), but it holds "
            f"{', '.join(prefixes) or 'none'}. Name one by its prefix."
        )
    directory = source if os.path.isdir(source) else os.path.dirname(source)
    tensors = tf_checkpoint.open_checkpoint(prefixes[0])
    objects = _Objects(tensors)
    # A Funnel-Transformer has the same variables and pools.
    encoders = objects.having(
        {"_embedding_layer", "_transformer_layers"}, without="_pool_strides"
    )
    if len(encoders) != 1:
        raise InputError(
            f"{tensors.source} holds {len(encoders) or 'no'} encoders: expected one."
        )
    parameters = Path(directory) / "params.yaml"
    if parameters.exists() and "norm_first: true" in parameters.read_text():
        raise InputError(
            f"{source}: encoders with LayerNorm before attention, norm_first in "
            f"{parameters}, are not read."
        )
    names = objects.variables(encoders[0], "encoder")
    # The masked-LM head over these word embeddings.
    for node in objects.having({"dense", "layer_norm", "embedding_table"}):
        head = objects.variables(node, "head")
        if head.pop("head/embedding_table", None) in names.values():
            names |= head
    tensors = tensors.renamed(names)
    if _SEGMENTS in names:
        # The query's and the block's; BertEncoderV2 makes 16 rows by default.
        tensors.arrays[_SEGMENTS] = tensors.read(_SEGMENTS, 0, 2)
    return dataclasses.replace(_NAMES.find(tensors, _make), directory=directory)


class _Objects:
    """The graph of objects in a checkpoint; a node is a number, the root 0.

    Args:
        tensors: `Tensors`.
    """

    def __init__(self, tensors):
        from tensorflow.core.protobuf import trackable_object_graph_pb2

        # Only checkpoints of TF2 have it.
        graph = trackable_object_graph_pb2.TrackableObjectGraph
        # Not item(), which would drop zero bytes at the end.
        nodes = graph.FromString(tensors.read(_GRAPH).tobytes()).nodes
        # The keys of each node's values that are stored.
        self._keys = [
            {a.checkpoint_key for a in node.attributes} & tensors.arrays.keys()
            for node in nodes
        ]
        self._children = [
            {child.local_name: child.node_id for child in node.children}
            for node in nodes
        ]

    def having(self, names, without=""):
        """The nodes with some children."""
        return [
            node
            for node, children in enumerate(self._children)
            if names <= set(children) and without not in children
        ]

    def variables(self, root, path):
        """The path of each variable below a node, to its key in the file."""
        found, seen, left = {}, set(), [(root, path)]
        while left:
            node, path = left.pop()
            if node in seen:
                continue
            seen.add(node)
            for key in self._keys[node]:
                found[path] = key
            # The last is next. Of two names of a node, its attribute's comes
            # before "layer_with_weights-0" or "_position_embeddings".
            children = self._children[node]
            names = sorted(
                children.keys() - {"keras_api"},
                key=lambda name: (name.startswith("layer"), name.lstrip("_")),
                reverse=True,
            )
            left += [(children[name], f"{path}/{name}") for name in names]
        return found


def _make(layout, mapping, tensors):
    config = bert_sizes(mapping, tensors)
    config["num_heads"] = tensors.shape(_QUERY)[1]
    return make_part(layout, mapping, tensors, config)
