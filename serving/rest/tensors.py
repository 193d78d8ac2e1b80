"""Tensors from the JSON of a predict request, and JSON from tensors.

The dtype is the signature's, so that 1 may be an int32 or a float. Wording of
errors: tensorflow/serving, tensorflow_serving/util/json_tensor.cc.
"""

import base64
import binascii
import math
from collections.abc import Mapping

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from realm_tf.serving.request_error import RequestError
from realm_tf.serving.rest.json_text import invalid
from realm_tf.serving.rest.json_text import show
from realm_tf.serving.rest.json_text import signature_name
from realm_tf.serving.rest.json_text import type_name

BASE64_KEY = "b64"
# Outputs whose names end so are bytes, whatever is in them.
_BYTES_SUFFIX = "_bytes"
# numpy's NPY_MAXDIMS; TensorFlow's own is 254.
_MAX_RANK = 64
_FLOATS = {types_pb2.DT_FLOAT: np.float32, types_pb2.DT_DOUBLE: np.float64}
_INTEGERS = {
    types_pb2.DT_INT8: np.int8,
    types_pb2.DT_INT16: np.int16,
    types_pb2.DT_INT32: np.int32,
    types_pb2.DT_INT64: np.int64,
    types_pb2.DT_UINT8: np.uint8,
    types_pb2.DT_UINT32: np.uint32,
    types_pb2.DT_UINT64: np.uint64,
}


def _dtype_name(dtype: int) -> str:
    """As TensorFlow's `DataTypeString`: DT_FLOAT is "float"."""
    return types_pb2.DataType.Name(dtype).removeprefix("DT_").lower()


def _is_base64(value) -> bool:
    return (
        isinstance(value, dict)
        and list(value) == [BASE64_KEY]
        and isinstance(value[BASE64_KEY], str)
    )


def _decode_base64(value: dict) -> bytes:
    if not _is_base64(value):
        raise invalid(
            f"JSON Value: {show(value)} not formatted correctly for base64 data"
        )
    # Spaces and missing padding are fine, as in absl::Base64Unescape.
    text = "".join(value[BASE64_KEY].split()).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid("Unable to base64 decode") from error


def _type_error(value, dtype: int) -> RequestError:
    return invalid(
        f"JSON Value: {show(value)} Type: {type_name(value)} is not of "
        f"expected type: {_dtype_name(dtype)}"
    )


def _decimal(value, dtype: int) -> float:
    if type(value) not in (int, float):
        raise _type_error(value, dtype)
    numpy_type = _FLOATS[dtype]
    if type(value) is int:
        # As many bits as the mantissa has, its hidden one included.
        lossy = abs(value) >= 2 ** (np.finfo(numpy_type).nmant + 1)
    else:
        # An infinity is lost only if it was none before.
        with np.errstate(over="ignore"):
            lossy = np.isinf(numpy_type(value)) and not math.isinf(value)
    if lossy:
        raise invalid(
            f"Cannot convert JSON value: {show(value)} to "
            f"{_dtype_name(dtype)} without loss of precision."
        )
    return value


def _scalar(value, dtype: int):
    """A JSON value as one element of a tensor."""
    if isinstance(value, dict):
        if dtype != types_pb2.DT_STRING:
            raise _type_error(value, dtype)
        return _decode_base64(value)
    if dtype in _FLOATS:
        return _decimal(value, dtype)
    if dtype in _INTEGERS:
        limits = np.iinfo(_INTEGERS[dtype])
        if type(value) is int and limits.min <= value <= limits.max:
            return value
    elif dtype == types_pb2.DT_STRING:
        if isinstance(value, str):
            return value.encode("utf-8")
    elif dtype == types_pb2.DT_BOOL:
        if isinstance(value, bool):
            return value
    else:
        raise RequestError(
            grpc.StatusCode.UNIMPLEMENTED,
            f"Conversion of JSON Value: {show(value)} to type: "
            f"{_dtype_name(dtype)}",
        )
    raise _type_error(value, dtype)


