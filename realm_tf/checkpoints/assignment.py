"""Filling a model from named tensors, by a mapping table.

A table gives each tensor of a source its variable. Nothing is guessed: what
the source has and the table lacks, or the other way round, is an error that
names it.
"""

import dataclasses

import numpy as np

from realm_tf.errors import InputError

# Of names in a message.
_MOST_LISTED = 5


@dataclasses.dataclass(frozen=True)
class ArrayTensors:
    """Tensors in memory, to be assigned like those of a checkpoint.

    Args:
        arrays: dict of name to numpy array.
    """

    arrays: dict

    def names(self) -> list[str]:
        """Names of all tensors."""
        return list(self.arrays)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(np.shape(self.arrays[name]))

    def read(
        self, name: str, start: int = 0, limit: int | None = None
    ) -> np.ndarray:
        """A tensor, or some of its rows."""
        value = np.asarray(self.arrays[name])
        return value[start:limit] if value.ndim else value


def assign(
    model,
    mapping: dict,
    tensors,
    *,
    source: str,
    what: str,
    ignored: dict | None = None,
) -> dict:
    """Fills every variable of a model, from every tensor of a source.

    Names and shapes are checked before anything is read or changed; then one
    tensor after the other is in memory.

    Args:
        model: `keras.Model`. Its variables are named by their paths; states
            of random generators are left alone.
        mapping: dict of tensor name to `(variable path, transform)`. The
            transform is `"as"` (reshape only: Keras keeps attention heads as
            a dimension of their own), `"same"` (the source keeps them so,
            too) or `"transpose"` (of a matrix).
        tensors: object with `names()`, `shape(name)` and `read(name)`:
            `TensorBundle` or `ArrayTensors`.
        source: str. Where the tensors come from, for messages.
        what: str. What the model is, for messages.
        ignored: dict of tensor name to the reason why nothing takes it.
            Defaults to `None`: every tensor must be taken.

    Returns:
        dict of name to reason: those of `ignored` that the source has.

    Raises:
        InputError: if a tensor is missing, unknown, of another shape, not of
            floating-point numbers, or holds a NaN or infinity.
    """
    ignored = ignored or {}
    names = set(tensors.names())
    unread = names - set(mapping)
    _check_names(mapping, names, unread - set(ignored), source, what)
    variables = {
        v.path: v for v in model.variables if "seed_generator" not in v.path
    }
    unfilled = set(variables) - {path for path, _ in mapping.values()}
    if unfilled:
        raise AssertionError(f"mapping leaves {sorted(unfilled)} unfilled")
    for name, (path, transform) in mapping.items():
        _check_shape(
            name, tensors.shape(name), variables[path], transform, source
        )
    for name, (path, transform) in mapping.items():
        value = tensors.read(name)
        _check_numbers(name, value, source)
        value = value.T if transform == "transpose" else value
        variables[path].assign(value.reshape(variables[path].shape))
    return {name: ignored[name] for name in sorted(unread)}


def extract(model, mapping: dict) -> dict:
    """The inverse of `assign`: the values of a model's variables.

    Args:
        model: `keras.Model`.
        mapping: dict. As `assign`'s.

    Returns:
        dict of tensor name to numpy array.
    """
    variables = {v.path: v for v in model.variables}
    tensors = {}
    for name, (path, transform) in mapping.items():
        shape = _flat_shape(path, variables[path].shape)
        value = np.asarray(variables[path]).reshape(shape)
        tensors[name] = value.T if transform == "transpose" else value
    return tensors


def _check_names(mapping, names, unknown, source, what):
    if unknown:
        raise InputError(
            f"{source} has tensors that no part of {what} takes: "
            f"{_listed(unknown)}."
        )
    missing = set(mapping) - names
    if missing:
        raise InputError(
            f"{source} lacks the tensor{'s' * (len(missing) > 1)} "
            f"{_listed(missing)} of {what}."
        )


def _check_shape(name, shape, variable, transform, source):
    expected = tuple(variable.shape)
    if transform != "same":
        expected = _flat_shape(variable.path, variable.shape)
    if transform == "transpose":
        expected = expected[::-1]
    if tuple(shape) != expected:
        raise InputError(
            f"{source}: {name} has the shape {tuple(shape)}, expected "
            f"{expected}."
        )


def _check_numbers(name, value, source):
    # bfloat16 is not of numpy's own types.
    if value.dtype.kind != "f" and value.dtype.name != "bfloat16":
        raise InputError(
            f"{source}: {name} is of type {value.dtype}, expected "
            "floating-point numbers."
        )
    if not np.isfinite(value).all():
        raise InputError(
            f"{source}: {name} holds NaN or infinity. Take a checkpoint from "
            "before its training diverged."
        )


def _flat_shape(path, shape):
    """A variable's shape without heads, which Keras keeps as a dimension."""
    if path.endswith("attention_output/kernel"):
        return (shape[0] * shape[1], shape[2])
    if path.endswith(("query/kernel", "key/kernel", "value/kernel")):
        return (shape[0], shape[1] * shape[2])
    if path.endswith(("query/bias", "key/bias", "value/bias")):
        return (shape[0] * shape[1],)
    return tuple(shape)


def _listed(names):
    first, rest = sorted(names)[:_MOST_LISTED], len(names) - _MOST_LISTED
    return ", ".join(first) + (f" and {rest} more" if rest > 0 else "")
