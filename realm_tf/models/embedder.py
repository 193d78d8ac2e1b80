"""The embedder: text to a point that inner products compare."""

import keras
from keras import ops

from realm_tf.models.bert_encoder import EncoderModel
from realm_tf.models.bert_encoder import make_initializer
from realm_tf.models.bert_encoder import make_inputs
from realm_tf.models.precision import computing_in

POOLINGS = ("cls", "first", "mean")


@keras.saving.register_keras_serializable(package="realm_tf")
class Embedder(EncoderModel):
    """A BERT tower with pooling and an optional projection.

        Embed(x) = LayerNorm(W pool(BERT(join_BERT(x))))

    One instance serves queries and blocks, or two do: towers are shared or
    separate by what the caller passes on. Inputs as `BertEncoder`; the
    output is a float32 tensor `(batch_size, embedding_dim)`. Everything
    after the Transformer layers runs in float32 under any dtype policy:
    steps of bfloat16 between inner products of some hundreds are a nat.

    Args:
        encoder: `BertEncoder`.
        pooling: str. `"cls"` (BERT's pooled [CLS], REALM), `"first"` (what the
            last layer gives for [CLS], BGE) or `"mean"` (over the wordpieces,
            MiniLM). Defaults to `"cls"`.
        projection_dim: int or `None`. Width of the projection; `None` leaves
            the encoder's width and adds neither layer. Defaults to `128`.
        normalize: bool. Divide by the Euclidean norm, so that inner products
            are cosines. Defaults to `False`.
        layer_norm_epsilon: float. Of the projection. Defaults to `1e-12`,
            as in the released checkpoints.
        dropout: float. After the projection, in training. Defaults to `0.1`.
        prefix_ids: sequence of int. Wordpieces that are read after [CLS] and
            before the text, such as those of "query: " (E5). Defaults to none.

    Raises:
        ValueError: if `pooling` is none of the three.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.2.
        Original code: google-research/language, language/realm.
    """

    def __init__(
        self,
        encoder,
        pooling="cls",
        projection_dim=128,
        normalize=False,
        layer_norm_epsilon=1e-12,
        dropout=0.1,
        prefix_ids=(),
        **kwargs,
    ):
        if pooling not in POOLINGS:
            raise ValueError(
                f"`pooling` must be one of {POOLINGS}. "
                f"Received: pooling={pooling!r}"
            )
        inputs = make_inputs()
        read = inputs
        if prefix_ids:
            read = Prefix(prefix_ids, name="prefix")(inputs)
        encoded = encoder(read)
        sequence = encoded["sequence_output"]
        if pooling == "cls":
            x = encoded["pooled_output"]
        elif pooling == "first":
            x = ops.cast(sequence[:, 0], "float32")
        else:
            x = MeanPooling(dtype="float32", name="mean_pooling")(
                sequence, read["padding_mask"]
            )
        if pooling != "cls":
            encoder.get_layer("pooled_dense").trainable = False
        if projection_dim is not None:
            x = keras.layers.Dense(
                projection_dim,
                kernel_initializer=make_initializer(),
                dtype="float32",
                name="projection",
            )(x)
            x = keras.layers.LayerNormalization(
                epsilon=layer_norm_epsilon,
                dtype="float32",
                name="projection_layer_norm",
            )(x)
            x = keras.layers.Dropout(
                dropout, dtype="float32", name="projection_dropout"
            )(x)
        if normalize:
            x = keras.layers.UnitNormalization(
                dtype="float32", name="normalize"
            )(x)
        config = {
            "encoder": encoder,
            "pooling": pooling,
            "projection_dim": projection_dim,
            "normalize": normalize,
            "layer_norm_epsilon": layer_norm_epsilon,
            "dropout": dropout,
            "prefix_ids": tuple(prefix_ids),
        }
        super().__init__(inputs, x, config, **kwargs)

    @property
    def embedding_dim(self) -> int:
        """Width of the output."""
        return self.projection_dim or self.encoder.hidden_dim

    @property
    def max_length(self) -> int:
        """The most wordpieces that are read, [CLS] and [SEP] among them."""
        return self.encoder.max_sequence_length - len(self.prefix_ids)

    def copy(self):
        """An embedder of its own with the same weights and precision.

        Returns:
            `Embedder`.
        """
        config = keras.saving.serialize_keras_object(self)
        with computing_in(self.encoder.compute_dtype):
            copied = keras.saving.deserialize_keras_object(config)
        copied.set_weights(self.get_weights())
        return copied


class Prefix(keras.layers.Layer):
    """Puts wordpieces between [CLS] and the rest, into its segment.

    Args:
        token_ids: sequence of int.
    """

    def __init__(self, token_ids, **kwargs):
        super().__init__(**kwargs)
        self.token_ids = tuple(token_ids)

    def call(self, inputs):
        inputs = {name: ops.cast(x, "int32") for name, x in inputs.items()}
        first = inputs["padding_mask"][:, :1]
        ids = ops.convert_to_tensor([self.token_ids], "int32")
        between = {
            "token_ids": first * ids,
            "segment_ids": ops.zeros_like(first * ids),
            "padding_mask": first * ops.ones_like(ids),
        }
        return {
            name: ops.concatenate(
                [inputs[name][:, :1], rows, inputs[name][:, 1:]], axis=1
            )
            for name, rows in between.items()
        }


class MeanPooling(keras.layers.Layer):
    """The mean of the positions that hold a wordpiece."""

    def call(self, sequence, padding_mask):
        mask = ops.cast(padding_mask, sequence.dtype)[:, :, None]
        # A row of padding only gives zeros, not a division by zero.
        count = ops.maximum(ops.sum(mask, axis=1), 1.0)
        return ops.sum(sequence * mask, axis=1) / count
