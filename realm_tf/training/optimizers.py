"""BERT's optimizer: AdamW with linear warm-up and decay."""

import keras


def warmup_steps(num_steps: int) -> int:
    """Steps of linear warm-up: min(10000, max(100, steps / 10)).

    Never more than half of a short run.

    References:
        Original code: google-research/language, language/realm.
    """
    return min(10_000, max(100, num_steps // 10), num_steps // 2)


@keras.saving.register_keras_serializable(package="realm_tf")
class LinearWarmupAndDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from 0, then falls linearly to 0.

    Args:
        learning_rate: float. The highest.
        num_steps: int. Steps until it is 0 again.
        num_warmup_steps: int. Steps of the rise.
    """

    def __init__(self, learning_rate, num_steps, num_warmup_steps):
        self.learning_rate = learning_rate
        self.num_steps = num_steps
        self.num_warmup_steps = num_warmup_steps

    def __call__(self, step):
        step = keras.ops.cast(step, "float32")
        rise = (step + 1.0) / max(1, self.num_warmup_steps)
        fall = (self.num_steps - step) / max(
            1, self.num_steps - self.num_warmup_steps
        )
        return self.learning_rate * keras.ops.maximum(
            0.0, keras.ops.minimum(rise, fall)
        )

    def get_config(self):
        return {
            "learning_rate": self.learning_rate,
            "num_steps": self.num_steps,
            "num_warmup_steps": self.num_warmup_steps,
        }


def bert_adamw(learning_rate: float, num_steps: int):
    """AdamW as BERT is trained with it.

    beta 0.9 and 0.999, epsilon 1e-6, weight decay 0.01 except on LayerNorm
    and biases, gradients clipped to a global norm of 1.

    Args:
        learning_rate: float. The highest.
        num_steps: int. Steps of the whole run.

    Returns:
        `keras.optimizers.AdamW`. It corrects the moments' bias, which BERT's
        does not: early steps are smaller here.

    References:
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), appendix A.2;
        google-research/bert, optimization.py.
    """
    optimizer = keras.optimizers.AdamW(
        LinearWarmupAndDecay(learning_rate, num_steps, warmup_steps(num_steps)),
        weight_decay=0.01,
        epsilon=1e-6,
        global_clipnorm=1.0,
    )
    optimizer.exclude_from_weight_decay(var_names=["bias", "beta", "gamma"])
    return optimizer
