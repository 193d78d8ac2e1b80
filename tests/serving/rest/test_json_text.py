import base64
import json
import math

import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from realm_tf.serving.request_error import RequestError
from realm_tf.serving.rest import json_text as rest_json
from realm_tf.serving.rest import tensors as rest_tensors


def infos(**dtypes):
    """The inputs of a signature: name to dtype's name."""
    return {
        name: meta_graph_pb2.TensorInfo(dtype=types_pb2.DataType.Value(dtype))
        for name, dtype in dtypes.items()
    }


QUESTION = infos(question="DT_STRING")
BLOCK = infos(title="DT_STRING", score="DT_FLOAT")


def inputs(body, expected=QUESTION):
    document = rest_json.parse(
        body if isinstance(body, bytes) else body.encode()
    )
    return (
        rest_tensors.to_inputs(document, expected),
        rest_tensors.is_by_row(document),
    )


def refused(function, *arguments, code="INVALID_ARGUMENT"):
    """The words of the error."""
    with pytest.raises(RequestError) as caught:
        function(*arguments)
    assert caught.value.code.name == code
    return caught.value.message


def test_rows_and_columns_hold_the_same_tensors():
    rows, by_row = inputs('{"instances": ["a", "ä"]}')
    columns, by_column = inputs('{"inputs": ["a", "ä"]}')
    assert (by_row, by_column) == (True, False)
    for tensors in (rows, columns):
        assert tensors["question"].tolist() == [b"a", "ä".encode()]
        assert tensors["question"].dtype == object


def test_rows_and_columns_may_name_their_inputs():
    rows, _ = inputs(
        '{"instances": [{"score": 1, "title": "a"},'
        ' {"title": "b", "score": 2.5}]}',
        BLOCK,
    )
    columns, _ = inputs(
        '{"inputs": {"title": ["a", "b"], "score": [1, 2.5], "more": 1}}', BLOCK
    )
    for tensors in (rows, columns):
        assert sorted(tensors) == ["score", "title"]
        assert tensors["title"].tolist() == [b"a", b"b"]
        assert tensors["score"].tolist() == [1.0, 2.5]
        assert tensors["score"].dtype == np.float32


def test_a_row_adds_the_batch_dimension_and_a_column_does_not():
    assert inputs('{"instances": [["a", "b"]]}')[0]["question"].shape == (1, 2)
    assert inputs('{"inputs": "a"}')[0]["question"].shape == ()
    assert inputs('{"inputs": []}')[0]["question"].shape == (0,)
    assert inputs('{"inputs": [[], []]}')[0]["question"].shape == (2, 0)


def test_bytes_are_base64():
    encoded = base64.b64encode(b"\xff\x00").decode()
    for body in (
        {"instances": [{"b64": encoded}]},
        {"instances": [{"question": {"b64": encoded.rstrip("=")}}]},
        {"inputs": {"question": [{"b64": f" {encoded}\n"}]}},
    ):
        tensors, _ = inputs(json.dumps(body))
        assert tensors["question"].tolist() == [b"\xff\x00"]
    assert inputs('{"inputs": {"b64": "YQ=="}}')[0]["question"] == b"a"


@pytest.mark.parametrize(
    "dtype, text, expected",
    [
        ("DT_FLOAT", "[1, 0.5, 16777215]", [1.0, 0.5, 16777215.0]),
        ("DT_FLOAT", "[Infinity, -Infinity]", [math.inf, -math.inf]),
        ("DT_DOUBLE", "[9007199254740991, 0.1]", [9007199254740991.0, 0.1]),
        ("DT_INT32", "[2147483647, -2147483648]", [2**31 - 1, -(2**31)]),
        (
            "DT_INT64",
            "[9223372036854775807, -9223372036854775808]",
            [2**63 - 1, -(2**63)],
        ),
        ("DT_UINT64", "[18446744073709551615]", [2**64 - 1]),
        ("DT_UINT8", "[0, 255]", [0, 255]),
        ("DT_BOOL", "[true, false]", [True, False]),
    ],
)
def test_values_of_every_type(dtype, text, expected):
    tensors, _ = inputs(f'{{"inputs": {text}}}', infos(x=dtype))
    assert tensors["x"].tolist() == expected