def _shape_of(value) -> list[int]:
    """The shape that the first entries of nested lists suggest."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    if len(shape) > _MAX_RANK:
        raise invalid(
            f"A list of {len(shape)} levels is no tensor: expected at most "
            f"{_MAX_RANK}."
        )
    return shape


def to_array(value, dtype: int) -> np.ndarray:
    """A tensor from nested JSON lists.

    Args:
        value: a JSON value, lists nested as deep as the rank.
        dtype: int. `DataType` of types.proto.

    Returns:
        numpy array; strings as bytes in an array of dtype object.

    Raises:
        RequestError: if the lists are ragged or a value is of another type.
    """
    shape = _shape_of(value)
    values = [value]
    for level, size in enumerate(shape):
        children = []
        for item in values:
            if not isinstance(item, list):
                raise invalid(
                    f"JSON Value: {show(item)} found at incorrect level: "
                    f"{level + 1} in the JSON DOM. Expected at level: "
                    f"{len(shape)}"
                )
            if len(item) != size:
                raise invalid(
                    f"Encountered list at unexpected size: {len(item)} at "
                    f"level: {level} expected size: {size}"
                )
            children += item
        values = children
    for item in values:
        if isinstance(item, list):
            raise invalid(
                f"Encountered list at unexpected level: {len(shape)} "
                f"expected < {len(shape)}"
            )
    scalars = [_scalar(item, dtype) for item in values]
    numpy_dtype = tf.as_dtype(dtype).as_numpy_dtype
    return np.array(scalars, dtype=numpy_dtype).reshape(shape)


def is_by_row(document: Mapping) -> bool:
    """Whether a predict request is in row form.

    Args:
        document: mapping. What `rest_json.parse` returned.

    Raises:
        RequestError: if it is in neither form, or in both.
    """
    if "instances" in document and "inputs" in document:
        raise invalid(
            f"JSON Value: {show(document)} Not formatted correctly expecting "
            "only one of 'inputs' or 'instances' keys to exist "
        )
    if "instances" not in document and "inputs" not in document:
        raise invalid("Missing 'inputs' or 'instances' key")
    return "instances" in document


def to_inputs(document: Mapping, infos: Mapping) -> dict[str, np.ndarray]:
    """The tensors of a predict request.

    In the column form, names that the signature has not are passed over, as
    TF Serving does.

    Args:
        document: mapping. What `rest_json.parse` returned.
        infos: mapping of input name to `TensorInfo`: the signature's inputs.

    Returns:
        dict of input name to array.

    Raises:
        RequestError: if they are in neither form or do not fit.
    """
    if not infos:
        raise invalid(
            "Failed to get input map for signature: "
            f"{signature_name(document) or 'DEFAULT'}"
        )
    if is_by_row(document):
        return _from_rows(document, infos)
    return _from_columns(document["inputs"], infos)


def _from_columns(value, infos: Mapping) -> dict[str, np.ndarray]:
    if not isinstance(value, dict) or _is_base64(value):
        if len(infos) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as "
                "multiple input tensors required as per tensorinfo_map"
            )
        value = {name: value for name in infos}
    for name in infos:
        if name not in value:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: to_array(value[name], infos[name].dtype) for name in infos}


def _check_rows(document: Mapping, infos: Mapping) -> list:
    rows = document["instances"]
    if not isinstance(rows, list):
        # (sic)
        raise invalid(
            f"JSON Value: {show(document)} Excepting 'instances' to be an "
            "list/array"
        )
    if not rows:
        raise invalid(
            f"JSON Value: {show(document)} No values in 'instances' array"
        )
    if not isinstance(rows[0], dict) and len(infos) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as "
            "multiple input tensors required as per tensorinfo_map"
        )
    named = isinstance(rows[0], dict) and not _is_base64(rows[0])
    for position, row in enumerate(rows):
        if (isinstance(row, dict) and not _is_base64(row)) != named:
            expected, got = (
                ("object", "list") if named else ("value/list", "object")
            )
            raise invalid(
                f"Expecting {expected} but got {got} at item {position} of "
                "input list"
            )
        if named and set(row) != set(infos):
            raise invalid(
                f"Failed to process element: {position} of 'instances' list. "
                f"JSON object: {show(row)} keys must be equal to: "
                f"{','.join(sorted(infos))}"
            )
    return rows if named else [{next(iter(infos)): row} for row in rows]


def _from_rows(document: Mapping, infos: Mapping) -> dict[str, np.ndarray]:
    rows = _check_rows(document, infos)
    # What stood in a list, unnamed, is named in no error.
    named = rows[0] is document["instances"][0]
    columns = {}
    for name, info in infos.items():
        arrays = []
        for position, row in enumerate(rows):
            try:
                arrays.append(to_array(row[name], info.dtype))
                _check_like(arrays[0], arrays[-1])
            except RequestError as error:
                key = f" key: {name}" if named else ""
                raise RequestError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"Failed to process element: {position}{key} of "
                    f"'instances' list. Error: {error.code.name}: "
                    f"{error.message}",
                ) from error
        columns[name] = np.stack(arrays)
    return columns


def _check_like(first: np.ndarray, other: np.ndarray) -> None:
    if first.size != other.size:
        raise invalid(
            f"Expecting tensor size: {first.size} but got: {other.size}"
        )
    if first.shape != other.shape:
        raise invalid(
            f"Expecting shape {_shape_text(first)} but got: "
            f"{_shape_text(other)}"
        )


def _shape_text(array: np.ndarray) -> str:
    return f"[{','.join(map(str, array.shape))}]"


def _from_bytes(value: bytes, *, as_text: bool) -> str | dict:
    """A string for JSON; as base64 if it is not UTF-8, which JSON must be."""
    try:
        if as_text:
            return value.decode("utf-8")
    except UnicodeDecodeError:
        # TF Serving would write the bytes, which is no JSON.
        as_text = False
    return {BASE64_KEY: base64.b64encode(value).decode("ascii")}


def to_lists(name: str, array: np.ndarray):
    """A tensor as nested lists that JSON can hold.

    float32 is written with as few digits as tell it from its neighbours,
    so 0.2 stays 0.2.

    Args:
        name: str. The output's name; bytes if it ends in `_bytes`.
        array: numpy array; strings as bytes in an array of dtype object.

    Returns:
        One value for a scalar, else lists nested as deep as the rank.

    Raises:
        RequestError: if JSON has nothing for its dtype.
    """
    if array.dtype == object:
        as_text = not name.endswith(_BYTES_SUFFIX)
        values = np.empty(array.size, dtype=object)
        values[:] = [_from_bytes(v, as_text=as_text) for v in array.flat]
        return values.reshape(array.shape).tolist()
    dtype = tf.as_dtype(array.dtype)
    if dtype.is_floating:
        if dtype.size < np.dtype(np.float32).itemsize:
            array = array.astype(np.float32)
        if array.dtype == np.float32:
            array = array.astype(str).astype(np.float64)
    elif not (dtype.is_integer or dtype.is_bool):
        raise invalid(
            "Failed to write JSON value for tensor type: "
            f"{_dtype_name(dtype.as_datatype_enum)}"
        )
    return array.tolist()


def to_answer(outputs: Mapping[str, np.ndarray], *, by_row: bool) -> dict:
    """The JSON object that answers a predict request.

    Args:
        outputs: mapping of output name to array. A single one is not named
            in the answer.
        by_row: bool. Whether the request was in row form.

    Returns:
        dict with `predictions` or `outputs`.

    Raises:
        RequestError: if rows are wanted and the outputs have not as many.
    """
    if not outputs:
        raise invalid("Cannot convert empty tensor map to JSON")
    if by_row:
        _check_batch(outputs)
    lists = {name: to_lists(name, array) for name, array in outputs.items()}
    if not by_row:
        single = next(iter(lists.values()))
        return {"outputs": single if len(lists) == 1 else lists}
    if len(lists) == 1:
        return {"predictions": next(iter(lists.values()))}
    rows = zip(*lists.values(), strict=True)
    return {"predictions": [dict(zip(lists, row, strict=True)) for row in rows]}


def _check_batch(outputs: Mapping[str, np.ndarray]) -> None:
    batch_size = None
    for name, array in outputs.items():
        if not array.ndim:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if batch_size is not None and len(array) != batch_size:
            raise invalid(
                f"Tensor name: {name} has inconsistent batch size: "
                f"{len(array)} expecting: {batch_size}"
            )
        batch_size = len(array)
