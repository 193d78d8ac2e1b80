"""Models of REALM's, ORQA's and BERT's TF1 checkpoints.

What the original code and its authors published names its variables in
several ways, by how many TF-Hub modules wrap a network:

- embedder: `module/module/module/bert/*` and its projection,
  `module/module/{dense,LayerNorm}/*`; both one `module/` deeper if
  fine-tuned; `module/bert/*` and `[module/]{dense,layer_normalization}/*` if
  made by the public ICT code;
- masked-LM encoder, and BERT itself: `[module/]{bert,cls}/*`;
- reader: `reader/module/bert/*` and its span scorer,
  `reader/{dense,layer_normalization,dense_1}/*`;
- embeddings of all blocks: `block_emb`.

So a part is found by searching for its scope. Kernels are kept as Keras
keeps them.

References:
    Original code: google-research/language, language/realm and language/orqa;
    google-research/bert, modeling.py and run_pretraining.py.
"""

import dataclasses
import functools
import os
import re

from realm_tf.checkpoints import tf_checkpoint
from realm_tf.checkpoints.assignment import BERT_LAYERS
from realm_tf.checkpoints.assignment import KERAS_ENDINGS
from realm_tf.checkpoints.assignment import Tensors
from realm_tf.checkpoints.assignment import expand
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import READER
from realm_tf.checkpoints.source import BlockEmbeddings
from realm_tf.checkpoints.source import Source
from realm_tf.checkpoints.source import add_maker
from realm_tf.checkpoints.source import bert_sizes
from realm_tf.checkpoints.source import make_part
from realm_tf.configs.finetune import MAX_JOINT_LENGTH
from realm_tf.errors import InputError

# Below the head's scope. `{norm}` is the part's name for its LayerNorm.
_HEADS = {
    BERT: {},
    EMBEDDER: {"projection": "dense", "projection_layer_norm": "{norm}"},
    ENCODER: {
        "masked_lm_head/intermediate_dense": "cls/predictions/transform/dense",
        "masked_lm_head/intermediate_layer_norm": (
            "cls/predictions/transform/{norm}"
        ),
        "masked_lm_head/output_bias": "cls/predictions/output_bias",
    },
    READER: {
        "span_scorer/endpoints": "dense",
        "span_scorer/layer_norm": "{norm}",
        "span_scorer/score": "dense_1",
    },
}
_ENDINGS = {**KERAS_ENDINGS, "embeddings": ""}

# The epsilon that goes with a name: tf.contrib.layers.layer_norm (REALM) makes
# the first, Keras (the public ICT code) the second.
_LAYER_NORM, _KERAS_LAYER_NORM = "LayerNorm", "layer_normalization"
_EPSILONS = {_LAYER_NORM: 1e-12, _KERAS_LAYER_NORM: 1e-3}

_BERT_SCOPE = re.compile(r"((?:.*?/)?)bert/(?:embeddings|encoder|pooler)/")
_BLOCK_EMBEDDINGS = re.compile(r"(?:.*/)?block_emb")
# REALM's optimizer writes the first two, TF1's Adam the others.
_OPTIMIZER_STATE = re.compile(
    r"(?:.*/)?(?:adam_m|adam_v|Adam|Adam_1|beta1_power|beta2_power)"
)

# google-research/bert, modeling.py. Names of variables do not tell it.
_HEAD_DIM = 64


@dataclasses.dataclass(frozen=True)
class _Part:
    """A network that a checkpoint holds.

    Args:
        kind: str. Such as `ENCODER`, which is a BERT with a masked-LM head.
        scope: str. What stands before `bert/` in its variables' names: empty,
            or with a slash at its end.
        head_scope: str. The same of the head.
        layer_norm: str. The head's name for its LayerNorm.
    """

    kind: str
    scope: str
    head_scope: str
    layer_norm: str = _LAYER_NORM

    def mapping(self, num_layers: int) -> dict:
        """TF1's names of its variables to `(our path, False)`."""
        layers = {
            ours: self.scope + theirs for ours, theirs in BERT_LAYERS.items()
        }
        for ours, theirs in _HEADS[self.kind].items():
            theirs = theirs.format(norm=self.layer_norm)
            layers[ours] = self.head_scope + theirs
        return expand(layers, num_layers, endings=_ENDINGS)


def bert_config(
    tensors: Tensors, scope: str, num_heads: int | None = None
) -> dict:
    """The arguments of `BertEncoder` that variables' shapes tell.

    Args:
        tensors: `Tensors`.
        scope: str. What stands before `bert/` in their names.
        num_heads: int. Attention heads. Defaults to `None`: one for each 64
            of the width, as in every BERT that Google published.

    Returns:
        dict. The others are as BERT has them by default.

    Raises:
        InputError: if a variable that tells a size is missing, or the heads
            do not divide the width.
    """
    embeddings, layers = f"{scope}bert/embeddings", f"{scope}bert/encoder"
    sizes = bert_sizes(
        tensors,
        words=f"{embeddings}/word_embeddings",
        positions=f"{embeddings}/position_embeddings",
        intermediate=f"{layers}/layer_0/intermediate/dense/kernel",
    )
    hidden_dim = sizes["hidden_dim"]
    pattern = re.compile(re.escape(layers) + r"/(layer_\d+)/")
    numbers = {m[1] for m in map(pattern.match, tensors.names()) if m}
    if num_heads is None and hidden_dim % _HEAD_DIM == 0:
        num_heads = hidden_dim // _HEAD_DIM
    if not num_heads or num_heads < 1 or hidden_dim % num_heads:
        raise InputError(
            f"{tensors.source}: name the attention heads (import: --num-heads, init: "
            f"--set num_heads), which must divide the width, "
            f"{hidden_dim}. Received: num_heads={num_heads}"
        )
    return sizes | {"num_layers": len(numbers), "num_heads": num_heads}


