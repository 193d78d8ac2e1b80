"""The BERT tagger's model: a label for each word."""

import keras
from keras import ops

from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.tagging.sentence_batches import SHAPES


@keras.saving.register_keras_serializable(package="realm_tf")
class TokenClassifier(keras.Model):
    """BERT with a dense layer over each wordpiece, and with word shapes.

        logits = W dropout(BERT(words + positions + shapes)) + b

    Inputs are a dict of int tensors `(batch_size, sequence_length)`:
    `token_ids`, `shape_ids` (rows of `sentence_batches.SHAPES`) and `padding_mask`. The
    output is a float tensor `(batch_size, sequence_length, num_labels)`, of
    which only the first wordpiece of each word counts.

    A lower-casing vocabulary cannot tell "Turkey" from "turkey". So one more
    table beside BERT's word and position tables adds how a word is written:
    at the input, where the words around it see it, too (in a headline,
    capitals say little). It starts as zeros, so training starts from what
    the encoder was.

    Args:
        encoder: `BertEncoder`. Its layers become this model's; all but the
            pooled [CLS], which nothing here reads.
        num_labels: int.
        dropout: float. Before the dense layer, in training. Defaults to
            `0.1`, as BERT.

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 5.3:
        the first wordpiece represents the word.
    """

    def __init__(
        self,
        encoder,
        num_labels,
        dropout=0.1,
        **kwargs,
    ):
        # === Functional Model ===
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in ("token_ids", "shape_ids", "padding_mask")
        }
        tokens = encoder.get_layer("token_embedding")(inputs["token_ids"])
        segments = encoder.get_layer("segment_embedding")(
            ops.zeros_like(inputs["token_ids"])
        )
        shapes = keras.layers.Embedding(
            len(SHAPES),
            encoder.hidden_dim,
            embeddings_initializer="zeros",
            name="shape_embedding",
        )(inputs["shape_ids"])
        x = keras.layers.Add(name="input_add")(
            (
                tokens,
                encoder.get_layer("position_embedding")(tokens),
                segments,
                shapes,
            )
        )
        x = encoder.get_layer("embeddings_layer_norm")(x)
        x = encoder.get_layer("embeddings_dropout")(x)
        for index in range(encoder.num_layers):
            layer = encoder.get_layer(f"transformer_layer_{index}")
            x = layer(x, padding_mask=inputs["padding_mask"])
        x = keras.layers.Dropout(dropout, name="output_dropout")(x)
        logits = keras.layers.Dense(
            num_labels,
            # Standard deviation as in google-research/bert, modeling.py.
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            name="labels",
        )(x)
        super().__init__(inputs=inputs, outputs=logits, **kwargs)

        # === Config ===
        # A model's name differs from run to run; its fingerprint must not.
        self.encoder_config = {
            k: v for k, v in encoder.get_config().items() if k != "name"
        }
        self.num_labels = num_labels
        self.dropout = dropout

    def get_config(self):
        return {
            "encoder": dict(self.encoder_config),
            "num_labels": self.num_labels,
            "dropout": self.dropout,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        return cls(BertEncoder(**config.pop("encoder")), **config)


def word_loss():
    """Cross-entropy of the words: the mean over a batch's labelled positions.

        - sum_i w_i log p(y_i | x) / sum_i w_i

    The weights `w` are 1 at the first wordpiece of each word, else 0.
    """
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
