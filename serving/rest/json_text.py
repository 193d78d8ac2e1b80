"""TF Serving's JSON: what a request body says, and how answers are written.

A body holds `instances` (row form: a list with one entry a row) or `inputs`
(column form: whole tensors), and may hold `signature_name`. The answer to
`instances` is `predictions`, the answer to `inputs` is `outputs`. Bytes are
`{"b64": "..."}`. NaN, Infinity and -Infinity stand bare in both directions,
as Python's `json` writes them and JSON itself does not allow.

References:
    [RESTful API](https://www.tensorflow.org/tfx/serving/api_rest). The
    wording of errors: tensorflow/serving, tensorflow_serving/util/
    json_tensor.cc; of syntax errors: RapidJSON, error/en.h, its parser.
"""

import codecs
import json
import math
import re
from collections.abc import Mapping

import grpc

from realm_tf.serving.request_error import RequestError

# TF Serving repeats whole values in its errors; our choice.
_MAX_SHOWN_CHARACTERS = 200
# 64-bit numbers are no longer; what is becomes a float, as in RapidJSON.
_MAX_INTEGER_DIGITS = 20
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
# Python's words for a syntax error: RapidJSON's.
_SYNTAX_ERRORS = {
    "Expecting value": "Invalid value.",
    "Extra data": "The document root must not be followed by other values.",
    "Expecting property name enclosed in double quotes": (
        "Missing a name for object member."
    ),
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Unterminated string starting at": (
        "Missing a closing quotation mark in string."
    ),
    "Invalid control character at": "Invalid encoding in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
    "Invalid \\escape": "Invalid escape character in string.",
}


def invalid(message: str) -> RequestError:
    """A request that no retry would help."""
    return RequestError(grpc.StatusCode.INVALID_ARGUMENT, message)


def show(value) -> str:
    """A JSON value for an error, cut where it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        text = "(nested too deeply to show)"
    if len(text) > _MAX_SHOWN_CHARACTERS:
        text = text[:_MAX_SHOWN_CHARACTERS] + "…"
    return text


def type_name(value) -> str:
    """RapidJSON's name of a value's type."""
    if value is None or isinstance(value, bool):
        return {None: "Null", True: "True", False: "False"}[value]
    names = {dict: "Object", list: "Array", str: "String"}
    return names.get(type(value), "Number")


def _parse_error(reason: str, text: str = "", position: int = 0):
    offset = len(text[:position].encode("utf-8", "replace"))
    return invalid(f"JSON Parse error: {reason} at offset: {offset}")


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise invalid(
            "JSON Parse error: Number too big to be stored in double."
        )
    return value


def _parse_int(text: str) -> int | float:
    if len(text) <= _MAX_INTEGER_DIGITS:
        value = int(text)
        if -(2**63) <= value < 2**64:
            return value
    return _parse_float(text)


def _unique_names(pairs: list[tuple]) -> dict:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise invalid(
            f"JSON Parse error: the name {show(twice)} stands twice in an "
            "object."
        )
    return members


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_names,
    parse_int=_parse_int,
    parse_float=_parse_float,
)


def parse(body: bytes) -> dict:
    """The JSON object that a request body holds.

    Stricter than TF Serving where that would let nonsense pass: UTF-8 must
    be valid and no name may stand twice in an object.

    Args:
        body: bytes. JSON in UTF-8.

    Returns:
        dict. Integers of more than 64 bits are floats.

    Raises:
        RequestError: if it is not one JSON object.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    if not body.strip():
        raise invalid("JSON Parse error: The document is empty")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid(
            "JSON Parse error: Invalid encoding in string. at offset: "
            f"{error.start}"
        ) from error
    try:
        document = _DECODER.decode(text)
        if _SURROGATE_ESCAPE.search(text):
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        reason = _SYNTAX_ERRORS.get(error.msg, error.msg)
        raise _parse_error(reason, text, error.pos) from error
    except UnicodeEncodeError as error:
        raise invalid(
            "JSON Parse error: The surrogate pair in string is invalid."
        ) from error
    except RecursionError as error:
        raise invalid("JSON Parse error: nested too deeply.") from error
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {show(document)} Is not object")
    return document


def signature_name(document: Mapping) -> str:
    """The signature that a request names.

    Args:
        document: mapping. What `parse` returned.

    Returns:
        str, empty if it names none.

    Raises:
        RequestError: if the name is not a string.
    """
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {show(document)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return name


def check_examples(document: Mapping) -> None:
    """Refuses a classify or regress request without examples.

    Args:
        document: mapping. What `parse` returned.

    Raises:
        RequestError: if `examples` is not a list with something in it.
    """
    if "examples" not in document:
        raise invalid(
            f"JSON Value: {show(document)} When method is classify, key "
            "'examples' is expected and was not found"
        )
    if not isinstance(document["examples"], list):
        raise invalid(
            f"JSON Value: {show(document)} Expecting 'examples' value to be "
            "an list/array"
        )
    if not document["examples"]:
        raise invalid(
            f"JSON Value: {show(document)} 'examples' value is an empty array"
        )


def write(document: Mapping) -> bytes:
    """JSON in UTF-8, on one line.

    Args:
        document: mapping. What no UTF-8 holds (lone surrogates) becomes a
            question mark.

    Returns:
        bytes.
    """
    text = json.dumps(document, ensure_ascii=False)
    return text.encode("utf-8", "replace")
