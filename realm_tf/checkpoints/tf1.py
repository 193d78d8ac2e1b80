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

from realm_tf.checkpoints import assignment
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.models.embedder import Embedder
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.models.reader import Reader

# TF1's name: our path.
_EMBEDDINGS = {
    "bert/embeddings/word_embeddings": "token_embedding/embeddings",
    "bert/embeddings/position_embeddings": "position_embedding/embeddings",
    "bert/embeddings/token_type_embeddings": "segment_embedding/embeddings",
}
# Each of these stands for a kernel and a bias, or a gamma and a beta.
_BERT = {
    "bert/embeddings/LayerNorm": "embeddings_layer_norm",
    "bert/pooler/dense": "pooled_dense",
}
# Below `bert/encoder/layer_N` and `transformer_layer_N`.
_LAYER = {
    "attention/self/query": "self_attention_layer/query",
    "attention/self/key": "self_attention_layer/key",
    "attention/self/value": "self_attention_layer/value",
    "attention/output/dense": "self_attention_layer/attention_output",
    "attention/output/LayerNorm": "self_attention_layer_norm",
    "intermediate/dense": "feedforward_intermediate_dense",
    "output/dense": "feedforward_output_dense",
    "output/LayerNorm": "feedforward_layer_norm",
}
# Below the head's scope. `{norm}` is the part's name for its LayerNorm.
_HEADS = {
    "bert": {},
    "embedder": {
        "dense": "projection",
        "{norm}": "projection_layer_norm",
    },
    "encoder": {
        "cls/predictions/transform/dense": "masked_lm_head/intermediate_dense",
        "cls/predictions/transform/{norm}": (
            "masked_lm_head/intermediate_layer_norm"
        ),
    },
    "reader": {
        "dense": "span_scorer/endpoints",
        "{norm}": "span_scorer/layer_norm",
        "dense_1": "span_scorer/score",
    },
}
_OUTPUT_BIAS = {"cls/predictions/output_bias": "masked_lm_head/output_bias"}

# The epsilon that goes with a name: LayerNorm is what
# tf.contrib.layers.layer_norm makes, layer_normalization what Keras does.
_EPSILONS = {"LayerNorm": 1e-12, "layer_normalization": 1e-3}
# google-research/bert, modeling.py. Names of variables do not tell it.
_HEAD_DIM = 64

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

_DESCRIPTIONS = {
    "bert": ("BERT", "bert/*"),
    "embedder": (
        "an embedder",
        "module/.../bert/* with dense/* and LayerNorm/* or "
        "layer_normalization/* in one of its scopes",
    ),
    "encoder": (
        "a knowledge-augmented encoder",
        "bert/* and cls/predictions/*",
    ),
    "reader": ("a reader", "reader/module/bert/* and reader/dense/*"),
    "block_emb": ("embeddings of blocks", "block_emb"),
}

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

    def __str__(self):
        description, _ = _DESCRIPTIONS[self.kind]
        if self.kind == "block_emb":
            return f"{description} ({self.scope}block_emb)"
        return f"{description} ({self.scope}bert/*)"


def classify(names) -> tuple[Part, ...]:
    """Which parts a checkpoint holds, by the names of its variables.

    Args:
        names: list of str.

    Returns:
        tuple of `Part`, by kind and scope. Two towers are two embedders.
    """
    names = {name for name in names if not _is_optimizers(name)}
    parts = [
        Part("block_emb", match[1])
        for match in map(_BLOCK_EMB.fullmatch, names)
        if match
    ]
    scopes = {m[1] for m in map(_BERT_SCOPE.match, names) if m}
    taken = set()
    # The innermost first: a projection without any scope is not that of a
    # BERT without any, if there is another one.
    for scope in sorted(scopes, key=lambda s: (-s.count("/"), s)):
        part = _network(scope, names, taken)
        if part.kind == "embedder":
            taken.add(part.head_scope)
        parts.append(part)
    return tuple(sorted(parts, key=lambda part: (part.kind, part.scope)))


def mapping(part: Part, num_layers: int) -> dict:
    """TF1's variable names of a part to `(our path, transform)`.

    Args:
        part: `Part`. Not `block_emb`, which is no weight of a model.
        num_layers: int. Transformer layers.

    Returns:
        dict. See `assignment.assign`.
    """
    pairs = dict(_BERT)
    for i in range(num_layers):
        for theirs, ours in _LAYER.items():
            pairs[f"bert/encoder/layer_{i}/{theirs}"] = (
                f"transformer_layer_{i}/{ours}"
            )
    bert = {**_EMBEDDINGS, **_with_variables(pairs)}
    return {
        **{part.scope + name: (path, "as") for name, path in bert.items()},
        **{name: (path, "as") for name, path in _head(part).items()},
    }


def ignored_names(names, *parts: Part) -> dict:
    """What is not read of a checkpoint when some parts of it are.

    Args:
        names: list of str. All variables of the checkpoint.
        *parts: `Part`. Those that are read.

    Returns:
        dict of variable name to the reason, one phrase. What is in neither
        this dict nor a part's `mapping` is unknown.
    """
    others = [part for part in classify(names) if part not in parts]
    reasons = {}
    for name in names:
        reason = _reason(name, parts, others)
        if reason:
            reasons[name] = reason
    return reasons


