"""A layer of a Transformer, as BERT and MPNet have it."""

import math

import keras
from keras import ops

from realm_tf.models import cpu_operations
from realm_tf.models import layer_scan
from realm_tf.models import random_bytes
from realm_tf.models.precision import BFLOAT16
from realm_tf.models.precision import accelerator

# Added to the scores of padding; the same as of keras.layers.Softmax.
_MASKED = -1e9
# Wordpieces from which on all distances are one, as in MPNet and T5.
_MAX_DISTANCE = 128


class TransformerEncoder(keras.layers.Layer):
    """A Transformer layer with the norm after each residual, as BERT has it.

    It computes what `keras_hub.layers.TransformerEncoder` computes, faster and
    with less memory, with the same weights under the same names. Products are
    of matrices, one row a wordpiece. TensorFlow fuses the bias with them and,
    in inference, the activation; it cannot fuse keras_hub's einsums. The
    softmax of the attention is computed in float32 under any dtype policy.
    Where `cpu_operations` are possible, training computes nothing but the
    attention on padding. With JAX in bfloat16 on a GPU, inference has cuDNN's
    attention, which writes no scores.

    With `recompute`, training keeps the inputs of four parts of the layer,
    each as wide as a wordpiece's embedding, and computes what is inside them
    again in the backward pass, but for the last product of each: about a
    quarter more time (docs/measurements/training.md) for memory that no longer grows
    with heads and feed-forward width (Chen et al., 2016). The weights and the
    result are the same, dropout included.

    `keras.RematScope` cannot be used here: it wraps a call whose dropout
    changes the state of its seed generator, which must not happen inside of
    what is computed twice.

    Files of weights hold the names of the class and of its private attributes,
    which are those of keras_hub's.

    `position_bias`, `(num_heads, length, length)`, is added to all scores of
    the attention; see `RelativePositionBias`.

    Args:
        intermediate_dim: int. Width of the feed-forward layer.
        num_heads: int. Attention heads.
        activation: function. Of the feed-forward layer; its attribute
            `in_training`, if it has one, replaces it in training.
        dropout: float. Rate of all three dropouts. Defaults to `0.0`.
        layer_norm_epsilon: float. Defaults to `1e-12`, as BERT.
        kernel_initializer: str or `keras.initializers.Initializer`. Defaults to
            `"glorot_uniform"`.

    Attributes:
        recompute: bool. `False` until it is set.

    References:
        [Chen et al., 2016](https://arxiv.org/abs/1604.06174).
    """

    recompute = False

    def __init__(
        self,
        intermediate_dim,
        num_heads,
        activation,
        dropout=0.0,
        layer_norm_epsilon=1e-12,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.num_heads = num_heads
        self.activation = keras.activations.get(activation)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._dropout = keras.layers.Dropout(dropout, name="dropout")

    def build(self, inputs_shape):
        hidden_dim = inputs_shape[-1]
        # It holds the weights of the attention; `call` computes with them.
        self._self_attention_layer = keras.layers.MultiHeadAttention(
            self.num_heads,
            hidden_dim // self.num_heads,
            kernel_initializer=self.kernel_initializer,
            dtype=self.dtype_policy,
            name="self_attention_layer",
        )
        self._self_attention_layer.build(inputs_shape, inputs_shape)
        self._self_attention_layer_norm = self._norm(
            inputs_shape, "self_attention_layer_norm"
        )
        self._feedforward_layer_norm = self._norm(
            inputs_shape, "feedforward_layer_norm"
        )
        self._feedforward_intermediate_dense = self._dense(
            hidden_dim, self.intermediate_dim, "feedforward_intermediate_dense"
        )
        self._feedforward_output_dense = self._dense(
            self.intermediate_dim, hidden_dim, "feedforward_output_dense"
        )
        self.built = True

    def _norm(self, shape, name):
        layer = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )
        layer.build(shape)
        return layer

    def _dense(self, input_dim, output_dim, name):
        layer = keras.layers.Dense(
            output_dim,
            # Two draws of one initializer are equal.
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )
        layer.build((None, None, input_dim))
        return layer

    def call(
        self, inputs, padding_mask=None, position_bias=None, training=None
    ):
        return layer_scan.run(
            self,
            inputs,
            padding_mask=padding_mask,
            position_bias=position_bias,
            training=training,
        )

    def cast_weights(self, dtype) -> list:
        """Kernels and biases, or gains, in the order that `compute` takes.

        Keras casts weights inside a layer's call, where a backward pass is not.
        """
        attention = self._self_attention_layer
        layers = (
            attention.query_dense,
            attention.key_dense,
            attention.value_dense,
            attention.output_dense,
            self._self_attention_layer_norm,
            self._feedforward_intermediate_dense,
            self._feedforward_output_dense,
            self._feedforward_layer_norm,
        )
        return [
            ops.cast(weight, dtype)
            for layer in layers
            for weight in layer.weights
        ]

    def draw_seeds(self, training) -> list:
        """A seed of each of the three dropouts, or none."""
        if not (training and self._dropout.rate):
            return []
        return [self._dropout.seed_generator.next() for _ in range(3)]

    def compute(
        self, inputs, weights, seeds, *, padding_mask, position_bias, training
    ):
        """As the call, with the weights and seeds of any layer of this shape.

        Args:
            inputs: float tensor `(batch_size, length, hidden_dim)`.
            weights: list of tensors, see `cast_weights`.
            seeds: list of tensors, see `draw_seeds`.
            padding_mask: int tensor `(batch_size, length)`, or `None`.
            position_bias: float tensor `(num_heads, length, length)`, or
                `None`.
            training: bool.
        """
        batch_size, length = ops.shape(inputs)[:2]
        hidden_dim = inputs.shape[-1]
        shape = batch_size, length, self.num_heads, hidden_dim // self.num_heads
        is_fast = training and cpu_operations.are_possible()
        rows = _AllRows()
        if is_fast and padding_mask is not None:
            rows = cpu_operations.WithoutPadding(padding_mask)
        # (b * l, h), or fewer rows
        x = rows.drop(ops.reshape(inputs, (-1, hidden_dim)))
        drop_shares, drop_attended, drop_hidden = [
            _Dropout(self._dropout.rate, seed) for seed in seeds
        ] or [_same] * 3
        keep = keras.remat if self.recompute and training else _same
        is_fused = (
            not training
            and position_bias is None
            and _has_fused_attention(x, length)
        )
        activate = self.activation
        if is_fast:
            activate = getattr(activate, "in_training", activate)

        def attend(x, *weights):
            return _attend(
                x, weights, shape, padding_mask, drop_shares, rows, is_fused
            )

        def feed_forward(x, kernel, bias, output_kernel, output_bias):
            hidden = activate(_dense(x, kernel, bias))
            return _dense(hidden, output_kernel, output_bias)

        def add_norm(weights, drop, x, output):
            def add(x, output, gamma, beta):
                epsilon = self.layer_norm_epsilon
                return _normalize(x + drop(output), gamma, beta, epsilon)

            return keep(add)(x, output, *weights)

        of_attention = weights[:8]
        if position_bias is not None:
            # Has a gradient, as weights have.
            of_attention = [*of_attention, position_bias]
        output = keep(attend)(x, *of_attention)
        x = add_norm(weights[8:10], drop_attended, x, output)
        output = keep(feed_forward)(x, *weights[10:14])
        x = add_norm(weights[14:], drop_hidden, x, output)
        return ops.reshape(rows.restore(x), (batch_size, length, hidden_dim))


