"""Whether a request fits a signature."""

from collections.abc import Iterable
from collections.abc import Mapping

import tensorflow as tf

from realm_tf.serving.request_error import invalid


def list_names(names: Iterable[str]) -> str:
    """Names, sorted, for an error."""
    return "{" + ", ".join(sorted(names)) + "}"


def check_inputs(definition, inputs: Mapping) -> None:
    """Refuses inputs that a signature does not take.

    Args:
        definition: `SignatureDef`.
        inputs: mapping of name to numpy array.

    Raises:
        RequestError: if a name, a dtype or a shape does not fit.
    """
    expected = definition.inputs
    extra = set(inputs) - set(expected)
    missing = set(expected) - set(inputs)
    if extra or missing:
        raise invalid(
            f"input size does not match signature: expected the inputs "
            f"{list_names(expected)}, received {list_names(inputs)}. Sent "
            f"extra: {list_names(extra)}. Missing but required: "
            f"{list_names(missing)}."
        )
    for name, value in inputs.items():
        dtype = tf.as_dtype(expected[name].dtype)
        if tf.as_dtype(value.dtype) != dtype:
            raise invalid(
                f"input {name} must be of dtype {dtype.name}, received "
                f"{tf.as_dtype(value.dtype).name}."
            )
        shape = tf.TensorShape(expected[name].tensor_shape)
        if not shape.is_compatible_with(value.shape):
            raise invalid(
                f"input {name} must be of shape {shape} (None is any "
                f"size), received {value.shape}."
            )


def check_outputs(definition, wanted: list[str]) -> None:
    """Refuses outputs that a signature does not give.

    Args:
        definition: `SignatureDef`.
        wanted: list of str. Names of outputs.

    Raises:
        RequestError: if a name is unknown or comes twice.
    """
    for position, name in enumerate(wanted):
        if name not in definition.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {name}. "
                "Outputs expected to be in the set "
                f"{list_names(definition.outputs)}."
            )
        if name in wanted[:position]:
            raise invalid(f"duplicate output tensor alias: {name}.")