def open_source(source: str, num_heads: int | None = None) -> Source:
    """The parts of the checkpoints in a directory, or of one checkpoint.

    Args:
        source: str. A directory, searched by `find_checkpoints`, or the
            prefix of a checkpoint.
        num_heads: int. See `bert_config`.

    Returns:
        `Source`.

    Raises:
        InputError: if there is no part of a REALM or BERT, one is there
            twice, or a size of one is not known.
    """
    is_directory = os.path.isdir(source)
    prefixes = (
        tf_checkpoint.find_checkpoints(source) if is_directory else [source]
    )
    makers, files, ignored, rows = {}, [], {}, None
    for prefix in prefixes:
        tensors = tf_checkpoint.open_checkpoint(prefix)
        names = set(tensors.names())
        blocks = set(filter(_BLOCK_EMBEDDINGS.fullmatch, names))
        for name in blocks:
            rows = BlockEmbeddings(tensors, name)
        parts = _find_parts(names)
        not_read = _ignored_names(names, parts)
        known = blocks.union(not_read)
        for part in parts:
            config = bert_config(tensors, part.scope, num_heads)
            known |= part.mapping(config["num_layers"]).keys()
        # Refused by whatever is made.
        unknown = names - known
        for part in parts:
            # What has a masked-LM head is a BERT, too.
            for kind in {part.kind, part.kind.replace(ENCODER, BERT)}:
                again = dataclasses.replace(part, kind=kind)
                maker = functools.partial(
                    _make, again, tensors, unknown, num_heads
                )
                add_maker(makers, kind, maker, source)
        files += tensors.files
        ignored |= not_read
    if not makers and rows is None:
        raise InputError(
            f"{source} holds no part of a REALM or BERT: expected TF1 "
            "checkpoints (*.index) with an embedder, an encoder, a reader, a "
            "BERT or block_emb."
        )
    return Source(
        source if is_directory else os.path.dirname(source),
        makers,
        tuple(files),
        ignored,
        rows,
    )


def _find_parts(names):
    """The networks of a checkpoint, by the names of its variables."""
    scopes = {m[1] for m in map(_BERT_SCOPE.match, names) if m}
    parts, taken = [], set()
    # The innermost first: a projection without any scope is not that of a
    # BERT without any, if there is another one.
    for scope in sorted(scopes, key=lambda s: (-s.count("/"), s)):
        projections = [
            each
            for each in _enclosing(scope)
            if f"{each}dense/kernel" in names and each not in taken
        ]
        if scope.startswith("reader/"):
            part = _Part(READER, scope, "reader/", _KERAS_LAYER_NORM)
        elif projections:
            head = projections[0]
            taken.add(head)
            is_keras = f"{head}{_KERAS_LAYER_NORM}/gamma" in names
            norm = _KERAS_LAYER_NORM if is_keras else _LAYER_NORM
            part = _Part(EMBEDDER, scope, head, norm)
        elif any(name.startswith(f"{scope}cls/predictions/") for name in names):
            part = _Part(ENCODER, scope, scope)
        else:
            part = _Part(BERT, scope, scope)
        parts.append(part)
    return parts


def _enclosing(scope):
    """A scope and those around it, the innermost first."""
    pieces = scope.split("/")[:-1]
    for depth in range(len(pieces), -1, -1):
        yield "".join(f"{piece}/" for piece in pieces[:depth])


def _ignored_names(names, parts):
    """What is not read of a checkpoint, though it is known, to the reason."""
    heads = tuple(f"{p.scope}cls/" for p in parts if p.kind != ENCODER)
    next_sentence = tuple(f"{p.scope}cls/seq_relationship/" for p in parts)
    reasons = {}
    for name in names:
        if _OPTIMIZER_STATE.fullmatch(name):
            reasons[name] = "a state of the optimizer"
        elif name == "global_step":
            reasons[name] = "the number of training steps"
        elif name.startswith(next_sentence):
            reasons[name] = "the next-sentence head is not part of REALM"
        elif name.startswith(heads):
            reasons[name] = "that head is not read here"
    return reasons


def _make(part, tensors, unknown, num_heads):
    """A model of a part of some tensors, of which `unknown` are of none."""
    config = bert_config(tensors, part.scope, num_heads)
    table = part.mapping(config["num_layers"])
    head = {}
    if part.kind in (EMBEDDER, READER):
        head["layer_norm_epsilon"] = _EPSILONS[part.layer_norm]
    if part.kind == EMBEDDER:
        _, width = tensors.shape(f"{part.head_scope}dense/kernel")
        head["projection_dim"] = width
    elif part.kind == READER:
        width, _ = tensors.shape(f"{part.head_scope}dense_1/kernel")
        head["span_hidden_dim"] = width
        head["max_joint_length"] = MAX_JOINT_LENGTH
    own = [name for name in tensors.names() if name in table or name in unknown]
    tensors = tensors.renamed({name: name for name in own})
    return make_part(part.kind, config, table, tensors, **head)
