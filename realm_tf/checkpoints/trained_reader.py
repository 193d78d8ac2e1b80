"""The reader that comes with this package, for models that begin with MiniLM.

MiniLM's own weights find blocks; how to read an answer off a block it has to
learn, from thousands of questions and for four hours. What was learned is beside
this file: weights of 8 bits, with a scale for each output of a layer and each row
of an embedding table; where there are no tables, they stayed those of MiniLM. With
the arguments of `Reader` and a calibration of its scores.
docs/measurements/answers.md, "Stages of reading", has the commands and what it is
worth.

    loaded = model_directory.load(MODEL)
    write(loaded.model.reader, loaded.calibration, FILE)

writes the file again, from a model that was trained so.
"""

import json
import pathlib

import numpy as np

from realm_tf.configs.finetune import MAX_JOINT_LENGTH
from realm_tf.models.reader import Reader

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
# Fewer numbers are left as they are.
_SMALL = 1 << 12
_OPTIONS = "options"


def make(encoder) -> Reader:
    """The reader of the file.

    Args:
        encoder: `BertEncoder` of MiniLM, whose weights become the reader's.
    """
    arrays, options = _read()
    reader = Reader(
        encoder,
        **{
            "reads_titles": True,
            "max_joint_length": MAX_JOINT_LENGTH,
            **options.get("reader", {}),
        },
    )
    has_tables = "token_embedding/0" in arrays
    for name, variable in _variables(reader, with_tables=has_tables).items():
        value = arrays[name].astype("float32")
        if f"{name}:scale" in arrays:
            value *= arrays[f"{name}:scale"]
        variable.assign(value.reshape(variable.shape))
    return reader


def calibration() -> dict | None:
    """That of the file, as `LoadedModel` has it."""
    return _read()[1].get("calibration")


def _read():
    """The arrays of the file, and its options."""
    with np.load(FILE) as file:
        arrays = dict(file)
    return arrays, json.loads(str(arrays.pop(_OPTIONS, "{}")))


def write(reader, calibration, path, *, with_tables=True) -> None:
    """Writes the file for `make`.

    Args:
        reader: `Reader`.
        calibration: dict. Of a `Calibration` of its scores; `None` for none.
        path: str or path. An .npz file.
        with_tables: bool. Whether its embedding tables are not those of MiniLM.
            Defaults to `True`.
    """
    hidden_dim = reader.encoder.hidden_dim
    arrays = {}
    variables = _variables(reader, with_tables=with_tables)
    for name, variable in variables.items():
        value = np.asarray(variable)
        if value.size < _SMALL:
            arrays[name] = value
            continue
        # Kernels of attention have the heads as a dimension.
        is_from_hidden = value.shape[0] == hidden_dim
        value = value.reshape(
            (hidden_dim, -1) if is_from_hidden else (-1, value.shape[-1])
        )
        rows_or_columns = 1 if "_embedding/" in name else 0
        largest = np.abs(value).max(axis=rows_or_columns, keepdims=True)
        scale = np.maximum(largest, _LEAST) / _LARGEST
        arrays[name] = np.round(value / scale).astype("int8")
        arrays[f"{name}:scale"] = scale
    config = reader.get_config()
    options = {
        "reader": {
            key: value
            for key, value in config.items()
            if key not in ("encoder", "name")
        },
        "calibration": calibration,
    }
    np.savez_compressed(path, **arrays, **{_OPTIONS: json.dumps(options)})


def _variables(reader, *, with_tables):
    """Name to variable of all that training moved."""
    layers = [
        layer
        for layer in reader.encoder.layers
        # Nothing reads the pooled [CLS].
        if layer.name != "pooled_dense"
        and (with_tables or "embedding" not in layer.name)
    ]
    layers += [
        layer
        for layer in reader.layers
        if layer.name in ("span_scorer", "none")
    ]
    return {
        f"{layer.name}/{number}": variable
        for layer in layers
        for number, variable in enumerate(layer.weights)
    }
