"""Named tensors, and models filled from them by a mapping table.

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
class Tensors:
    """Named tensors of one source, each read when it is asked for.

    Args:
        arrays: dict of name to array: of numpy, in memory or mapped, or
            anything else with a `shape` that slices of rows are taken from.
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


def expand(
    layers: dict,
    num_layers: int,
    *,
    endings: dict[str, str],
    transform: str = "as",
    kernel: str | None = None,
) -> dict:
    """The mapping of a table of layers.

    Args:
        layers: dict. Path of our layer to the source's name of it. In both,
            `{i}` is the number of a Transformer layer.
        num_layers: int. Transformer layers.
        endings: dict. What the source appends for our layers' `embeddings`,
            `kernel`, `bias`, `gamma` and `beta`.
        transform: str. See `assign`. Defaults to `"as"`.
        kernel: str. That of kernels. Defaults to `transform`.

    Returns:
        dict of tensor name to `(variable path, transform)`, for `assign`.
    """
    mapping = {}
    for ours, theirs in layers.items():
        if ours.endswith("_embedding"):
            variables = ("embeddings",)
        else:
            is_norm = ours.endswith("_norm")
            variables = ("gamma", "beta") if is_norm else ("kernel", "bias")
        for i in range(num_layers if "{i}" in ours else 1):
            for variable in variables:
                mapping[theirs.replace("{i}", str(i)) + endings[variable]] = (
                    f"{ours}/{variable}".replace("{i}", str(i)),
                    kernel if kernel and variable == "kernel" else transform,
                )
    return mapping


def below(ours: str, theirs: str, layers: dict) -> dict:
    """Part of a table for `expand`: layers by their names in two scopes."""
    return {f"{ours}{k}": f"{theirs}{v}" for k, v in layers.items()}


def assign(
    model,
    mapping: dict,
    tensors: Tensors,
    *,
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
        tensors: `Tensors`.
        what: str. What the model is, for messages.
        ignored: dict of tensor name to the reason why nothing takes it.
            Defaults to `None`: every tensor must be taken.

    Returns:
        dict of name to reason: those of `ignored` that the source has.

    Raises:
        InputError: if a tensor is missing, unknown, of another shape, not of
            floating-point numbers, or holds a NaN or infinity.
    """
    ignored, source = ignored or {}, tensors.source
    names = set(tensors.names())
    unread = names - set(mapping)
    _check_names(mapping, names, unread - set(ignored), source, what)
    variables = variables_by_path(model)
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


def variables_by_path(model) -> dict:
    """A model's variables by their paths, less states of random generators."""
    return {
        v.path: v for v in model.variables if "seed_generator" not in v.path
    }


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
    if value.dtype.kind != "f":
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
