"""BERT's Transformer layer, in few large products, with checkpointing."""

import keras
import keras_hub
from keras import ops

# Added to the scores of padding; the same as of keras.layers.Softmax.
_MASKED = -1e9


class TransformerEncoder(keras_hub.layers.TransformerEncoder):
    """`keras_hub.layers.TransformerEncoder`, faster and with less memory.

    It has the weights of keras_hub's and computes the same, with the norm
    after each residual, as BERT does. Products are of matrices, one row a
    wordpiece, to which TensorFlow joins the bias and, in inference, the
    activation; keras_hub's einsums and products of three dimensions are
    computed one after the other. The softmax of the attention is computed in
    float32 under any dtype policy.

    With `recompute`, training keeps only the layer's input and computes the
    rest again in the backward pass: about a third more time for memory that
    no longer grows with what is inside the layer (Chen et al., 2016). The
    weights and the result are the same, dropout included.

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
    _is_inside = False

    def call(self, inputs, padding_mask=None, training=None):
        if self.recompute and training and not self._is_inside:
            return self._call_recomputed(inputs, padding_mask)
        batch_size, length = ops.shape(inputs)[:2]
        hidden_dim = inputs.shape[-1]
        # (b * l, h)
        x = ops.reshape(inputs, (-1, hidden_dim))
        head_dim = hidden_dim // self.num_heads
        shape = (batch_size, length, self.num_heads, head_dim)
        attended = self._attend(x, shape, padding_mask, training)
        attended = ops.reshape(attended, (-1, hidden_dim))
        output = _dense(self._self_attention_layer._output_dense, attended)
        output = _drop(self._self_attention_dropout, output, training)
        x = self._self_attention_layer_norm(x + output)
        hidden = _dense(self._feedforward_intermediate_dense, x)
        output = _dense(self._feedforward_output_dense, hidden)
        output = _drop(self._feedforward_dropout, output, training)
        x = self._feedforward_layer_norm(x + output)
        return ops.reshape(x, (batch_size, length, hidden_dim))

    def _attend(self, x, shape, padding_mask, training):
        """What the heads find, `(batch_size, length, num_heads, head_dim)`."""
        attention = self._self_attention_layer

        def heads(dense):
            # (b, n, l, h)
            return ops.transpose(
                ops.reshape(_dense(dense, x), shape), (0, 2, 1, 3)
            )

        queries, keys, values = (
            heads(attention._query_dense),
            heads(attention._key_dense),
            heads(attention._value_dense),
        )
        scale = shape[-1] ** -0.5
        # (b, n, l, l)
        scores = ops.matmul(queries * scale, ops.transpose(keys, (0, 1, 3, 2)))
        scores = ops.cast(scores, "float32")
        if padding_mask is not None:
            bias = _MASKED * (1.0 - ops.cast(padding_mask, "float32"))
            scores = scores + bias[:, None, None]
        shares = ops.cast(ops.softmax(scores), values.dtype)
        shares = _drop(attention._dropout_layer, shares, training)
        return ops.transpose(ops.matmul(shares, values), (0, 2, 1, 3))

    def _call_recomputed(self, inputs, padding_mask):
        # Frozen weights and, as they are now, seeds: a variable would be read
        # again in the backward pass. No arguments: TensorFlow warns of
        # integers.
        state = [
            keras.ops.copy(v.value) if _is_seed(v) else v.value
            for v in self.non_trainable_variables
        ]

        @keras.remat
        def call(weights, inputs):
            self._is_inside = True
            try:
                return self.stateless_call(
                    weights,
                    state,
                    inputs,
                    padding_mask=padding_mask,
                    training=True,
                )
            finally:
                self._is_inside = False

        weights = [v.value for v in self.trainable_variables]
        outputs, state_after = call(weights, inputs)
        for variable, value in zip(
            self.non_trainable_variables, state_after, strict=True
        ):
            if _is_seed(variable):
                variable.assign(value)
        return outputs


def _dense(layer, x):
    """A layer of a product, a bias and an activation, of a matrix."""
    # Keras casts weights inside a layer's call, where the backward pass of
    # `recompute` is not.
    kernel, bias = (
        ops.cast(each, x.dtype) for each in (layer.kernel, layer.bias)
    )
    output = ops.matmul(x, ops.reshape(kernel, (x.shape[-1], -1)))
    return layer.activation(ops.add(output, ops.reshape(bias, (-1,))))


def _drop(layer, x, training):
    """A layer of dropout, on TensorFlow with 16 random bits a number.

    Keras draws 32 of them there, and makes a float of them: 22 ms instead of
    8.5 for 3840 x 1536 numbers in bfloat16 on two AMD EPYC cores. The rate is
    rounded to a multiple of 2^-16.
    """
    if not (training and layer.rate) or keras.backend.backend() != "tensorflow":
        return layer(x, training=training)
    import tensorflow as tf

    size = tf.size(x)
    bits = tf.random.stateless_uniform(
        [(size + 3) // 4],
        seed=layer.seed_generator.next(),
        minval=None,
        maxval=None,
        dtype=tf.uint64,
    )
    bits = tf.reshape(tf.bitcast(bits, tf.uint16), [-1])[:size]
    is_kept = tf.reshape(bits, tf.shape(x)) >= round(layer.rate * 2**16)
    return x * (tf.cast(is_kept, x.dtype) / (1.0 - layer.rate))


def _is_seed(variable):
    return "seed_generator_state" in variable.path