def test_nan_is_accepted():
    tensors, _ = inputs('{"instances": [NaN]}', infos(x="DT_FLOAT"))
    assert math.isnan(tensors["x"][0])


@pytest.mark.parametrize(
    "dtype, value, words",
    [
        (
            "DT_FLOAT",
            '"a"',
            'JSON Value: "a" Type: String is not of expected type: float',
        ),
        (
            "DT_STRING",
            "1",
            "JSON Value: 1 Type: Number is not of expected type: string",
        ),
        (
            "DT_STRING",
            "null",
            "JSON Value: null Type: Null is not of expected type: string",
        ),
        (
            "DT_INT32",
            "true",
            "JSON Value: true Type: True is not of expected type: int32",
        ),
        (
            "DT_INT64",
            "1.0",
            "JSON Value: 1.0 Type: Number is not of expected type: int64",
        ),
        (
            "DT_INT32",
            "2147483648",
            "JSON Value: 2147483648 Type: Number is not of expected type: "
            "int32",
        ),
        (
            "DT_BOOL",
            "1",
            "JSON Value: 1 Type: Number is not of expected type: bool",
        ),
        (
            "DT_INT64",
            "18446744073709551616",
            "JSON Value: 1.8446744073709552e+19 Type: Number is not of "
            "expected type: int64",
        ),
        (
            "DT_FLOAT",
            "16777216",
            "Cannot convert JSON value: 16777216 to float without loss of "
            "precision.",
        ),
        (
            "DT_FLOAT",
            "1e39",
            "Cannot convert JSON value: 1e+39 to float without loss of "
            "precision.",
        ),
        (
            "DT_STRING",
            '{"b64": 1}',
            'JSON Value: {"b64": 1} not formatted correctly for base64 data',
        ),
        ("DT_STRING", '{"b64": "a"}', "Unable to base64 decode"),
        ("DT_STRING", '{"b64": "ü???"}', "Unable to base64 decode"),
        (
            "DT_FLOAT",
            '{"b64": "YQ=="}',
            'JSON Value: {"b64": "YQ=="} Type: Object is not of expected '
            "type: float",
        ),
    ],
)
def test_values_of_another_type(dtype, value, words):
    body = f'{{"inputs": [{value}]}}'
    assert refused(inputs, body, infos(x=dtype)) == words


def test_types_that_json_has_not_are_not_implemented():
    words = refused(
        inputs,
        '{"inputs": [1]}',
        infos(x="DT_HALF"),
        code="UNIMPLEMENTED",
    )
    assert words == "Conversion of JSON Value: 1 to type: half"


@pytest.mark.parametrize(
    "body, words",
    [
        ("[1]", "JSON Value: [1] Is not object"),
        ('{"x": 1}', "Missing 'inputs' or 'instances' key"),
        (
            '{"instances": [], "inputs": []}',
            "expecting only one of 'inputs' or 'instances' keys to exist",
        ),
        ('{"instances": "a"}', "Excepting 'instances' to be an list/array"),
        ('{"instances": []}', "No values in 'instances' array"),
        (
            '{"instances": [{"question": "a"}, "b"]}',
            "Expecting object but got list at item 1 of input list",
        ),
        (
            '{"instances": ["a", {"question": "b"}]}',
            "Expecting value/list but got object at item 1 of input list",
        ),
        (
            '{"instances": [{"q": "a"}]}',
            "Failed to process element: 0 of 'instances' list. JSON object: "
            '{"q": "a"} keys must be equal to: question',
        ),
        (
            '{"instances": ["a", 1]}',
            "Failed to process element: 1 of 'instances' list. Error: "
            "INVALID_ARGUMENT: JSON Value: 1 Type: Number is not of expected "
            "type: string",
        ),
        (
            '{"instances": [{"question": 1}]}',
            "Failed to process element: 0 key: question of 'instances' list. "
            "Error: INVALID_ARGUMENT: ",
        ),
        (
            '{"instances": [["a"], ["a", "b"]]}',
            "Expecting tensor size: 1 but got: 2",
        ),
        ('{"instances": ["a", ["b"]]}', "Expecting shape [] but got: [1]"),
        ('{"inputs": {"q": "a"}}', "Missing named input: question in 'inputs'"),
        (
            '{"inputs": [["a"], ["a", "b"]]}',
            "Encountered list at unexpected size: 2 at level: 1 expected "
            "size: 1",
        ),
        (
            '{"inputs": [["a"], "b"]}',
            'JSON Value: "b" found at incorrect level: 2 in the JSON DOM. '
            "Expected at level: 2",
        ),
        (
            '{"inputs": ["a", ["b"]]}',
            "Encountered list at unexpected level: 1 expected < 1",
        ),
        (
            f'{{"inputs": {"[" * 65}{"]" * 65}}}',
            "A list of 65 levels is no tensor",
        ),
    ],
)
def test_bodies_that_are_no_request(body, words):
    assert words in refused(inputs, body)


