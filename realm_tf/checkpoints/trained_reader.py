"""The reader that comes with this package, for models that begin with MiniLM.

MiniLM's own weights find blocks; how to read an answer off a block it has to
learn. What was learned is beside this file: weights of 8 bits, with a scale for
each 32 of them that make an output or an embedding; where there are no tables, they
stayed those of MiniLM. With the arguments of `Reader` and a calibration of its
scores. docs/measurements/answers.md, "The packaged reader", has
the commands and what it is worth.

    loaded = model_directory.load(MODEL)
    write(loaded.model.reader, loaded.calibration, FILE)

writes the file again, from a model that was trained so.
"""

import json
import pathlib

import numpy as np

from realm_tf.models.reader import Reader

FILE = pathlib.Path(__file__).with_name("trained_reader.npz")
NOTE = (
    "Its reader learned from 35,704 training questions of SQuAD 1.1 (CC BY-SA 4.0), "
    "Natural Questions (CC BY-SA 3.0), WebQuestions (CC BY 4.0) and CuratedTREC, "
    "over passages of Wikipedia (CC BY-SA), and of documents of 178 invented "
    "organisations; from a larger reader that had learned from the same, and began "
    "with all-mpnet-base-v2 (Apache-2.0); last, from near misses, and from "
    "documentation of 97 invented products."
)
_LARGEST = 127
# Weights with one scale (our choice). Scales are of float16, and none is 0 there.
_GROUP = 32
_LEAST = 1e-7
# Fewer numbers are left as they are.
_SMALL = 1 << 12
_OPTIONS = "options"


def make(encoder) -> Reader:
    """The reader of the file.

    Args:
        encoder: `BertEncoder` of MiniLM, whose weights become the reader's.
    """
    arrays, options = _read()
    reader = Reader(encoder, **options["reader"])
    has_tables = "token_embedding/0" in arrays
    for name, variable in _variables(reader, with_tables=has_tables).items():
        value = arrays[name].astype("float32")
        if f"{name}:scale" in arrays:
            scale = arrays[f"{name}:scale"].astype("float32")
            groups = value.reshape(-1, _GROUP) * scale[:, None]
            value = _as_rows(groups.reshape(value.shape), name)
        variable.assign(value.reshape(variable.shape))
    return reader


def calibration() -> dict | None:
    """That of the file, as `LoadedModel` has it."""
    return _read()[1]["calibration"]


def _read():
    """The arrays of the file, and its options."""
    with np.load(FILE) as file:
        arrays = dict(file)
    return arrays, json.loads(str(arrays.pop(_OPTIONS)))


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
        value = _as_rows(value, name)
        groups = value.reshape(-1, _GROUP)
        scale = np.maximum(np.abs(groups).max(axis=1) / _LARGEST, _LEAST)
        # Rounded up: no weight is beyond the largest number.
        scale = np.nextafter(scale.astype("float16"), np.float16(np.inf))
        whole = np.round(groups / scale[:, None].astype("float32"))
        arrays[name] = whole.astype("int8").reshape(value.shape)
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


def _as_rows(value, name):
    """What makes an output or an embedding as a row, or such rows as they were."""
    return value if "_embedding/" in name else value.T


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
