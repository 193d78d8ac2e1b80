"""BERT's optimizer: AdamW with linear warm-up and decay."""

import keras


def warmup_steps(num_steps: int) -> int:
    """Steps of linear warm-up: min(10000, max(100, steps / 10)).

    Never more than half of a short run.

    References:
        Original code: google-research/language, language/realm.
    """
    return min(10_000, max(100, num_steps // 10), num_steps // 2)


class LinearWarmupAndDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from 0, then falls linearly to 0.

    In google-research/bert, optimization.py, the fall is counted from step 0,
    so that the rate drops by num_warmup_steps / num_steps of its height where
    the rise ends, and the first step's rate is 0. Here the lines meet, and
    every step learns.

    Args:
        learning_rate: float. The highest.
        num_steps: int. Steps until it is 0 again; `warmup_steps` of them
            rise.
    """

    def __init__(self, learning_rate: float, num_steps: int):
        self.learning_rate = learning_rate
        self.num_steps = num_steps
        self.num_warmup_steps = warmup_steps(num_steps)

    def __call__(self, step):
        step = keras.ops.cast(step, "float32")
        rise = (step + 1.0) / max(1, self.num_warmup_steps)
        fall = (self.num_steps - step) / max(
            1, self.num_steps - self.num_warmup_steps
        )
        return self.learning_rate * keras.ops.maximum(
            0.0, keras.ops.minimum(rise, fall)
        )


class BertAdamW(keras.optimizers.AdamW):
    """AdamW as BERT is trained with it.

        m = beta_1 m + (1 - beta_1) g        v = beta_2 v + (1 - beta_2) g^2
        w = w - learning_rate (m / (sqrt(v) + epsilon) + weight_decay w)

    g is the gradient after all gradients together were clipped to a norm of
    1. Biases and LayerNorm's gains do not decay. The moments start at 0 and
    are not corrected for it, so that the first steps are larger than Adam's:
    the first by (1 - beta_1) / sqrt(1 - beta_2), a factor of 3.2. beta_1 is
    0.9, beta_2 0.999, the weight decay 0.01; epsilon, 1e-6, is added to the
    root, not under it.

    Args:
        learning_rate: float or `LearningRateSchedule`.
        bias_correction: bool. Divide the moments by 1 - beta^step, as Adam
            does; then this is `keras.optimizers.AdamW`, but for embedding
            tables on TensorFlow, whose part of the norm Keras takes before
            it adds the gradients of a row up. Defaults to `False`.
        **kwargs: more of `keras.optimizers.AdamW`.

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), appendix A.2;
        google-research/bert, optimization.py.
    """

    def __init__(self, learning_rate, *, bias_correction=False, **kwargs):
        super().__init__(
            learning_rate,
            weight_decay=0.01,
            epsilon=1e-6,
            global_clipnorm=1.0,
            **kwargs,
        )
        self.bias_correction = bias_correction
        # A pattern for the end of the name: TensorFlow's variables are named
        # with their layers and ":0".
        self.exclude_from_weight_decay(var_names=[r"(bias|beta|gamma)(:\d+)?$"])

    def apply(self, grads, trainable_variables=None):
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            # The gradient of an embedding table holds a row for each lookup.
            # Keras takes the norm of these rows, not of their sum.
            grads = [g if g is None else tf.convert_to_tensor(g) for g in grads]
        super().apply(grads, trainable_variables)

    def update_step(self, gradient, variable, learning_rate):
        step = keras.ops.cast(self.iterations + 1, "float32")
        correction = keras.ops.sqrt(1 - self.beta_2**step) / (
            1 - self.beta_1**step
        )
        if keras.backend.backend() != "tensorflow":
            if not self.bias_correction:
                # Keras multiplies by it.
                learning_rate = learning_rate / correction
            super().update_step(gradient, variable, learning_rate)
            return
        import tensorflow as tf

        # One operation for the formula.
        index = self._get_variable_index(variable)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=0.0,
            beta2_power=0.0,
            lr=learning_rate * (correction if self.bias_correction else 1.0),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )
