"""Operations that TensorFlow on CPUs computes faster than the plain formulas.

Results and gradients are those of the formulas, in less time and memory. Only
graphs of this process may hold these operations: not every machine has them,
XLA has none of them, and shapes that depend on the padding need a backend that
allows them.
"""

import contextlib
import contextvars
import math

import keras

from realm_tf.models import precision

_ONLY_HERE = contextvars.ContextVar("only_for_this_process", default=False)
_ONEDNN_NORM = "_MklLayerNorm"


@contextlib.contextmanager
def only_for_this_process():
    """Graphs traced inside are neither saved nor compiled by XLA."""
    token = _ONLY_HERE.set(True)
    try:
        yield
    finally:
        _ONLY_HERE.reset(token)


def are_possible() -> bool:
    """Whether the graph that is being traced may hold these operations."""
    if not _ONLY_HERE.get() or keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    return (
        not tf.executing_eagerly()
        and not tf.config.list_physical_devices("GPU")
        and op_def_registry.get(_ONEDNN_NORM) is not None
    )


def normalize(x, gamma, beta, epsilon):
    """Layer normalisation of `(num_rows, dim)` in one operation, oneDNN's.

    oneDNN has no bfloat16 form of it on processors without AVX-512: there it
    computes in float32.

    TensorFlow itself puts it where a graph holds the form of Keras 2, rows as
    channels of FusedBatchNormV3. That form must not be used for it: where it
    is not replaced (without Grappler, or a number of rows that is known), its
    oneDNN kernel keeps the sizes of a call in the operation (TensorFlow 2.20),
    so that two calls at once write into each other's memory.

    With n = (x - mean) / deviation, which the backward pass computes again,
    the gradient of x is

        (gamma g - mean(gamma g) - n mean(gamma g n)) / deviation

    References:
        [Ba et al., 2016](https://arxiv.org/abs/1607.06450), whose norm this
        differentiates.
    """
    import tensorflow as tf
    from tensorflow.python.framework import op_def_library

    dtype = x.dtype if precision.onednn_has_avx512() else tf.float32

    def norm(x, gamma, beta):
        output = op_def_library.apply_op(
            _ONEDNN_NORM,
            x=tf.cast(x, dtype),
            scale=tf.cast(gamma, dtype),
            offset=tf.cast(beta, dtype),
            epsilon=epsilon,
            name="layer_norm",
        )
        return tf.cast(output, x.dtype), gradient

    def gradient(upstream):
        wide, above, gain = (
            tf.cast(each, "float32") for each in (x, upstream, gamma)
        )
        wide = wide - tf.reduce_mean(wide, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True)
        scale = tf.math.rsqrt(variance + epsilon)
        normalized = wide * scale
        product = above * normalized
        # Of a row, the mean of what gamma multiplies.
        to_mean = gain[:, None] / x.shape[-1]
        change = above * gain - tf.matmul(above, to_mean)
        change = change - normalized * tf.matmul(product, to_mean)
        return (
            tf.cast(change * scale, x.dtype),
            tf.cast(tf.reduce_sum(product, axis=0), gamma.dtype),
            tf.cast(tf.reduce_sum(above, axis=0), beta.dtype),
        )

    return _with_gradient(norm, x, gamma, beta)


def _with_gradient(function, *inputs):
    """`tf.custom_gradient(function)(*inputs)`, for a tape of the same graph.

    `tf.custom_gradient` keeps each gradient under a name for as long as the
    process lives, and with it the graph and the weights of the model: trainings
    that follow each other would need the memory of all.
    """
    from tensorflow.python.eager import record

    with record.stop_recording():
        output, gradient = function(*inputs)
    record.record_operation(function.__name__, [output], inputs, gradient)
    return output


def gelu(x):
    """x P(X <= x), computed in float32, for training.

    The backward pass is given x and P(X <= x), in the type of x.
    """
    import tensorflow as tf

    return _times_share(
        x,
        lambda wide: 0.5 + 0.5 * tf.math.erf(wide * math.sqrt(0.5)),
        lambda wide, _: tf.exp(-0.5 * tf.square(wide)) / math.sqrt(2 * math.pi),
    )


def gelu_approximate(x):
    """GELU by tanh, as `gelu`.

        x s(x), s(x) = (1 + tanh(a (x + b x^3))) / 2
        s'(x) = 2 s(x) (1 - s(x)) a (1 + 3 b x^2)

    References:
        [Hendrycks and Gimpel, 2016](https://arxiv.org/abs/1606.08415).
    """
    import tensorflow as tf

    a, b = math.sqrt(2 / math.pi), 0.044715

    def share(wide):
        return 0.5 + 0.5 * tf.tanh(wide * (a + a * b * tf.square(wide)))

    def slope(wide, share):
        inner = 2 * a + 6 * a * b * tf.square(wide)
        return share * (1 - share) * inner

    return _times_share(x, share, slope)


def _times_share(x, share_of, slope_of):
    """x s(x); the gradient is s(x) + x s'(x), s' given x and s(x)."""
    import tensorflow as tf

    def activate(x):
        share = tf.cast(share_of(tf.cast(x, "float32")), x.dtype)

        def gradient(upstream):
            wide, kept = tf.cast(x, "float32"), tf.cast(share, "float32")
            slope = kept + wide * slope_of(wide, kept)
            return (upstream * tf.cast(slope, x.dtype),)

        return x * share, gradient

    return _with_gradient(activate, x)


class WithoutPadding:
    """Rows of wordpieces alone, out of rows with padding between them.

    Args:
        padding_mask: int tensor `(batch_size, length)`.
    """

    def __init__(self, padding_mask):
        import tensorflow as tf

        is_wordpiece = tf.reshape(tf.cast(padding_mask, "bool"), [-1])
        self._rows = tf.where(is_wordpiece)[:, 0]
        # A row of zeros follows those of wordpieces.
        self._places = tf.where(
            is_wordpiece,
            tf.cumsum(tf.cast(is_wordpiece, "int64")) - 1,
            tf.size(self._rows, "int64"),
        )

    def drop(self, x):
        """`(batch_size * length, dim)` to `(num_wordpieces, dim)`."""
        # TensorFlow's own gradient of a lookup adds rows up.
        return _with_gradient(
            lambda x: (self._take(x), lambda g: (self._put(g),)), x
        )

    def restore(self, x):
        """The inverse of `drop`, with zeros for padding."""
        return _with_gradient(
            lambda x: (self._put(x), lambda g: (self._take(g),)), x
        )

    def _take(self, x):
        import tensorflow as tf

        return tf.gather(x, self._rows)

    def _put(self, x):
        import tensorflow as tf

        return tf.gather(tf.pad(x, [[0, 1], [0, 0]]), self._places)
