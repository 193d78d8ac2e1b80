"""BERT's masked-LM head."""

import keras
import keras_hub

from realm_tf.models.bert_encoder import approximate_gelu
from realm_tf.models.bert_encoder import exact_gelu


def masked_lm_head(encoder, *, name="masked_lm_head"):
    """BERT's masked-LM head over an encoder, tied to its word embeddings.

        logits[m] = LayerNorm(gelu(W h[m] + b)) E^T + c

    `keras_hub.layers.MaskedLMHead` is this with BERT's settings. It and the
    product with E run in float32 under any dtype policy: steps of bfloat16
    between logits of 10 are 0.06, and candidates that differ by less teach
    the retriever.

    Args:
        encoder: `BertEncoder`. Gives E, the GELU and the LayerNorm's
            epsilon. From here on its `token_embedding` gives float32 in
            reverse, whoever calls it.
        name: str. Of the layer. Defaults to `"masked_lm_head"`.

    Returns:
        `keras_hub.layers.MaskedLMHead`. Call it with the encoder's
        `sequence_output` and `mask_positions`, int tensor `(batch_size,
        num_masks)`; it gives logits, float32, `(batch_size, num_masks,
        vocabulary_size)`.

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805).
        Original code: google-research/bert, run_pretraining.py.
    """
    token_embedding = encoder.get_layer("token_embedding")
    token_embedding.reverse_dtype = "float32"
    return keras_hub.layers.MaskedLMHead(
        token_embedding=token_embedding,
        intermediate_activation=(
            exact_gelu if encoder.activation == "gelu" else approximate_gelu
        ),
        layer_norm_epsilon=encoder.layer_norm_epsilon,
        # Standard deviation as in google-research/bert, modeling.py.
        kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
        dtype="float32",
        name=name,
    )