class RelativePositionBias(keras.layers.Layer):
    """What scores of the attention get for the distance of two wordpieces.

    A number for each head and bucket of distances. Half of the buckets are for
    keys before the query, half for those after it; of each half the first ones
    hold one distance, the others more and more, up to 128 and beyond. Call it
    with int `token_ids`, `(batch_size, length)`, for a tensor
    `(num_heads, length, length)`, query first.

    Args:
        num_buckets: int. An even number.
        num_heads: int.

    References:
        [Raffel et al., 2019](https://arxiv.org/abs/1910.10683), section 2.1;
        [Song et al., 2020](https://arxiv.org/abs/2004.09297).
        Original code: huggingface/transformers,
        models/mpnet/modeling_mpnet.py.
    """

    def __init__(self, num_buckets, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.num_buckets = num_buckets
        self.num_heads = num_heads

    def build(self, token_ids_shape):
        self.embeddings = self.add_weight(
            shape=(self.num_buckets, self.num_heads),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            name="embeddings",
        )

    def call(self, token_ids):
        positions = ops.arange(ops.shape(token_ids)[1], dtype="int32")
        # (l, l), query - key
        distances = positions[:, None] - positions
        half = self.num_buckets // 2
        buckets = ops.digitize(ops.abs(distances), self._limits(half))
        buckets = ops.cast(buckets, "int32") + half * ops.cast(
            distances < 0, "int32"
        )
        # (l, l, n) -> (n, l, l)
        return ops.transpose(
            ops.take(self.embeddings, buckets, axis=0), (2, 0, 1)
        )

    def _limits(self, half):
        """The least distance of each bucket but the first."""
        exact = half // 2
        growth = (_MAX_DISTANCE / exact) ** (1 / (half - exact))
        # A power that is a whole number may be computed as a little more.
        longer = [
            math.ceil(exact * growth**power - 1e-6)
            for power in range(1, half - exact)
        ]
        return [*range(1, exact + 1), *longer]

    def compute_output_shape(self, token_ids_shape):
        length = token_ids_shape[1]
        return self.num_heads, length, length


def _same(x):
    return x


class _AllRows:
    """Keeps padding; compare `cpu_operations.WithoutPadding`."""

    drop = restore = staticmethod(_same)


def _has_fused_attention(x, length):
    """Whether cuDNN's may be taken; it refuses some gradients of odd lengths,
    as of a query that is embedded without one within a training step."""
    is_bfloat16 = keras.backend.standardize_dtype(x.dtype) == BFLOAT16
    return is_bfloat16 and accelerator() == "gpu" and length % 2 == 0


def _attend(x, weights, shape, padding_mask, drop, rows, is_fused):
    """Output of the attention, `(num_rows, hidden_dim)`."""
    *inner, output_kernel, output_bias = weights[:8]
    # (b, l, n, h)
    parts = [
        ops.reshape(rows.restore(_dense(x, kernel, bias)), shape)
        for kernel, bias in zip(inner[::2], inner[1::2], strict=True)
    ]
    if is_fused:
        attended = _attend_fused(*parts, padding_mask)
    else:
        attended = _attend_by_products(*parts, padding_mask, drop, *weights[8:])
    attended = rows.drop(ops.reshape(attended, (-1, x.shape[-1])))
    return _dense(attended, output_kernel, output_bias)


def _attend_fused(queries, keys, values, padding_mask):
    """`(b, l, n, h)`, in one operation."""
    mask = None
    if padding_mask is not None:
        batch_size, length = padding_mask.shape
        mask = ops.broadcast_to(
            ops.cast(padding_mask, "bool")[:, None, None],
            (batch_size, 1, length, length),
        )
    return ops.dot_product_attention(queries, keys, values, mask=mask)


def _attend_by_products(
    queries, keys, values, padding_mask, drop, position_bias=None
):
    """`(b, l, n, h)`, with shares to drop from."""
    scale = queries.shape[-1] ** -0.5
    # (b, n, l, h)
    queries, keys, values = (
        ops.transpose(part, (0, 2, 1, 3)) for part in (queries, keys, values)
    )
    # (b, n, l, l)
    scores = ops.matmul(queries * scale, ops.transpose(keys, (0, 1, 3, 2)))
    if padding_mask is not None:
        bias = _MASKED * (1.0 - ops.cast(padding_mask, "float32"))
        # Exact in any type: what is kept gets 0.
        scores = scores + ops.cast(bias, scores.dtype)[:, None, None]
    if position_bias is not None:
        scores = scores + ops.cast(position_bias, scores.dtype)
    shares = ops.softmax(ops.cast(scores, "float32"))
    shares = drop(ops.cast(shares, values.dtype))
    return ops.transpose(ops.matmul(shares, values), (0, 2, 1, 3))


def _normalize(x, gamma, beta, epsilon):
    """Layer normalisation of `(num_rows, dim)`, in float32 inside.

    The difference from the mean is used twice: `ops.layer_normalization`
    computes a third more, gradient included.
    """
    if cpu_operations.are_possible():
        return cpu_operations.normalize(x, gamma, beta, epsilon)
    dtype = x.dtype
    x, gamma, beta = (ops.cast(each, "float32") for each in (x, gamma, beta))
    x = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
    return ops.cast(x * ops.rsqrt(variance + epsilon) * gamma + beta, dtype)


def _dense(x, kernel, bias):
    """A product and a bias; of an einsum's weights, too."""
    output = ops.matmul(x, ops.reshape(kernel, (x.shape[-1], -1)))
    return ops.add(output, ops.reshape(bias, (-1,)))


class _Dropout:
    """Dropout of a seed, the same however often called.

    On TensorFlow and on accelerators with 8 random bits a number: Keras draws
    32 of them, and makes a float of them. The rate is rounded to a multiple of
    2^-8; what is kept is divided by the share that this keeps.
    """

    def __init__(self, rate, seed):
        self._rate = rate
        self._seed = seed

    def __call__(self, x):
        if keras.backend.backend() == "tensorflow":
            draw = _draw_in_tensorflow
        elif accelerator():
            draw = random_bytes.draw
        else:
            return keras.random.dropout(x, self._rate, seed=self._seed)
        dropped = round(self._rate * 2**8)
        is_kept = draw(self._seed, x) >= dropped
        return x * (ops.cast(is_kept, x.dtype) / (1.0 - dropped / 2**8))


def _draw_in_tensorflow(seed, x):
    import tensorflow as tf

    size = tf.size(x)
    bits = tf.random.stateless_uniform(
        [(size + 7) // 8], seed=seed, minval=None, maxval=None, dtype=tf.uint64
    )
    bits = tf.reshape(tf.bitcast(bits, tf.uint8), [-1])[:size]
    return tf.reshape(bits, tf.shape(x))