def test_several_inputs_must_be_named():
    assert "inputs is a plain value/list, but expecting an object" in refused(
        inputs, '{"inputs": ["a"]}', BLOCK
    )
    assert "instances is a plain list, but expecting list of objects" in (
        refused(inputs, '{"instances": ["a"]}', BLOCK)
    )


@pytest.mark.parametrize(
    "body, words",
    [
        (b"", "The document is empty"),
        (b" \n", "The document is empty"),
        (b"instances = [1]", "Invalid value. at offset: 0"),
        (b"{} {}", "The document root must not be followed by other values."),
        (b'{"a": [1}', "at offset: 8"),
        (b'{"a" 1}', "Missing a colon after a name of object member."),
        (b'{"a": "b', "Missing a closing quotation mark in string."),
        (b"{'a': 1}", "Missing a name for object member."),
        (b'{"a": "\x01"}', "Invalid encoding in string."),
        (b'{"a": "\\x"}', "Invalid escape character in string."),
        (b'{"a": "\\u00g0"}', "Incorrect hex digit after \\u escape"),
        (b'{"a": "\xff"}', "Invalid encoding in string. at offset: 7"),
        ('{"ä": x}'.encode(), "Invalid value. at offset: 7"),
        (b'{"a": "\\ud800"}', "The surrogate pair in string is invalid."),
        (b'{"\\udc00": 1}', "The surrogate pair in string is invalid."),
        (b'{"a": 1e999}', "Number too big to be stored in double."),
        (b'{"a": ' + b"9" * 5000 + b"}", "Number too big to be stored"),
        (b'{"a": 1, "a": 2}', 'the name "a" stands twice in an object.'),
        (b"[" * 100_000, "nested too deeply."),
        (b'{"a":' * 100_000, "nested too deeply."),
    ],
)
def test_broken_json(body, words):
    message = refused(rest_json.parse, body)
    assert message.startswith("JSON Parse error: ")
    assert words in message


