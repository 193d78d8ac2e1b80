"""Weights of REALM's, ORQA's and BERT's TF1 checkpoints, by one table.

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
import re

from realm_tf.checkpoints.assignment import BERT_LAYERS
from realm_tf.checkpoints.assignment import expand
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import ENCODER
from realm_tf.checkpoints.source import READER

# A kind of part that is no model.
BLOCK_EMB = "block_emb"

# Below the head's scope. `{norm}` is the part's name for its LayerNorm.
_HEADS = {
    BERT: {},
    EMBEDDER: {
        "projection": "dense",
        "projection_layer_norm": "{norm}",
    },
    ENCODER: {
        "masked_lm_head/intermediate_dense": "cls/predictions/transform/dense",
        "masked_lm_head/intermediate_layer_norm": (
            "cls/predictions/transform/{norm}"
        ),
    },
    READER: {
        "span_scorer/endpoints": "dense",
        "span_scorer/layer_norm": "{norm}",
        "span_scorer/score": "dense_1",
    },
}
_OUTPUT_BIAS = ("cls/predictions/output_bias", "masked_lm_head/output_bias")
_ENDINGS = {
    "embeddings": "",
    **{name: f"/{name}" for name in ("kernel", "bias", "gamma", "beta")},
}

# The epsilon that goes with a name: LayerNorm is what
# tf.contrib.layers.layer_norm makes, layer_normalization what Keras does.
EPSILONS = {"LayerNorm": 1e-12, "layer_normalization": 1e-3}
# Last parts of names. REALM's optimizer writes the first two, TF1's Adam the
# others.
_OPTIMIZER_STATES = (
    "adam_m",
    "adam_v",
    "Adam",
    "Adam_1",
    "beta1_power",
    "beta2_power",
)

_BERT_SCOPE = re.compile(r"((?:.*?/)?)bert/(?:embeddings|encoder|pooler)/")
_BLOCK_EMB = re.compile(r"((?:.*/)?)block_emb")


@dataclasses.dataclass(frozen=True)
class Part:
    """Something that a checkpoint holds.

    Args:
        kind: str. `"embedder"`, `"encoder"` (BERT with a masked-LM head),
            `"reader"`, `"bert"` (without a head) or `"block_emb"`.
        scope: str. What stands before `bert/` in its variables' names, or
            before `block_emb`: empty, or with a slash at its end.
        head_scope: str. The same of the head. Defaults to an empty one.
        layer_norm: str. The head's name for its LayerNorm, `"LayerNorm"` or
            `"layer_normalization"`. Defaults to `"LayerNorm"`.
    """

    kind: str
    scope: str
    head_scope: str = ""
    layer_norm: str = "LayerNorm"


def classify(names) -> tuple[Part, ...]:
    """Which parts a checkpoint holds, by the names of its variables.

    Args:
        names: list of str.

    Returns:
        tuple of `Part`, by kind and scope. Two towers are two embedders.
    """
    names = {name for name in names if not _is_optimizers(name)}
    parts = [
        Part(BLOCK_EMB, match[1])
        for match in map(_BLOCK_EMB.fullmatch, names)
        if match
    ]
    scopes = {m[1] for m in map(_BERT_SCOPE.match, names) if m}
    taken = set()
    # The innermost first: a projection without any scope is not that of a
    # BERT without any, if there is another one.
    for scope in sorted(scopes, key=lambda s: (-s.count("/"), s)):
        part = _network(scope, names, taken)
        if part.kind == EMBEDDER:
            taken.add(part.head_scope)
        parts.append(part)
    return tuple(sorted(parts, key=lambda part: (part.kind, part.scope)))


def mapping(part: Part, num_layers: int) -> dict:
    """TF1's variable names of a part to `(our path, transform)`.

    Args:
        part: `Part`. Not `block_emb`, which is no weight of a model.
        num_layers: int. Transformer layers.

    Returns:
        dict. See `assign`.
    """
    bert = expand(BERT_LAYERS, num_layers, endings=_ENDINGS)
    return {
        **{part.scope + name: target for name, target in bert.items()},
        **_head(part),
    }


def names_beside(names, others) -> list[str]:
    """The names of variables that are of none of some parts."""
    return [
        name
        for name in names
        if not any(
            _owns(other, name) or _is_of_cls(other, name) for other in others
        )
    ]


def ignored_names(names, parts) -> dict:
    """What is not read of a checkpoint, though it is known.

    Args:
        names: list of str. Variables of the checkpoint.
        parts: list of `Part`. Those in it.

    Returns:
        dict of variable name to the reason, one phrase. What is in neither
        this dict nor a part's `mapping` is unknown.
    """
    reasons = {}
    for name in names:
        if _is_optimizers(name):
            reasons[name] = "a state of the optimizer"
        elif name == "global_step":
            reasons[name] = "the number of training steps"
        elif any(_is_of_cls(part, name, "seq_relationship/") for part in parts):
            reasons[name] = "the next-sentence head is not part of REALM"
        elif any(
            part.kind != ENCODER and _is_of_cls(part, name) for part in parts
        ):
            reasons[name] = "that head is not read here"
    return reasons


def _network(scope, names, taken):
    """The part that has its BERT in a scope."""
    if scope.startswith("reader/"):
        return Part(READER, scope, "reader/", "layer_normalization")
    for head_scope in _enclosing(scope):
        layer_norm = _layer_norm(head_scope, names)
        part = Part(EMBEDDER, scope, head_scope, layer_norm)
        if set(_head(part)) & names and head_scope not in taken:
            return part
    if any(name.startswith(f"{scope}cls/predictions/") for name in names):
        return Part(ENCODER, scope, scope)
    return Part(BERT, scope, scope)


def _enclosing(scope):
    """A scope and those around it, the innermost first."""
    pieces = scope.split("/")[:-1]
    for depth in range(len(pieces), -1, -1):
        yield "".join(f"{piece}/" for piece in pieces[:depth])


def _layer_norm(scope, names):
    """How the LayerNorm of a projection is called."""
    for found in EPSILONS:
        if {f"{scope}{found}/gamma", f"{scope}{found}/beta"} & names:
            return found
    return "LayerNorm"


def _head(part):
    """The mapping of a head's variables."""
    layers = {
        ours: part.head_scope + theirs.format(norm=part.layer_norm)
        for ours, theirs in _HEADS[part.kind].items()
    }
    head = expand(layers, 0, endings=_ENDINGS)
    if part.kind == ENCODER:
        theirs, ours = _OUTPUT_BIAS
        head[part.head_scope + theirs] = (ours, "as")
    return head


def _is_optimizers(name):
    return name.rpartition("/")[2] in _OPTIMIZER_STATES


def _owns(part, name):
    """Whether a variable is of a part, or would be if it were known."""
    if part.kind == BLOCK_EMB:
        return name == f"{part.scope}block_emb"
    return name.startswith(f"{part.scope}bert/") or name in _head(part)


def _is_of_cls(part, name, below=""):
    """Whether a variable is of the heads that BERT was trained with."""
    return part.kind != BLOCK_EMB and name.startswith(
        f"{part.scope}cls/{below}"
    )
