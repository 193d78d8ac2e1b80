"""The BERT encoder under every tower, reader and joint encoder."""

import math

import keras
import keras_hub
from keras import ops

from realm_tf.errors import InputError
from realm_tf.models import cpu_operations
from realm_tf.models import layer_scan
from realm_tf.models.transformer_encoder import RelativePositionBias
from realm_tf.models.transformer_encoder import TransformerEncoder


def make_inputs(*more):
    """Symbolic int32 inputs `(batch_size, sequence_length)`.

    Args:
        *more: str. Names beside `token_ids`, `segment_ids` and
            `padding_mask`.

    Returns:
        dict of `keras.KerasTensor`.
    """
    names = ("token_ids", "segment_ids", "padding_mask", *more)
    return {
        name: keras.Input((None,), dtype="int32", name=name) for name in names
    }


def make_initializer():
    """BERT's: its standard deviation is in google-research/bert, modeling.py."""
    return keras.initializers.TruncatedNormal(stddev=0.02)


class EncoderModel(keras.Model):
    """A functional model that is made again from its config.

    Args:
        inputs: dict of `keras.KerasTensor`.
        outputs: tensors that are computed from them.
        config: dict. The arguments of the subclass, which become attributes;
            one that is a model is kept with its own config.
    """

    def __init__(self, inputs, outputs, config, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self._config_names = tuple(config)
        for name, value in config.items():
            setattr(self, name, value)

    @property
    def drops_out(self) -> bool:
        """Whether the outputs of training differ from step to step."""
        return any(
            isinstance(layer, keras.layers.Dropout) and layer.rate > 0
            for layer in self._flatten_layers()
        )

    def set_dropout(self, rate):
        """Another dropout rate than the configuration's, for one training.

        Args:
            rate: float. Of all layers, between 0 and 1.
        """
        for layer in self._flatten_layers():
            if isinstance(layer, keras.layers.Dropout):
                layer.rate = rate
                if rate and not hasattr(layer, "seed_generator"):
                    # Keras makes none where the rate was 0.
                    layer._tracker.unlock()
                    layer.seed_generator = keras.random.SeedGenerator(
                        layer.seed
                    )
                    layer._tracker.lock()

    def get_config(self):
        config = {
            name: keras.saving.serialize_keras_object(getattr(self, name))
            for name in self._config_names
        }
        return {**config, "name": self.name}

    @classmethod
    def from_config(cls, config):
        return cls(
            **{
                name: keras.saving.deserialize_keras_object(value)
                for name, value in config.items()
            }
        )


def _gelu(x):
    """x P(X <= x), X standard normal.

    Not `ops.gelu`: TensorFlow's is written with erfc, which takes three times
    as long as erf, in bfloat16 nine times. Its optimizer joins either to the
    product before it, but in inference only.
    """
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


def _gelu_approximate(x):
    return ops.gelu(x, approximate=True)


# `TransformerEncoder` computes these in training where it can.
_gelu.in_training = cpu_operations.gelu
_gelu_approximate.in_training = cpu_operations.gelu_approximate

# The two forms of GELU in published weights: Hugging Face's "gelu" is exact,
# Google's BERT and REALM ("gelu_new") use the tanh approximation.
ACTIVATIONS = {
    "gelu": _gelu,
    "gelu_approximate": _gelu_approximate,
}


@keras.saving.register_keras_serializable(package="realm_tf")
class BertEncoder(EncoderModel):
    """A Transformer encoder with BERT's embeddings.

    Inputs are dicts of int tensors of shape `(batch_size, sequence_length)`:
    `token_ids`, `segment_ids` and `padding_mask` (1 where a wordpiece is).
    The output is a dict of `sequence_output`,
    `(batch_size, sequence_length, hidden_dim)`, and `pooled_output`,
    `(batch_size, hidden_dim)`: [CLS] through a dense layer with tanh, in
    float32 under any dtype policy.

    keras_hub's `BertBackbone` fixes the tanh GELU; here it is an argument,
    because weights trained with the exact one lose three digits otherwise.

    Args:
        vocabulary_size: int. Number of wordpieces.
        num_layers: int. Transformer layers.
        num_heads: int. Attention heads.
        hidden_dim: int. Width.
        intermediate_dim: int. Width of the feed-forward layer.
        activation: str. `"gelu"` (exact) or `"gelu_approximate"` (tanh).
            Defaults to `"gelu_approximate"`, as Google's BERT.
        dropout: float. Rate, between 0 and 1. Defaults to `0.1`.
        max_sequence_length: int. Rows of the position table. Defaults to
            `512`.
        layer_norm_epsilon: float. Defaults to `1e-12`, as BERT.
        num_relative_buckets: int. Buckets of `RelativePositionBias`, which all
            layers share. With them `segment_ids` are not read, as in MPNet,
            which has 32. Defaults to `0`: none.

    Raises:
        ValueError: if `activation` is neither of the two.

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805);
        [Song et al., 2020](https://arxiv.org/abs/2004.09297).
    """

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        activation="gelu_approximate",
        dropout=0.1,
        max_sequence_length=512,
        layer_norm_epsilon=1e-12,
        num_relative_buckets=0,
        **kwargs,
    ):
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"`activation` must be one of {tuple(ACTIVATIONS)}. "
                f"Received: activation={activation!r}"
            )
        inputs = make_inputs()
        x = _embed(
            inputs,
            vocabulary_size,
            hidden_dim,
            max_sequence_length,
            has_segments=not num_relative_buckets,
        )
        x = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, name="embeddings_layer_norm"
        )(x)
        x = keras.layers.Dropout(dropout, name="embeddings_dropout")(x)
        # All are made before one is called: seeds are drawn in this order.
        transformer_layers = [
            TransformerEncoder(
                intermediate_dim=intermediate_dim,
                num_heads=num_heads,
                activation=ACTIVATIONS[activation],
                dropout=dropout,
                layer_norm_epsilon=layer_norm_epsilon,
                kernel_initializer=make_initializer(),
                name=f"transformer_layer_{index}",
            )
            for index in range(num_layers)
        ]
        pooled_dense = keras.layers.Dense(
            hidden_dim,
            activation="tanh",
            kernel_initializer=make_initializer(),
            dtype="float32",
            name="pooled_dense",
        )
        masks = {"padding_mask": inputs["padding_mask"]}
        if num_relative_buckets:
            masks["position_bias"] = RelativePositionBias(
                num_relative_buckets,
                num_heads,
                name="relative_position_embedding",
            )(inputs["token_ids"])
        for layer in transformer_layers:
            x = layer(x, **masks)
        config = {
            "vocabulary_size": vocabulary_size,
            "num_layers": num_layers,
            "num_heads": num_heads,
            "hidden_dim": hidden_dim,
            "intermediate_dim": intermediate_dim,
            "activation": activation,
            "dropout": dropout,
            "max_sequence_length": max_sequence_length,
            "layer_norm_epsilon": layer_norm_epsilon,
        }
        # Fingerprints of BERT's towers are of the numbers above.
        if num_relative_buckets:
            config["num_relative_buckets"] = num_relative_buckets
        outputs = {
            "sequence_output": x,
            "pooled_output": pooled_dense(x[:, 0, :]),
        }
        super().__init__(inputs, outputs, config, **kwargs)
        self.num_relative_buckets = num_relative_buckets

    def call(self, inputs, training=None, mask=None):
        with layer_scan.together(
            self._transformer_layers(), inputs["token_ids"], training
        ):
            return super().call(inputs, training=training, mask=mask)

    def _transformer_layers(self):
        names = (f"transformer_layer_{n}" for n in range(self.num_layers))
        return [self.get_layer(name) for name in names]

    def freeze(self, *, embeddings=False, num_layers=0):
        """Makes the lower part untrainable, which a small budget rewards.

        Args:
            embeddings: bool. Freeze the embedding tables, the bias of relative
                positions and the LayerNorm. Defaults to `False`.
            num_layers: int. Freeze this many of the lowest Transformer
                layers. Defaults to `0`.

        Raises:
            InputError: if there are not so many.
        """
        if num_layers > self.num_layers:
            raise InputError(
                f"The encoder has {self.num_layers} layers: freeze so many at "
                f"most, with --set num_frozen_layers. Received: {num_layers}"
            )
        if embeddings:
            for layer in self.layers:
                if layer.name.endswith(("_embedding", "embeddings_layer_norm")):
                    layer.trainable = False
        for layer in self._transformer_layers()[:num_layers]:
            layer.trainable = False

    def set_recompute(self, recompute=True):
        """Gradient checkpointing: less memory in training for more time.

        Args:
            recompute: bool. See `TransformerEncoder`. Defaults to `True`.
        """
        for layer in self._transformer_layers():
            layer.recompute = recompute


def _embed(
    inputs, vocabulary_size, hidden_dim, max_sequence_length, *, has_segments
):
    """The sum of BERT's three embeddings, or of two."""
    tokens = keras_hub.layers.ReversibleEmbedding(
        vocabulary_size,
        hidden_dim,
        embeddings_initializer=make_initializer(),
        name="token_embedding",
    )(inputs["token_ids"])
    positions = keras_hub.layers.PositionEmbedding(
        sequence_length=max_sequence_length,
        initializer=make_initializer(),
        name="position_embedding",
    )(tokens)
    added = [tokens, positions]
    if has_segments:
        segments = keras.layers.Embedding(
            2,
            hidden_dim,
            embeddings_initializer=make_initializer(),
            name="segment_embedding",
        )
        added.append(segments(inputs["segment_ids"]))
    return keras.layers.Add(name="embeddings_add")(added)
