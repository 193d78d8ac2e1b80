"""BERT's Transformer layer, with gradient checkpointing."""

import keras
import keras_hub


class TransformerEncoder(keras_hub.layers.TransformerEncoder):
    """`keras_hub.layers.TransformerEncoder` that can forget activations.

    The softmax of its attention is computed in float32 under any dtype policy.

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

    def build(self, inputs_shape):
        super().build(inputs_shape)
        # Without dropout Keras calls another softmax, which is in float32.
        self._self_attention_layer._softmax.dtype_policy = "float32"

    def call(self, inputs, padding_mask=None, training=None):
        if not (self.recompute and training) or self._is_inside:
            return super().call(
                inputs, padding_mask=padding_mask, training=training
            )
        return self._call_recomputed(inputs, padding_mask)

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


def _is_seed(variable):
    return "seed_generator_state" in variable.path
