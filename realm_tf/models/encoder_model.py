"""What `BertEncoder` and the models over it have: inputs and a config."""

import keras


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
        outputs: what is computed of them.
        config: dict. The arguments of the subclass, which become attributes;
            one that is a model is kept with its own config.
    """

    def __init__(self, inputs, outputs, config, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self._config_names = tuple(config)
        for name, value in config.items():
            setattr(self, name, value)

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
