"""Named tensors, and models filled from them by a mapping table."""

import dataclasses
from collections.abc import Callable

import numpy as np

from realm_tf.errors import InputError

# The dense layer above [CLS]; a BERT that came without one keeps a random one.
POOLER = "pooled_dense"
# Of names in a message.
_MOST_LISTED = 5


@dataclasses.dataclass(frozen=True)
class Stored:
    """A tensor in a file, read when rows are taken from it.

    Args:
        shape: tuple of int.
        read: function of a slice of rows, or of `()` for a scalar.
    """

    shape: tuple[int, ...]
    read: Callable

    def __getitem__(self, rows):
        return self.read(rows)


@dataclasses.dataclass(frozen=True)
class Tensors:
    """Named tensors of one source, each read when it is asked for.

    Args:
        arrays: dict of name to array of numpy, in memory or mapped, or
            `Stored`.
        source: str. Where they come from, for messages.
        files: tuple of str. The files that hold them. Defaults to none.
    """

    arrays: dict
    source: str
    files: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """Names of all tensors."""
        return list(self.arrays)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor.

        Raises:
            InputError: if there is no such tensor.
        """
        if name not in self.arrays:
            raise InputError(f"{self.source} lacks the tensor {name}.")
        return tuple(self.arrays[name].shape)

    def read(
        self, name: str, start: int = 0, limit: int | None = None
    ) -> np.ndarray:
        """A tensor, or the rows `start` to `limit` of it.

        Args:
            name: str.
            start: int. First row. Defaults to `0`.
            limit: int. The row after the last. Defaults to `None`: all.

        Returns:
            numpy array; float16 and bfloat16 become float32.

        Raises:
            InputError: if there is no such tensor.
        """
        rows = slice(start, limit) if self.shape(name) else ()
        value = self.arrays[name][rows]
        is_half = value.dtype.name in ("float16", "bfloat16")
        return value.astype("float32") if is_half else value

    def renamed(self, names: dict[str, str]) -> "Tensors":
        """Some of the tensors, under other names.

        Args:
            names: dict. New name to the name here.
        """
        return dataclasses.replace(
            self, arrays={new: self.arrays[old] for new, old in names.items()}
        )


def assign(model, mapping: dict, tensors: Tensors):
    """Fills every variable of a model from the tensors that a mapping names.

    A `POOLER` that the mapping does not name stays as it is.

    Names and shapes are checked before anything is read or changed; then one
    tensor after the other is in memory.

    Args:
        model: `keras.Model`. Its variables are named by their paths; states
            of random generators are left alone.
        mapping: dict of tensor name to `(variable path, whether the tensor,
            a matrix, is transposed)`. Attention heads, which Keras keeps as a
            dimension of their own, may be so in the tensor or be joined.
        tensors: `Tensors`.

    Raises:
        InputError: if a tensor is missing, of another shape, not of
            floating-point numbers, or contains a NaN or infinity.
    """
    source = tensors.source
    missing = set(mapping).difference(tensors.names())
    if missing:
        raise InputError(
            f"{source} lacks tensors of the model: {listed(missing)}."
        )
    variables = variables_by_path(model)
    unfilled = set(variables) - {path for path, _ in mapping.values()}
    unfilled = {path for path in unfilled if path.split("/")[0] != POOLER}
    if unfilled:
        raise AssertionError(f"mapping leaves {sorted(unfilled)} unfilled")
    for name, (path, transposed) in mapping.items():
        shape = tensors.shape(name)
        expected = _flat_shape(variables[path])
        if transposed:
            expected = expected[::-1]
        elif shape == tuple(variables[path].shape):
            continue
        if shape != expected:
            raise InputError(
                f"{source}: {name} has the shape {shape}, expected {expected}."
            )
    for name, (path, transposed) in mapping.items():
        value = tensors.read(name)
        if value.dtype.kind != "f" or not np.isfinite(value).all():
            raise InputError(
                f"{source}: {name} of type {value.dtype} holds NaN, infinity "
                "or what is no floating-point number. Take a checkpoint from "
                "before its training diverged."
            )
        value = value.T if transposed else value
        variables[path].assign(value.reshape(variables[path].shape))


def variables_by_path(model) -> dict:
    """A model's variables by their paths, less states of random generators."""
    return {
        v.path: v for v in model.variables if "seed_generator" not in v.path
    }


def copy_weights(source, target):
    """Gives each variable of a model the value of another's of that path."""
    values = variables_by_path(source)
    for path, variable in variables_by_path(target).items():
        variable.assign(values[path])


def have_equal_weights(model, other) -> bool:
    """Whether two models of the same class have the same values."""
    return model is other or all(
        np.array_equal(a, b)
        for a, b in zip(model.get_weights(), other.get_weights(), strict=True)
    )


def extract(model, mapping: dict) -> dict:
    """The inverse of `assign`: the values of a model's variables.

    Args:
        model: `keras.Model`.
        mapping: dict. As `assign`'s.

    Returns:
        dict of tensor name to numpy array.
    """
    variables = variables_by_path(model)
    tensors = {}
    for name, (path, transposed) in mapping.items():
        value = np.asarray(variables[path])
        value = value.reshape(_flat_shape(variables[path]))
        tensors[name] = value.T if transposed else value
    return tensors


def _flat_shape(variable):
    """A variable's shape, with attention heads joined."""
    shape = tuple(variable.shape)
    if variable.path.endswith("attention_output/kernel"):
        return (shape[0] * shape[1], shape[2])
    if variable.path.endswith(("query/kernel", "key/kernel", "value/kernel")):
        return (shape[0], shape[1] * shape[2])
    if variable.path.endswith(("query/bias", "key/bias", "value/bias")):
        return (shape[0] * shape[1],)
    return shape


def listed(names) -> str:
    """Some names for a message, the first few of them and how many more."""
    first, rest = sorted(names)[:_MOST_LISTED], len(names) - _MOST_LISTED
    return ", ".join(first) + (f" and {rest} more" if rest > 0 else "")
