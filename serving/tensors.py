"""Tensors of both protocols to numpy and back.

gRPC: TensorFlow's own protos. REST: TF Serving's JSON. A body holds `instances`
(row form: a list with one entry a row) or `inputs` (column form: whole tensors),
and may hold `signature_name`. The answer to `instances` is `predictions`, the
answer to `inputs` is `outputs`. Bytes are `{"b64": "..."}`. NaN, Infinity and
-Infinity are written bare in both directions, as Python's `json` does and JSON
itself does not allow.

References:
    [RESTful API](https://www.tensorflow.org/tfx/serving/api_rest).
"""

import base64
import dataclasses
import itertools
import json
import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np
from starlette.responses import JSONResponse

from realm_tf.export import signatures
from realm_tf.export.runtime import DTYPES
from realm_tf.export.runtime import NUMBERS
from realm_tf.export.runtime import STRING
from realm_tf.export.runtime import dtype_name
from realm_tf.serving.protos import tensor_pb2
from realm_tf.serving.request_error import invalid

# TensorFlow fills a tensor of any shape from one value, so a request of a
# few bytes could ask for terabytes. Our choice.
_MAX_FILLED_ELEMENTS = 1 << 16
# The field of tensor.proto that holds the values of a dtype.
_VALUE_FIELDS = {
    np.dtype(kind): field
    for field, kinds in {
        "float_val": (np.float32,),
        "double_val": (np.float64,),
        "int_val": (np.int32, np.int16, np.int8, np.uint16, np.uint8),
        "string_val": (object,),
        "int64_val": (np.int64,),
        "bool_val": (np.bool_,),
        "half_val": (np.float16, ml_dtypes.bfloat16),
        "uint32_val": (np.uint32,),
        "uint64_val": (np.uint64,),
    }.items()
    for kind in kinds
}


@dataclasses.dataclass(frozen=True)
class PredictRequest:
    """What to run.

    Args:
        inputs: mapping of name to array, strings as bytes in arrays of dtype
            object.
        signature: str. Defaults to `serving_default`.
        output_filter: tuple of str. The outputs wanted. Defaults to all.
        by_row: bool. Whether the answer is wanted by row (JSON). Defaults to
            `False`.
    """

    inputs: Mapping[str, np.ndarray]
    signature: str = ""
    output_filter: tuple[str, ...] = ()
    by_row: bool = False


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
        dtype = DTYPES.get(proto.dtype)
        if dtype not in _VALUE_FIELDS:
            raise ValueError(f"dtype {proto.dtype} is not supported")
        sizes = _known_sizes(proto)
        count = math.prod(sizes)
        if proto.tensor_content and dtype == STRING:
            values = _split_strings(proto.tensor_content, count)
            values = np.array(values, dtype=object)
        elif proto.tensor_content:
            values = np.frombuffer(proto.tensor_content, dtype).copy()
        else:
            values = _repeated(proto, dtype, count)
        return values.reshape(sizes)
    except (IndexError, OverflowError, ValueError) as error:
        raise invalid(f"tensor parsing error: {name}: {error}") from error


def _repeated(proto, dtype, count) -> np.ndarray:
    """Values of a repeated field; the last one stands for those that lack."""
    values = list(getattr(proto, _VALUE_FIELDS[dtype]))
    last = values[-1:] or [b"" if dtype == STRING else 0]
    values += last * (count - len(values))
    if _VALUE_FIELDS[dtype] == "half_val":
        return np.array(values, np.uint16).view(dtype)
    return np.array(values, dtype)


def _known_sizes(proto) -> list[int]:
    """The tensor's shape, if its values can have been sent."""
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or min(sizes, default=0) < 0:
        raise ValueError("its shape is not fully known")
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
    proto = tensor_pb2.TensorProto(dtype=NUMBERS[array.dtype])
    # Also of a scalar, whose shape is empty.
    proto.tensor_shape.SetInParent()
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    field = _VALUE_FIELDS[array.dtype]
    if field == "half_val":
        array = array.view(np.uint16)
    getattr(proto, field).extend(array.ravel().tolist())
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


BASE64_KEY = "b64"


