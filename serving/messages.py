"""The protocol messages that a client needs, without TensorFlow.

The modules of tensorflow-serving-api import TensorFlow. These messages have
the same fields under the same numbers, so the bytes on the wire are equal;
what a client of this project never sends or reads is left out. They live in
a descriptor pool and a package of their own, so that one process may import
both.

References:
    [tensor.proto](https://github.com/tensorflow/tensorflow/blob/v2.20.0/tensorflow/core/framework/tensor.proto),
    and predict.proto, model.proto, get_model_status.proto and status.proto
    of tensorflow/serving, tensorflow_serving/apis.
"""

import math
import types

from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory

from realm_tf.serving.version import State

_PACKAGE = "realm.wire"

# Message: {field: (number, type)}. A map is repeated entries and an enum is
# its number, which is the same on the wire.
_SCHEMA = {
    "Int64Value": {"value": (1, "int64")},
    "Dim": {"size": (1, "int64")},
    "TensorShape": {"dim": (2, "repeated Dim")},
    "Tensor": {
        "dtype": (1, "int32"),
        "tensor_shape": (2, "TensorShape"),
        "float_val": (5, "repeated float"),
        "string_val": (8, "repeated bytes"),
        "int64_val": (10, "repeated int64"),
        "bool_val": (11, "repeated bool"),
    },
    "TensorEntry": {"key": (1, "string"), "value": (2, "Tensor")},
    "ModelSpec": {
        "name": (1, "string"),
        "version": (2, "Int64Value"),
        "signature_name": (3, "string"),
    },
    "PredictRequest": {
        "model_spec": (1, "ModelSpec"),
        "inputs": (2, "repeated TensorEntry"),
    },
    "PredictResponse": {"outputs": (1, "repeated TensorEntry")},
    "StatusProto": {
        "error_code": (1, "int32"),
        "error_message": (2, "string"),
    },
    "ModelVersionStatus": {
        "version": (1, "int64"),
        "state": (2, "int32"),
        "status": (3, "StatusProto"),
    },
    "GetModelStatusRequest": {"model_spec": (1, "ModelSpec")},
    "GetModelStatusResponse": {
        "model_version_status": (1, "repeated ModelVersionStatus"),
    },
}

# Field of the values by number in tensorflow/core/framework/types.proto.
_DT_STRING = 7
_VALUES = {
    1: "float_val",
    _DT_STRING: "string_val",
    9: "int64_val",
    10: "bool_val",
}
VERSION_STATES = {state.value: state.name for state in State}


def _build_messages() -> types.SimpleNamespace:
    """The message classes of `_SCHEMA`."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="realm/wire.proto", package=_PACKAGE, syntax="proto3"
    )
    for message_name, fields in _SCHEMA.items():
        message = file.message_type.add(name=message_name)
        for field_name, (number, type_name) in fields.items():
            repeated, _, kind = type_name.rpartition(" ")
            field = message.field.add(name=field_name, number=number)
            field.label = kinds.LABEL_OPTIONAL
            if repeated:
                field.label = kinds.LABEL_REPEATED
            if kind in _SCHEMA:
                field.type = kinds.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    classes = message_factory.GetMessageClassesForFiles([file.name], pool)
    return types.SimpleNamespace(
        **{name: classes[f"{_PACKAGE}.{name}"] for name in _SCHEMA}
    )


wire = _build_messages()


def encode_strings(texts: list[str]):
    """A one-dimensional string tensor.

    Args:
        texts: list of str. What UTF-8 cannot hold (lone surrogates) becomes
            a question mark.

    Returns:
        `wire.Tensor` of shape `(len(texts),)`.
    """
    tensor = wire.Tensor(dtype=_DT_STRING)
    tensor.tensor_shape.dim.add(size=len(texts))
    tensor.string_val.extend(t.encode("utf-8", "replace") for t in texts)
    return tensor


def decode_tensor(tensor):
    """A tensor as nested lists, bytes where the values are strings.

    Args:
        tensor: `wire.Tensor` of dtype string, float32, int64 or bool, with
            repeated values, as TF Serving and our server send them.

    Returns:
        One value for a scalar, else lists nested as deep as the rank.

    Raises:
        ValueError: if the dtype is another, or shape and values disagree.
    """
    if tensor.dtype not in _VALUES:
        raise ValueError(f"dtype {tensor.dtype} is none of a REALM export")
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    values = list(getattr(tensor, _VALUES[tensor.dtype]))
    if len(values) != math.prod(shape):
        raise ValueError(f"{len(values)} values for a tensor of shape {shape}")
    if not shape:
        return values[0]
    for axis in range(len(shape) - 1, 0, -1):
        rows, size = math.prod(shape[:axis]), shape[axis]
        values = [values[i * size : (i + 1) * size] for i in range(rows)]
    return values
