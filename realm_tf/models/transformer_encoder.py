"""BERT's Transformer layer, in few large products, with checkpointing."""

import contextlib
import contextvars

import keras
import keras_hub
from keras import ops

# Added to the scores of padding; the same as of keras.layers.Softmax.
_MASKED = -1e9
_ONLY_HERE = contextvars.ContextVar("only_for_this_process", default=False)
_ONEDNN_NORM = "_MklLayerNorm"


class TransformerEncoder(keras_hub.layers.TransformerEncoder):
    """`keras_hub.layers.TransformerEncoder`, faster and with less memory.

    It has the weights of keras_hub's and computes the same, with the norm
    after each residual, as BERT does. Products are of matrices, one row a
    wordpiece, to which TensorFlow joins the bias and, in inference, the
    activation; keras_hub's einsums and products of three dimensions are
    computed one after the other. The softmax of the attention is computed in
    float32 under any dtype policy.

    With `recompute`, training keeps the inputs of four parts of the layer,
    each as wide as a wordpiece's embedding, and computes what is inside them
    again in the backward pass, but for the last product of each: about a
    quarter more time (docs/measurements.md) for memory that no longer grows
    with heads and feed-forward width (Chen et al., 2016). The weights and the
    result are the same, dropout included.

    `keras.RematScope` cannot be used here: it wraps a call whose dropout
    changes the state of its seed generator, which must not happen inside of
    what is computed twice.

    The class is called as keras_hub's: files of weights hold its name.

    Attributes:
        recompute: bool. `False` until it is set.

    References:
        [Chen et al., 2016](https://arxiv.org/abs/1604.06174).
    """

    recompute = False

    def call(self, inputs, padding_mask=None, training=None):
        batch_size, length = ops.shape(inputs)[:2]
        hidden_dim = inputs.shape[-1]
        # (b * l, h)
        x = ops.reshape(inputs, (-1, hidden_dim))
        head_dim = hidden_dim // self.num_heads
        shape = (batch_size, length, self.num_heads, head_dim)
        attention = self._self_attention_layer
        drop_shares, drop_attended, drop_hidden = (
            _Dropout(layer) if training and layer.rate else _same
            for layer in (
                attention._dropout_layer,
                self._self_attention_dropout,
                self._feedforward_dropout,
            )
        )
        keep = keras.remat if self.recompute and training else _same

        def attend(x, *weights):
            return _attend(x, weights, shape, padding_mask, drop_shares)

        def feed_forward(x, kernel, bias, output_kernel, output_bias):
            hidden = _dense(x, kernel, bias)
            hidden = self._feedforward_intermediate_dense.activation(hidden)
            return _dense(hidden, output_kernel, output_bias)

        def add_norm(layer, drop, x, output):
            def add(x, output, gamma, beta):
                x = x + drop(output)
                return _normalize(
                    x, gamma, beta, layer.epsilon, training=training
                )

            return keep(add)(x, output, *_weights(x, layer))

        weights = _weights(
            x,
            attention._query_dense,
            attention._key_dense,
            attention._value_dense,
            attention._output_dense,
        )
        output = keep(attend)(x, *weights)
        x = add_norm(self._self_attention_layer_norm, drop_attended, x, output)
        weights = _weights(
            x,
            self._feedforward_intermediate_dense,
            self._feedforward_output_dense,
        )
        output = keep(feed_forward)(x, *weights)
        x = add_norm(self._feedforward_layer_norm, drop_hidden, x, output)
        return ops.reshape(x, (batch_size, length, hidden_dim))


def _same(x):
    return x


def _weights(x, *layers):
    """Kernels and biases, or gains, of layers, in the type of `x`.

    Keras casts weights inside a layer's call, where a backward pass is not.
    """
    return [
        ops.cast(variable, x.dtype)
        for layer in layers
        for variable in layer.weights
    ]