def bert_config(bundle, scope: str, num_heads: int | None = None) -> dict:
    """The arguments of `BertEncoder` that variables' shapes tell.

    Args:
        bundle: `TensorBundle`.
        scope: str. Of a `Part`.
        num_heads: int. Attention heads. Defaults to `None`: one for each 64
            of the width, as in every BERT that Google published.

    Returns:
        dict.

    Raises:
        InputError: if a variable that tells a size is missing or no matrix, a
            layer is missing, or the heads do not divide the width.
    """
    word, position = (
        f"{scope}bert/embeddings/{kind}_embeddings"
        for kind in ("word", "position")
    )
    vocabulary_size, hidden_dim = _matrix_shape(bundle, word)
    max_sequence_length, _ = _matrix_shape(bundle, position)
    num_layers = _num_layers(bundle, scope)
    _, intermediate_dim = _matrix_shape(
        bundle, f"{scope}bert/encoder/layer_0/intermediate/dense/kernel"
    )
    if num_heads is None and hidden_dim % _HEAD_DIM:
        raise InputError(
            f"{bundle.source}: a width of {hidden_dim} is no multiple of "
            f"{_HEAD_DIM}, so it does not tell the attention heads. Give "
            "num_heads."
        )
    num_heads = hidden_dim // _HEAD_DIM if num_heads is None else num_heads
    if num_heads < 1 or hidden_dim % num_heads:
        raise InputError(
            f"{bundle.source}: num_heads must divide the width, {hidden_dim}. "
            f"Received: num_heads={num_heads}"
        )
    return {
        "vocabulary_size": vocabulary_size,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
        "max_sequence_length": max_sequence_length,
        # google-research/bert, modeling.py.
        "activation": "gelu_approximate",
        "layer_norm_epsilon": 1e-12,
        "dropout": 0.1,
    }


def make_embedder(
    bundle, *, scope: str | None = None, num_heads: int | None = None
) -> Embedder:
    """The embedder of a checkpoint.

    The projection's LayerNorm has the epsilon that its name tells: 1e-12 as
    `LayerNorm` (REALM), 1e-3 as `layer_normalization` (the public ICT code).

    Args:
        bundle: `TensorBundle`.
        scope: str. The `Part.scope` to read, where there are several.
            Defaults to `None`: the only one.
        num_heads: int. See `bert_config`.

    Returns:
        `Embedder` with the weights.

    Raises:
        InputError: if there is none or more than one, or a variable is
            missing, unknown, misshapen or not finite.
    """
    part = _select(bundle, "embedder", scope)
    encoder = BertEncoder(**bert_config(bundle, part.scope, num_heads))
    _, projection_dim = _matrix_shape(bundle, f"{part.head_scope}dense/kernel")
    model = Embedder(
        encoder,
        projection_dim=projection_dim,
        layer_norm_epsilon=_EPSILONS[part.layer_norm],
    )
    return _fill(model, bundle, part)


def make_reader(
    bundle, *, scope: str | None = None, num_heads: int | None = None
) -> Reader:
    """The reader of a fine-tuned checkpoint.

    Args:
        bundle: `TensorBundle`.
        scope: str. See `make_embedder`.
        num_heads: int. See `bert_config`.

    Returns:
        `Reader` with the weights.

    Raises:
        InputError: see `make_embedder`.
    """
    part = _select(bundle, "reader", scope)
    encoder = BertEncoder(**bert_config(bundle, part.scope, num_heads))
    span_hidden_dim, _ = _matrix_shape(
        bundle, f"{part.head_scope}dense_1/kernel"
    )
    model = Reader(
        encoder,
        span_hidden_dim=span_hidden_dim,
        layer_norm_epsilon=_EPSILONS[part.layer_norm],
    )
    return _fill(model, bundle, part)


def make_knowledge_augmented_encoder(
    bundle, *, scope: str | None = None, num_heads: int | None = None
) -> KnowledgeAugmentedEncoder:
    """The masked-LM encoder of a checkpoint: REALM's, or Google's BERT.

    Args:
        bundle: `TensorBundle`.
        scope: str. See `make_embedder`.
        num_heads: int. See `bert_config`.

    Returns:
        `KnowledgeAugmentedEncoder` with the weights.

    Raises:
        InputError: see `make_embedder`.
    """
    part = _select(bundle, "encoder", scope)
    encoder = BertEncoder(**bert_config(bundle, part.scope, num_heads))
    return _fill(KnowledgeAugmentedEncoder(encoder), bundle, part)


def make_bert(
    bundle, *, scope: str | None = None, num_heads: int | None = None
) -> BertEncoder:
    """The BERT of a checkpoint without a head, or less its masked-LM head.

    Args:
        bundle: `TensorBundle`.
        scope: str. See `make_embedder`.
        num_heads: int. See `bert_config`.

    Returns:
        `BertEncoder` with the weights.

    Raises:
        InputError: see `make_embedder`.
    """
    part = _select(bundle, "bert", scope)
    encoder = BertEncoder(**bert_config(bundle, part.scope, num_heads))
    return _fill(encoder, bundle, part)