def read_request(body: bytes, definitions: Mapping) -> PredictRequest:
    """What a request body asks for.

    Args:
        body: bytes. JSON in UTF-8.
        definitions: mapping of name to `SignatureDef`.

    Raises:
        RequestError: if the body is no such JSON or does not fit.
    """
    try:
        document = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        # The error of a decoder quotes no more than a character.
        raise invalid(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise invalid("The body must be a JSON object.")
    name = document.get("signature_name", signatures.DEFAULT)
    if not isinstance(name, str) or name not in definitions:
        raise invalid(
            f'Serving signature name: "{name}" not found in signature def'
        )
    if ("instances" in document) == ("inputs" in document):
        raise invalid("Expected one of the keys 'inputs' and 'instances'.")
    infos = definitions[name].inputs
    by_row = "instances" in document
    if by_row:
        columns = _columns(document["instances"], infos)
    else:
        columns = _named(document["inputs"], infos)
    inputs = {
        key: to_array(key, columns[key], info.dtype)
        for key, info in infos.items()
    }
    return PredictRequest(inputs, name, by_row=by_row)


def _is_base64(value) -> bool:
    return isinstance(value, dict) and list(value) == [BASE64_KEY]


def _named(value, infos: Mapping) -> dict:
    """Input name to value; a single input needs no name."""
    if len(infos) == 1 and (not isinstance(value, dict) or _is_base64(value)):
        return {name: value for name in infos}
    if not isinstance(value, dict) or set(value) != set(infos):
        raise invalid(
            f"Expected an object with the inputs {', '.join(sorted(infos))}."
        )
    return value


def _columns(rows, infos: Mapping) -> dict:
    if not isinstance(rows, list) or not rows:
        raise invalid("'instances' must be a list with at least one entry.")
    named = [_named(row, infos) for row in rows]
    return {name: [row[name] for row in named] for name in infos}


def to_array(name: str, value, dtype: int) -> np.ndarray:
    """A tensor from nested JSON lists.

    Args:
        name: str. The input's, for errors.
        value: a JSON value, lists nested as deep as the rank.
        dtype: int. `DataType` of types.proto.

    Returns:
        numpy array; strings as bytes in an array of dtype object.

    Raises:
        RequestError: if the lists are ragged or a value is of another type.
    """
    # Dicts, strings and lists that differ in length stay elements.
    elements = np.array(value, dtype=object)
    kind = DTYPES.get(dtype)
    if kind not in _VALUE_FIELDS:
        raise invalid(f"input {name} is of dtype {dtype}, which JSON lacks.")
    scalars = [_scalar(name, element, kind) for element in elements.ravel()]
    try:
        array = np.array(scalars, dtype=kind)
    except (OverflowError, TypeError, ValueError) as error:
        raise invalid(
            f"input {name} is no {dtype_name(kind)}: {error}"
        ) from error
    return array.reshape(elements.shape)


def _scalar(name: str, value, kind: np.dtype):
    """A JSON value as one element of a tensor."""
    if kind == STRING:
        if isinstance(value, str):
            # A lone half of a surrogate pair is no character.
            return value.encode("utf-8", "replace")
        if _is_base64(value):
            try:
                return base64.b64decode(value[BASE64_KEY], validate=True)
            except (TypeError, ValueError) as error:
                raise invalid(
                    f"input {name}: unable to base64 decode."
                ) from error
    # To numpy, bool is a kind of int.
    elif isinstance(value, bool):
        if kind.kind == "b":
            return value
    elif isinstance(value, int) or (
        isinstance(value, float) and kind.kind == "f"
    ):
        return value
    raise invalid(
        f"input {name} holds a value of type {type(value).__name__} where "
        f"{dtype_name(kind)} was expected."
    )


def _from_bytes(value: bytes) -> str | dict:
    """A string for JSON; as base64 if it is not UTF-8, which JSON must be."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {BASE64_KEY: base64.b64encode(value).decode("ascii")}


def to_lists(array: np.ndarray):
    """A tensor as nested lists that JSON can hold.

    float32 is written with as few digits as tell it from its neighbours,
    so 0.2 stays 0.2.

    Args:
        array: numpy array; strings as bytes in an array of dtype object.

    Returns:
        One value for a scalar, else lists nested as deep as the rank.
    """
    if array.dtype == STRING:
        values = np.empty(array.size, dtype=object)
        values[:] = [_from_bytes(value) for value in array.flat]
        return values.reshape(array.shape).tolist()
    if array.dtype == np.float32:
        array = array.astype(str).astype(np.float64)
    return array.tolist()


def to_answer(outputs: Mapping[str, np.ndarray], *, by_row: bool) -> dict:
    """The document that answers a predict request.

    Args:
        outputs: mapping of output name to array. A single one is not named
            in the answer.
        by_row: bool. Whether the request was in row form.

    Returns:
        dict that JSON can hold.

    Raises:
        RequestError: if rows are wanted and the outputs have not as many.
    """
    if by_row and len({a.shape[:1] for a in outputs.values()} | {()}) != 2:
        raise invalid("The outputs have no batch size: ask with 'inputs'.")
    lists = {name: to_lists(array) for name, array in outputs.items()}
    if len(lists) == 1:
        (answer,) = lists.values()
    elif by_row:
        rows = zip(*lists.values(), strict=True)
        answer = [dict(zip(lists, row, strict=True)) for row in rows]
    else:
        answer = lists
    return {"predictions" if by_row else "outputs": answer}


class Answer(JSONResponse):
    """A document as JSON in UTF-8, on one line, infinities bare.

    What no UTF-8 holds (lone surrogates) becomes a question mark.
    """

    def render(self, content) -> bytes:
        text = json.dumps(content, ensure_ascii=False)
        return text.encode("utf-8", "replace")
