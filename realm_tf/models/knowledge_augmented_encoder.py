"""The knowledge-augmented encoder: masked wordpieces, given a block."""

import keras
import keras_hub

from realm_tf.models.bert_encoder import ACTIVATIONS
from realm_tf.models.encoder_model import EncoderModel
from realm_tf.models.encoder_model import make_initializer
from realm_tf.models.encoder_model import make_inputs


@keras.saving.register_keras_serializable(package="realm_tf")
class KnowledgeAugmentedEncoder(EncoderModel):
    """BERT over join_BERT(x, z_body) with the masked-LM head.

        p(y_m | z, x) = softmax(MLM(BERT(join_BERT(x, z_body))[m]))
        MLM(h) = LayerNorm(gelu(W h + b)) E^T + c

    Query and block attend to each other. A row is a query with one of its
    candidates (`packing.JoinBert`); the query comes first, so its
    `mask_positions` are those of the joint sequence. Inputs are a dict of
    int tensors: `token_ids`, `segment_ids` and `padding_mask`,
    `(num_rows, sequence_length)`, and `mask_positions`,
    `(num_rows, num_masks)`, padded with any position. The output is a
    float32 tensor `(num_rows, num_masks, vocabulary_size)`: logits, at
    masked places only.

    The head is `keras_hub.layers.MaskedLMHead` with BERT's settings, tied to
    the encoder's word embeddings E. It and the product with E run in float32
    under any dtype policy: steps of bfloat16 between logits of 10 are 0.06,
    and candidates that differ by less teach the retriever.

    Args:
        encoder: `BertEncoder`. Its pooled [CLS] is not read and not trained.
            From here on its `token_embedding` gives float32 in reverse,
            whoever calls it.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.2;
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805).
        Original code: google-research/language, language/realm/model.py;
        google-research/bert, run_pretraining.py.
    """

    def __init__(self, encoder, **kwargs):
        inputs = make_inputs("mask_positions")
        # Nothing here reads the pooled [CLS].
        encoder.get_layer("pooled_dense").trainable = False
        sequence = encoder(
            {k: v for k, v in inputs.items() if k != "mask_positions"}
        )["sequence_output"]
        token_embedding = encoder.get_layer("token_embedding")
        token_embedding.reverse_dtype = "float32"
        logits = keras_hub.layers.MaskedLMHead(
            token_embedding=token_embedding,
            intermediate_activation=ACTIVATIONS[encoder.activation],
            layer_norm_epsilon=encoder.layer_norm_epsilon,
            kernel_initializer=make_initializer(),
            dtype="float32",
            name="masked_lm_head",
        )(sequence, inputs["mask_positions"])
        super().__init__(inputs, logits, {"encoder": encoder}, **kwargs)
