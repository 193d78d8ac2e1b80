"""The reader that comes with this package, for models that begin with MiniLM.

MiniLM's own weights find blocks; how to read an answer off a block it has to
learn, from thousands of questions and for four hours. What was learned is beside
this file, all but the embedding tables, which stayed those of MiniLM: weights of
8 bits, with a scale for each output of a layer. docs/measurements/answers.md,
"Stages of reading", has the commands and what it is worth.

    write(model_directory.load(MODEL).model.reader, FILE)

writes the file again, from a model that was trained so.
"""

import pathlib

import numpy as np

from realm_tf.configs.finetune import MAX_JOINT_LENGTH

FILE = pathlib.Path(__file__).with_name("trained_reader.npz")
NOTE = (
    "Its reader learned from 26,000 cloze questions of passages of Wikipedia, "
    "1,355 of rows of its tables, and 22,360 training questions of SQuAD 1.1 (CC "
    "BY-SA 4.0), Natural Questions (CC BY-SA 3.0), WebQuestions (CC BY 4.0) and "
    "CuratedTREC; and from a reader that had learned from the same, and from "
    "more clozes, of names that a tagger of WikiGold (CC BY 4.0) found; last, from "
    "7,831 questions about documents of 178 invented organisations."
)
_LARGEST = 127
# No column is so small that it would have no scale.
_LEAST = 1e-12


def assign(reader) -> None:
    """Gives a reader the weights of the file, and what it reads.

    Args:
        reader: `Reader` of MiniLM's size, with MiniLM's embedding tables.
    """
    with np.load(FILE) as file:
        arrays = dict(file)
    for name, variable in _variables(reader).items():
        value = arrays[name].astype("float32")
        if f"{name}:scale" in arrays:
            value *= arrays[f"{name}:scale"]
        variable.assign(value.reshape(variable.shape))
    reader.reads_titles = True
    reader.max_joint_length = MAX_JOINT_LENGTH


def write(reader, path) -> None:
    """Writes the file for `assign`.

    Args:
        reader: `Reader`.
        path: str or path. An .npz file.
    """
    hidden_dim = reader.encoder.hidden_dim
    arrays = {}
    for name, variable in _variables(reader).items():
        value = np.asarray(variable)
        if value.ndim == 1:
            arrays[name] = value
            continue
        # Kernels of attention have the heads as a dimension.
        is_from_hidden = value.shape[0] == hidden_dim
        value = value.reshape(
            (hidden_dim, -1) if is_from_hidden else (-1, value.shape[-1])
        )
        scale = np.maximum(np.abs(value).max(axis=0), _LEAST) / _LARGEST
        arrays[name] = np.round(value / scale).astype("int8")
        arrays[f"{name}:scale"] = scale
    np.savez_compressed(path, **arrays)


def _variables(reader):
    """Name to variable of all that training moved."""
    encoder = reader.encoder
    layers = [
        encoder.get_layer(f"transformer_layer_{number}")
        for number in range(encoder.num_layers)
    ]
    layers.append(reader.get_layer("span_scorer"))
    return {
        f"{layer.name}/{number}": variable
        for layer in layers
        for number, variable in enumerate(layer.weights)
    }
