"""Tensors of the protocol to numpy and back, with TensorFlow's own types."""

import itertools
import math

import numpy as np
import tensorflow as tf

from realm_tf.serving.request_error import invalid

# TensorFlow fills a tensor of any shape from one value, so a request of a
# few bytes could ask for terabytes. Our choice.
_MAX_FILLED_ELEMENTS = 1 << 16
# No signature of REALM has more than 2; numpy's iterators end at 64. Our choice.
MAX_RANK = 32
# Of a REALM export's outputs. As TF Serving's default: clients read these
# fields directly.
_VALUE_FIELDS = {
    tf.float32: "float_val",
    tf.int64: "int64_val",
    tf.string: "string_val",
    tf.bool: "bool_val",
}


def decode_tensor(name: str, proto) -> np.ndarray:
    """An input as TensorFlow reads it, in either encoding.

    Args:
        name: str. The input's name, for errors.
        proto: `tensorflow.TensorProto`.

    Returns:
        numpy array; strings as bytes in an array of dtype object.

    Raises:
        RequestError: if it is not a tensor.
    """
    try:
        if not tf.as_dtype(proto.dtype).is_numpy_compatible:
            raise ValueError(f"dtype {proto.dtype} holds no values")
        sizes = _known_sizes(proto)
        # Not tf.io.parse_tensor: it logs what it cannot read, questions too.
        if proto.dtype == tf.string.as_datatype_enum and proto.tensor_content:
            strings = _split_strings(proto.tensor_content, math.prod(sizes))
            return np.array(strings, dtype=object).reshape(sizes)
        return np.asarray(tf.make_ndarray(proto))
    except (IndexError, TypeError, ValueError) as error:
        raise invalid(f"tensor parsing error: {name}: {error}") from error


def _known_sizes(proto) -> list[int]:
    """The tensor's shape, if its values can have been sent."""
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or min(sizes, default=0) < 0:
        raise ValueError("its shape is not fully known")
    if len(sizes) > MAX_RANK:
        raise ValueError(
            f"it has {len(sizes)} dimensions: expected at most {MAX_RANK}"
        )
    count = math.prod(sizes)
    # No value takes less than a byte in either encoding.
    if count > max(proto.ByteSize(), _MAX_FILLED_ELEMENTS):
        raise ValueError(
            f"its shape {sizes} needs {count} values, which were not sent"
        )
    return sizes


def encode_tensor(array: np.ndarray):
    """An output in repeated fields, as TF Serving sends it.

    Args:
        array: numpy array; strings as bytes in an array of dtype object.

    Returns:
        `tensorflow.TensorProto`.
    """
    dtype = tf.as_dtype(array.dtype)
    if dtype not in _VALUE_FIELDS:
        return tf.make_tensor_proto(array)
    proto = tf.make_tensor_proto([], dtype=dtype, shape=[0])
    proto.tensor_shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
    getattr(proto, _VALUE_FIELDS[dtype]).extend(array.ravel().tolist())
    return proto


def _split_strings(data: bytes, count: int) -> list[bytes]:
    """The strings that TensorFlow packs into `tensor_content`.

    Args:
        data: bytes. All lengths as varints, then all strings.
        count: int. How many there are.

    Returns:
        list of bytes.

    Raises:
        IndexError: if the lengths are cut off.
        ValueError: if they do not fit the data.
    """
    lengths, position = [], 0
    for _ in range(count):
        length = 0
        for shift in range(0, 64, 7):
            byte = data[position]
            position += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        lengths.append(length)
    limits = list(itertools.accumulate(lengths, initial=position))
    if limits[-1] != len(data):
        raise ValueError("string lengths in tensor_content do not add up")
    return [data[first:limit] for first, limit in itertools.pairwise(limits)]
