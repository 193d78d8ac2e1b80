"""Filters in a graph."""

import re

import numpy as np
import pytest
import tensorflow as tf

from realm_tf.export.field_table import FieldTable

NAMES = ("language", "date", "pages", "tags", "price")
FIELDS = [
    {
        "language": ["de"],
        "date": ["2024-05-01T10:00:00"],
        "pages": ["3"],
        "tags": ["a", "b c"],
    },
    {
        "language": ["en"],
        "date": ["2023-12-31"],
        "pages": ["10"],
        "tags": ["b c"],
    },
    {"language": ["fr", "fr\u00e9"], "pages": ["-1.5"]},
    {},
]


@pytest.fixture(scope="module")
def table():
    """Its last row is of no document."""
    found = FieldTable(NAMES, [*FIELDS, *[{}] * (6 - len(FIELDS))])
    found.search = tf.function(found.allowed)
    return found


def _allowed(table, *filters):
    return table.search(tf.constant(filters)).numpy()


@pytest.mark.parametrize(
    "filter, rows",
    [
        ("", [0, 1, 2, 3, 4, 5]),
        (" ; ", [0, 1, 2, 3, 4, 5]),
        ("language=de", [0]),
        ("language=de|en", [0, 1]),
        (" language = de | en ;", [0, 1]),
        ("language!=de", [1, 2, 3, 4, 5]),
        ("language=nothing", []),
        ("tags=b c", [0, 1]),
        ("tags=b c;tags=a", [0]),
        ("tags=b c;tags!=a", [1]),
        ("date>=2024", [0]),
        ("date>2024", []),
        ("date<=2024", [0, 1]),
        ("date=2024", [0]),
        ("date=2024-05|2023", [0, 1]),
        ("date!=2023-12", [0, 2, 3, 4, 5]),
        ("date>2023-12", [0]),
        ("date=2024-05-01T10:00", [0]),
        ("date<2024-05-01T10:00:00", [1]),
        ("date>2024-05-01T09:59:59.5+02:00", [0]),
        ("date=2024-05-02", []),
        ("language=fre\u0301", [2]),
        ("date<=2024-05-01", [0, 1]),
        ("date<2024-05-01", [1]),
        ("date>2023-12-31", [0]),
        ("date=2023-12-31", [1]),
        ("pages>2", [0, 1]),
        ("pages<=3", [0, 2]),
        ("pages>=-1.5;pages<3.0", [2]),
        ("pages=10;language=de", []),
        ("language=de\n", [0]),
        ("\nlanguage=de;\r\ntags=a", [0]),
        ("language=de|\nen;\n", [0, 1]),
        ("\n", [0, 1, 2, 3, 4, 5]),
        ("tags=a|a|b c|a", [0, 1]),
        # Nobody has one.
        ("price>=3", []),
        ("price<2024-01-31", []),
        ("price!=3", [0, 1, 2, 3, 4, 5]),
        # Two numbers or two dates: others are not found.
        ("pages>2024-01-01", []),
        ("date>5.5", []),
        ("language>1", []),
    ],
)
def test_what_a_filter_lets_be_found(table, filter, rows):
    allowed = _allowed(table, "language=fr", filter, "")
    assert np.flatnonzero(allowed[1]).tolist() == rows
    # Each question has its own.
    assert np.flatnonzero(allowed[0]).tolist() == [2]
    assert allowed[2].all()


@pytest.mark.parametrize(
    "filter, message",
    [
        (
            "Language=de",
            "Language.*is no field of this corpus; expected one of",
        ),
        ("language", "language.*is no condition of a filter"),
        ("=de", "=de.*is no condition"),
        ("pages>x", "x.*cannot be compared by"),
        ("price>x", "x.*cannot be compared"),
        (b"language=de\xff", "is no condition"),
        (b"\xff", "is no condition"),
        (";".join(["tags=a"] * 33), "has more than 32 conditions"),
    ],
)
def test_what_is_no_filter_is_refused(table, filter, message):
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        _allowed(table, "", filter)
    assert re.search(message, caught.value.message, re.DOTALL)


@pytest.mark.parametrize(
    "values, filter, rows",
    [
        (["2024-05-01", "tbd", "2023-01-01"], "x>=2024", [0]),
        (["2024", "2023", "2022-06-01"], "x<2023-06-01", [1, 2]),
        (["3", "4", "many"], "x>3", [1]),
        # Years alone are numbers.
        (["2024", "2023"], "x>2023", [0]),
        (["3", "many"], "x>1", [0]),
    ],
)
def test_odd_values_leave_the_order_of_the_others(values, filter, rows):
    table = FieldTable(["x"], [{"x": [v]} for v in values])
    assert np.flatnonzero(_allowed_of(table, filter)[0]).tolist() == rows


def test_without_a_value(table):
    empty = FieldTable(["tags"], [{}, {}])
    assert _allowed_of(empty, "tags=a") == [[False, False]]
    assert _allowed_of(empty, "tags!=a") == [[True, True]]


def _allowed_of(table, *filters):
    return table.allowed(tf.constant(filters)).numpy().tolist()