def _fill(model, bundle, part):
    what, _ = _DESCRIPTIONS[part.kind]
    assignment.assign(
        model,
        mapping(part, _num_layers(bundle, part.scope)),
        bundle,
        source=bundle.source,
        what=what,
        ignored=ignored_names(bundle.names(), part),
    )
    return model


def _select(bundle, kind, scope):
    """The only part of a kind, or that of a scope."""
    present = classify(bundle.names())
    found = [
        part
        for part in present
        if (part.kind == kind or (kind == "bert" and part.kind == "encoder"))
        and scope in (None, part.scope)
    ]
    what, expected = _DESCRIPTIONS[kind]
    listed = ", ".join(map(str, present)) or "nothing of REALM or BERT"
    if not found:
        where = "" if scope is None else f" in the scope {scope!r}"
        raise InputError(
            f"{bundle.source} does not hold {what}{where}. Expected variables: "
            f"{expected}. Found: {listed}."
        )
    if len(found) > 1:
        raise InputError(
            f"{bundle.source} holds {what} more than once. Choose one of the "
            f"scopes {[part.scope for part in found]}."
        )
    return dataclasses.replace(found[0], kind=kind)


def _network(scope, names, taken):
    """The part that has its BERT in a scope."""
    if scope.startswith("reader/"):
        return Part("reader", scope, "reader/", "layer_normalization")
    for head_scope in _enclosing(scope):
        layer_norm = _layer_norm(head_scope, names)
        part = Part("embedder", scope, head_scope, layer_norm)
        if set(_head(part)) & names and head_scope not in taken:
            return part
    if any(name.startswith(f"{scope}cls/predictions/") for name in names):
        return Part("encoder", scope, scope)
    return Part("bert", scope, scope)


def _enclosing(scope):
    """A scope and those around it, the innermost first."""
    pieces = scope.split("/")[:-1]
    for depth in range(len(pieces), -1, -1):
        yield "".join(f"{piece}/" for piece in pieces[:depth])


def _layer_norm(scope, names):
    """How the LayerNorm of a projection is called."""
    for found in _EPSILONS:
        if {f"{scope}{found}/gamma", f"{scope}{found}/beta"} & names:
            return found
    return "LayerNorm"


def _head(part):
    """Names of a head's variables to our paths."""
    head = {
        name.format(norm=part.layer_norm): path
        for name, path in _HEADS[part.kind].items()
    }
    head = _with_variables(head)
    if part.kind == "encoder":
        head.update(_OUTPUT_BIAS)
    return {part.head_scope + name: path for name, path in head.items()}


def _with_variables(pairs):
    """Names of layers to those of the layers' variables."""
    return {
        f"{theirs}/{variable}": f"{ours}/{variable}"
        for theirs, ours in pairs.items()
        for variable in (
            ("gamma", "beta")
            if theirs.endswith(tuple(_EPSILONS))
            else ("kernel", "bias")
        )
    }


def _is_optimizers(name):
    return name.rpartition("/")[2] in _OPTIMIZER_STATES


def _reason(name, parts, others):
    """Why a variable is not read; `None` if it is, or is unknown."""
    if _is_optimizers(name):
        return "a state of the optimizer"
    if name == "global_step":
        return "the number of training steps"
    if any(_owns(part, name) for part in parts):
        return None
    for part in parts:
        if _is_of_cls(part, name, "seq_relationship/"):
            return "the next-sentence head is not part of REALM"
        if part.kind != "encoder" and _is_of_cls(part, name):
            return "that head is not read here"
    for other in others:
        if _owns(other, name) or _is_of_cls(other, name):
            return f"it belongs to {other}"
    return None


def _owns(part, name):
    """Whether a variable is of a part, or would be if it were known."""
    if part.kind == "block_emb":
        return name == f"{part.scope}block_emb"
    return name.startswith(f"{part.scope}bert/") or name in _head(part)


def _is_of_cls(part, name, below=""):
    """Whether a variable is of the heads that BERT was trained with."""
    return part.kind != "block_emb" and name.startswith(
        f"{part.scope}cls/{below}"
    )


def _num_layers(bundle, scope):
    pattern = re.compile(re.escape(scope) + r"bert/encoder/layer_(\d+)/")
    found = {int(m[1]) for m in map(pattern.match, bundle.names()) if m}
    for layer in range(max(len(found), 1)):
        if layer not in found:
            raise InputError(
                f"{bundle.source} lacks the variables "
                f"{scope}bert/encoder/layer_{layer}/*."
            )
    return len(found)


def _matrix_shape(bundle, name):
    if name not in bundle.names():
        raise InputError(f"{bundle.source} lacks the tensor {name}.")
    shape = bundle.shape(name)
    if len(shape) != 2 or 0 in shape:
        raise InputError(
            f"{bundle.source}: {name} has the shape {shape}, expected a matrix."
        )
    return shape
