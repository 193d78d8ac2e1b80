"""Variables of REALM's, ORQA's and BERT's TF1 checkpoints, and their check.

Names are written out here as REALM, ORQA and BERT write them.
"""

from named_weights import ATTENTION
from named_weights import HIDDEN
from named_weights import INNER
from named_weights import LAYER
from named_weights import POSITIONS
from named_weights import VOCABULARY
from named_weights import assert_filled

PROJECTION, SPAN = 4, 5
SIZES = (HIDDEN, INNER, VOCABULARY, POSITIONS)
LAYER_NAMES = dict(
    zip(
        LAYER,
        (
            *(f"attention/self/{name}" for name in ("query", "key", "value")),
            *("attention/output/dense", "attention/output/LayerNorm"),
            *("intermediate/dense", "output/dense", "output/LayerNorm"),
        ),
        strict=True,
    )
)
# What published REALM embedders hold: BERT's scope, projection's, LayerNorm.
EMBEDDERS = {
    "pre-trained": ("module/module/module/", "module/module/", "LayerNorm"),
    "fine-tuned": (
        "module/module/module/module/",
        "module/module/module/",
        "LayerNorm",
    ),
    "ict": ("module/", "module/", "layer_normalization"),
    "ict without a scope": ("module/", "", "layer_normalization"),
    "ict, fine-tuned": ("module/module/", "module/", "layer_normalization"),
}
EPSILONS = {"LayerNorm": 1e-12, "layer_normalization": 1e-3}


def dense(name, inputs, outputs):
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def norm(name, width):
    return {f"{name}/gamma": (width,), f"{name}/beta": (width,)}


def bert(scope="", layers=2, sizes=SIZES):
    """Names and shapes of a BERT."""
    hidden, inner, vocabulary, positions = sizes
    shapes = {
        "bert/embeddings/word_embeddings": (vocabulary, hidden),
        "bert/embeddings/position_embeddings": (positions, hidden),
        "bert/embeddings/token_type_embeddings": (2, hidden),
        **norm("bert/embeddings/LayerNorm", hidden),
        **dense("bert/pooler/dense", hidden, hidden),
    }
    for i in range(layers):
        for ours, theirs in LAYER_NAMES.items():
            name = f"bert/encoder/layer_{i}/{theirs}"
            if ours.endswith("norm"):
                shapes |= norm(name, hidden)
            elif ours in ATTENTION:
                shapes |= dense(name, hidden, hidden)
            elif "intermediate" in ours:
                shapes |= dense(name, hidden, inner)
            else:
                shapes |= dense(name, inner, hidden)
    return {scope + name: shape for name, shape in shapes.items()}


def masked_lm(scope="", next_sentence=False):
    shapes = {
        "cls/predictions/output_bias": (VOCABULARY,),
        **dense("cls/predictions/transform/dense", HIDDEN, HIDDEN),
        **norm("cls/predictions/transform/LayerNorm", HIDDEN),
    }
    if next_sentence:
        shapes |= {
            "cls/seq_relationship/output_weights": (2, HIDDEN),
            "cls/seq_relationship/output_bias": (2,),
        }
    return {scope + name: shape for name, shape in shapes.items()}


def reader():
    return {
        **bert("reader/module/", layers=1),
        **dense("reader/dense", HIDDEN, 2 * SPAN),
        **norm("reader/layer_normalization", SPAN),
        **dense("reader/dense_1", SPAN, 1),
    }


def embedder(generation="pre-trained", layers=2):
    scope, head_scope, layer_norm = EMBEDDERS[generation]
    return {
        **bert(scope, layers),
        **dense(f"{head_scope}dense", HIDDEN, PROJECTION),
        **norm(f"{head_scope}{layer_norm}", PROJECTION),
    }


PARTS = {
    "embedder": embedder(),
    "encoder": {**bert(), **masked_lm()},
    "reader": reader(),
    "bert": bert(),
}


def slot_shapes(names):
    """States of REALM's optimizer and of TF1's Adam."""
    return {
        **dict.fromkeys(("global_step", "beta1_power", "beta2_power"), ()),
        **{
            f"{name}/{slot}": (3,)
            for name in names
            for slot in ("adam_m", "adam_v", "Adam", "Adam_1")
        },
    }


def layer_values(arrays, layers):
    """Names of our layers' variables to arrays, by names of theirs."""
    return {
        f"{ours}/{kind}": arrays[f"{theirs}/{kind}"]
        for ours, theirs in layers.items()
        for kind in ("kernel", "bias", "gamma", "beta")
        if f"{theirs}/{kind}" in arrays
    }


def expected_bert(arrays, scope, layers=2):
    theirs = f"{scope}bert/embeddings/"
    return {
        "token_embedding/embeddings": arrays[f"{theirs}word_embeddings"],
        "position_embedding/embeddings": arrays[f"{theirs}position_embeddings"],
        "segment_embedding/embeddings": arrays[
            f"{theirs}token_type_embeddings"
        ],
        **layer_values(
            arrays,
            {
                "embeddings_layer_norm": f"{theirs}LayerNorm",
                "pooled_dense": f"{scope}bert/pooler/dense",
                **{
                    f"transformer_layer_{i}/{ours}": (
                        f"{scope}bert/encoder/layer_{i}/{name}"
                    )
                    for i in range(layers)
                    for ours, name in LAYER_NAMES.items()
                },
            },
        ),
    }


def check_embedder(model, arrays, generation):
    scope, head_scope, layer_norm = EMBEDDERS[generation]
    head = {
        "projection": f"{head_scope}dense",
        "projection_layer_norm": f"{head_scope}{layer_norm}",
    }
    bert = expected_bert(arrays, scope)
    assert_filled(model, {**bert, **layer_values(arrays, head)})
    assert model.layer_norm_epsilon == EPSILONS[layer_norm]


def check_reader(model, arrays):
    head = {
        "span_scorer/endpoints": "reader/dense",
        "span_scorer/layer_norm": "reader/layer_normalization",
        "span_scorer/score": "reader/dense_1",
    }
    bert = expected_bert(arrays, "reader/module/", layers=1)
    assert_filled(model, {**bert, **layer_values(arrays, head)})
    assert model.layer_norm_epsilon == 1e-3
    assert (model.span_hidden_dim, model.max_span_width) == (SPAN, 10)


def check_encoder(model, arrays, scope=""):
    theirs = f"{scope}cls/predictions"
    head = {
        "masked_lm_head/intermediate_dense": f"{theirs}/transform/dense",
        "masked_lm_head/intermediate_layer_norm": (
            f"{theirs}/transform/LayerNorm"
        ),
    }
    expected = {**expected_bert(arrays, scope), **layer_values(arrays, head)}
    expected["masked_lm_head/output_bias"] = arrays[f"{theirs}/output_bias"]
    assert_filled(model, expected)