def _attend(x, weights, shape, padding_mask, drop):
    """What the heads find, `(batch_size * length, hidden_dim)`."""
    *inner, output_kernel, output_bias = weights
    # (b, n, l, h)
    queries, keys, values = (
        ops.transpose(ops.reshape(_dense(x, kernel, bias), shape), (0, 2, 1, 3))
        for kernel, bias in zip(inner[::2], inner[1::2], strict=True)
    )
    scale = shape[-1] ** -0.5
    # (b, n, l, l)
    scores = ops.matmul(queries * scale, ops.transpose(keys, (0, 1, 3, 2)))
    if padding_mask is not None:
        bias = _MASKED * (1.0 - ops.cast(padding_mask, "float32"))
        # Exact in any type: what is kept gets 0.
        scores = scores + ops.cast(bias, scores.dtype)[:, None, None]
    shares = ops.softmax(ops.cast(scores, "float32"))
    shares = drop(ops.cast(shares, values.dtype))
    attended = ops.transpose(ops.matmul(shares, values), (0, 2, 1, 3))
    attended = ops.reshape(attended, (-1, x.shape[-1]))
    return _dense(attended, output_kernel, output_bias)


def _normalize(x, gamma, beta, epsilon, *, training):
    """Layer normalisation of `(num_rows, dim)`, in float32 inside.

    The difference from the mean is used twice: `ops.layer_normalization`
    computes a third more, gradient included.
    """
    if not training and _ONLY_HERE.get() and _has_onednn_norm():
        return _normalize_by_onednn(x, gamma, beta, epsilon)
    dtype = x.dtype
    x, gamma, beta = (ops.cast(each, "float32") for each in (x, gamma, beta))
    x = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
    return ops.cast(x * ops.rsqrt(variance + epsilon) * gamma + beta, dtype)


@contextlib.contextmanager
def only_for_this_process():
    """Inference traced inside may use operations that not every machine has.

    Graphs that are saved must not be traced here.
    """
    token = _ONLY_HERE.set(True)
    try:
        yield
    finally:
        _ONLY_HERE.reset(token)


def _has_onednn_norm():
    """Whether a graph is traced by a TensorFlow for CPUs that has oneDNN."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    return (
        not tf.executing_eagerly()
        and not tf.config.list_physical_devices("GPU")
        and op_def_registry.get(_ONEDNN_NORM) is not None
    )


def _normalize_by_onednn(x, gamma, beta, epsilon):
    """The whole norm in one operation.

    TensorFlow itself puts it where a graph holds the form of Keras 2, rows as
    channels of FusedBatchNormV3. That form must not be used for it: where it
    is not replaced (without Grappler, or a number of rows that is known), its
    oneDNN kernel keeps the sizes of a call in the operation (TensorFlow 2.20),
    so that two calls at once write into each other's memory.
    """
    from tensorflow.python.framework import op_def_library

    return op_def_library.apply_op(
        _ONEDNN_NORM,
        x=x,
        scale=gamma,
        offset=beta,
        epsilon=epsilon,
        name="layer_norm",
    )


def _dense(x, kernel, bias):
    """A product and a bias; of an einsum's weights, too."""
    output = ops.matmul(x, ops.reshape(kernel, (x.shape[-1], -1)))
    return ops.add(output, ops.reshape(bias, (-1,)))


class _Dropout:
    """A layer of dropout with a seed that is drawn once, however often called.

    On TensorFlow with 8 random bits a number: Keras draws 32 of them there,
    and makes a float of them. The rate is rounded to a multiple of 2^-8; what
    is kept is divided by the share that this keeps.
    """

    def __init__(self, layer):
        self._rate = layer.rate
        self._seed = layer.seed_generator.next()

    def __call__(self, x):
        if keras.backend.backend() != "tensorflow":
            return keras.random.dropout(x, self._rate, seed=_Drawn(self._seed))
        import tensorflow as tf

        size = tf.size(x)
        bits = tf.random.stateless_uniform(
            [(size + 7) // 8],
            seed=self._seed,
            minval=None,
            maxval=None,
            dtype=tf.uint64,
        )
        bits = tf.reshape(tf.bitcast(bits, tf.uint8), [-1])[:size]
        dropped = round(self._rate * 2**8)
        is_kept = tf.reshape(bits, tf.shape(x)) >= dropped
        return x * (tf.cast(is_kept, x.dtype) / (1.0 - dropped / 2**8))


class _Drawn(keras.random.SeedGenerator):
    """A seed in the form that Keras takes."""

    def __init__(self, seed):
        self._drawn = seed

    def next(self, ordered=True):
        return self._drawn
