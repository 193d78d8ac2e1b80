"""What every model over a `BertEncoder` has: its inputs and its config."""

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


class EncoderModel(keras.Model):
    """A functional model whose first argument is a `BertEncoder`.

    Attributes:
        encoder: `BertEncoder`.
        config_names: tuple of str. The other arguments, each an attribute.
    """

    config_names = ()

    def get_config(self):
        return {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            **{name: getattr(self, name) for name in self.config_names},
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        encoder = keras.saving.deserialize_keras_object(config.pop("encoder"))
        return cls(encoder, **config)
