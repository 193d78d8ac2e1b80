"""BERTs of Keras Hub: presets by name, or directories."""

import inspect

from realm_tf.checkpoints.assignment import copy_weights
from realm_tf.checkpoints.source import BERT
from realm_tf.checkpoints.source import Embedding
from realm_tf.checkpoints.source import Source
from realm_tf.errors import InputError
from realm_tf.models.bert_encoder import BertEncoder
from realm_tf.text.tokenizer import Tokenizer

# Names of poolings that it has and that are ours.
POOLINGS = {"mean": "mean", "cls": "first"}


def open_source(preset: str) -> Source:
    """The BERT of a preset with its tokenizer.

    Args:
        preset: str. Name or directory. Its backbone has the tanh GELU and a
            LayerNorm epsilon of 1e-12, whatever it was converted from. A
            `BertTextEmbedder` says how it embeds.

    Returns:
        `Source`.

    Raises:
        InputError: if Keras Hub cannot load it.
    """
    import keras_hub

    # There is no public way to ask.
    from keras_hub.src.utils import preset_utils

    embedding = None
    try:
        if preset_utils.check_file_exists(preset, "task.json"):
            task = preset_utils.load_json(preset, "task.json")
            if task["class_name"] == "BertTextEmbedder":
                pooling = POOLINGS[task["config"]["pooling_mode"]]
                normalize = task["config"]["normalize"]
                embedding = Embedding(pooling, None, normalize)
        backbone = keras_hub.models.BertBackbone.from_preset(preset)
        tokenizer = keras_hub.models.BertTokenizer.from_preset(preset)
    except Exception as error:  # Whatever loaders of many hosts raise.
        raise InputError(
            f"--source {preset}: Keras Hub could not load it as a BERT "
            f"({type(error).__name__}: {error})."
        ) from error

    # Those arguments that both have, of one name.
    ours = inspect.signature(BertEncoder).parameters
    config = backbone.get_config()
    sizes = {name: config[name] for name in ours if name in config}

    def make_encoder():
        encoder = BertEncoder(**sizes)
        copy_weights(backbone, encoder)
        return encoder

    return Source(
        preset,
        {BERT: make_encoder},
        embedding=embedding,
        tokenizer=Tokenizer(
            tokenizer.get_vocabulary(), lowercase=tokenizer.lowercase
        ),
    )