def test_what_strict_json_allows():
    assert rest_json.parse(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    astral = rest_json.parse(b'{"a": "\\ud83d\\ude00 \\u0000"}')
    assert astral == {"a": "\U0001f600 \0"}


def test_signature_name():
    assert rest_json.signature_name({}) == ""
    assert rest_json.signature_name({"signature_name": "retrieve"}) == (
        "retrieve"
    )
    assert refused(rest_json.signature_name, {"signature_name": 5}) == (
        'JSON Value: {"signature_name": 5} not formatted correctly. '
        "'signature_name' key must be a string value."
    )


def test_values_in_errors_are_cut():
    words = refused(inputs, json.dumps({"inputs": 7, "x": "y" * 10_000}))
    assert words.startswith("JSON Value: 7 Type: Number")
    assert len(refused(inputs, json.dumps({"x": 7, "inputs": []}), {})) < 300
    assert len(refused(inputs, json.dumps({"instances": "y" * 9999}))) < 300
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert "too deeply" in rest_json.show(deep)


OUTPUTS = {
    "answer": np.array([b"a", "ä".encode()], dtype=object),
    "vector_bytes": np.array([b"a", b"\xff"], dtype=object),
    "raw": np.array([b"a", b"\xff"], dtype=object),
    "score": np.array([0.2, -np.inf], np.float32),
    "nested": np.array([[1.0, np.nan], [1e-7, 12.0]], np.float64),
    "half": np.array([0.1, 2.0], np.float16),
    "block_id": np.array([2**62, -1], np.int64),
    "flag": np.array([True, False]),
}


def test_answers_are_rows_or_columns_of_equal_values():
    text = rest_json.write(rest_tensors.to_answer(OUTPUTS, by_row=False))
    outputs = json.loads(text)["outputs"]
    assert outputs["answer"] == ["a", "ä"]
    assert outputs["vector_bytes"] == [{"b64": "YQ=="}, {"b64": "/w=="}]
    # What is not UTF-8 cannot be JSON.
    assert outputs["raw"] == ["a", {"b64": "/w=="}]
    # 0.2, not the 0.20000000298 that float32 holds.
    assert b'"score": [0.2, -Infinity]' in text
    assert b'"nested": [[1.0, NaN], [1e-07, 12.0]]' in text
    assert outputs["half"] == pytest.approx([0.1, 2.0], abs=1e-4)
    assert b'"block_id": [4611686018427387904, -1]' in text
    assert b'"flag": [true, false]' in text
    rows = rest_tensors.to_answer(OUTPUTS, by_row=True)["predictions"]
    for name, column in outputs.items():
        if name != "nested":
            assert [row[name] for row in rows] == column


def test_a_single_output_is_not_named():
    single = {"embedding": np.array([[1.0, 2.0]], np.float32)}
    assert rest_tensors.to_answer(single, by_row=True) == {
        "predictions": [[1.0, 2.0]]
    }
    assert rest_tensors.to_answer(single, by_row=False) == {
        "outputs": [[1.0, 2.0]]
    }
    scalar = {"value": np.array(3, np.int32)}
    assert rest_tensors.to_answer(scalar, by_row=False) == {"outputs": 3}
    text = {"value": np.array(b"x", dtype=object)}
    assert rest_tensors.to_answer(text, by_row=False) == {"outputs": "x"}


def test_outputs_that_are_no_rows():
    def words(**outputs):
        return refused(lambda: rest_tensors.to_answer(outputs, by_row=True))

    assert words(a=np.array(1)) == "Tensor name: a has no shape information "
    assert words(a=np.zeros(2), b=np.zeros(3)) == (
        "Tensor name: b has inconsistent batch size: 3 expecting: 2"
    )
    assert words() == "Cannot convert empty tensor map to JSON"
    assert words(a=np.zeros(2, np.complex64)) == (
        "Failed to write JSON value for tensor type: complex64"
    )


def test_examples_of_classify():
    assert "key 'examples' is expected" in refused(rest_json.check_examples, {})
    assert "an list/array" in refused(rest_json.check_examples, {"examples": 1})
    assert "empty array" in refused(rest_json.check_examples, {"examples": []})
    rest_json.check_examples({"examples": [{"x": 1}]})


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_float32_survive_as_written(values):
    array = np.array(values, np.float32)
    text = rest_json.write(rest_tensors.to_answer({"x": array}, by_row=False))
    returned, _ = inputs(
        text.replace(b'"outputs"', b'"inputs"'), infos(x="DT_FLOAT")
    )
    np.testing.assert_array_equal(returned["x"], array)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text('aä\U0001f600\\"=', max_size=5),
    lambda values: (
        st.lists(values, max_size=4)
        | st.dictionaries(
            st.sampled_from(["b64", "question", "title", "score"]), values
        )
    ),
)


@settings(
    deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.dictionaries(st.sampled_from(["instances", "inputs"]), _JSON))
def test_any_json_is_read_or_refused(document):
    body = json.dumps(document)
    for expected in (QUESTION, BLOCK):
        try:
            tensors, _ = inputs(body, expected)
        except RequestError as error:
            assert error.code.name == "INVALID_ARGUMENT"
            continue
        assert set(tensors) == set(expected)


@settings(deadline=None, database=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body):
    try:
        assert isinstance(rest_json.parse(body), dict)
    except RequestError as error:
        assert error.code.name == "INVALID_ARGUMENT"
