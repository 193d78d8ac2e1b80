"""Fields of documents, as a filter of a search compares them."""

import datetime
import decimal
import json

import pyarrow
import pyarrow.parquet
import pytest

from realm_tf.articles import collecting
from realm_tf.articles.collecting import fields_of
from realm_tf.articles.sources import Source

NAMES = ("source", "date", "tags", "language")


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("a", ["a"]),
        ("  two\n words\t", ["two words"]),
        (["b", "a", " b ", None, "", 3], ["b", "a", "3"]),
        (3, ["3"]),
        (decimal.Decimal("1.50"), ["1.50"]),
        (True, ["true"]),
        (datetime.date(2024, 5, 1), ["2024-05-01"]),
        (datetime.datetime(2024, 5, 1, 9, 30), ["2024-05-01T09:30:00"]),
        # What UTF-8 cannot hold.
        ("a\ud800", ["a\ufffd"]),
    ],
)
def test_a_value_as_text(value, texts, capsys):
    assert fields_of({"x": value}, ("x",), "here") == {"x": texts}
    assert not capsys.readouterr().err


@pytest.mark.parametrize("value", [None, "", " \n", [], [None, ""]])
def test_what_is_empty_is_no_value(value, capsys):
    assert fields_of({"x": value}, ("x",), "here") == {}
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": "b"}, "x {'a': 'b'}:"),
        ([["b"]], "x ['b']:"),
        (b"b", "x b'b':"),
        ("a;b", "x 'a;b':"),
        ([" a|", {}], "x ' a|', x {}:"),
    ],
)
def test_what_no_filter_can_name_is_left_out_alone(value, shown, capsys):
    values = value if isinstance(value, list) else [value]
    found = fields_of({"x": [*values, "c"], "y": "d"}, ("x", "y"), "a.md:3")
    assert found == {"x": ["c"], "y": ["d"]}
    assert fields_of({"x": value}, ("x",), "a.md:3") == {}
    first, second = capsys.readouterr().err.splitlines()
    assert first == second
    assert first.startswith(
        f"warning: a.md:3: left out of its fields: {shown} expected text"
    )


def _collect(path, names=NAMES):
    """Id to fields of the documents of a file or folder."""
    return {name: row["fields"] for name, row in _rows(path, names).items()}


def _rows(path, names):
    return collecting.collect(Source.of(str(path)), fields=names).rows


def _fields(path, names=NAMES):
    """Those of the only document."""
    (found,) = _collect(path, names).values()
    return found


ARTICLE = {"id": "1", "title": "T", "text": "A text.", "url": "u"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, {}),
        (
            {"source": "hr", "tags": ["a", "b"], "other": 1},
            {"source": ["hr"], "tags": ["a", "b"]},
        ),
        ({"fields": {"source": "hr", "x": {}}}, {"source": ["hr"]}),
        # What the row itself says comes first, even that there is none.
        (
            {"source": "it", "date": None, "fields": {"source": 1, "date": 2}},
            {"source": ["it"]},
        ),
        ({"fields": "none", "tags": "a"}, {"tags": ["a"]}),
    ],
)
def test_of_json_lines(tmp_path, row, expected):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(ARTICLE | row))
    assert _fields(path) == expected


def test_of_csv(tmp_path):
    path = tmp_path / "articles.csv"
    path.write_text("id,title,text,date,tags\n1,T,A text.,2024-05-01, a \n")
    assert _fields(path) == {"date": ["2024-05-01"], "tags": ["a"]}
    path = tmp_path / "rooms.csv"
    path.write_text("title,language\nOslo,no\nRome,\n")
    rows = _rows(path, (*NAMES, "title"))
    assert [(row["text"], row["fields"]) for row in rows.values()] == [
        ("title: Oslo; language: no.", {"language": ["no"], "title": ["Oslo"]}),
        ("title: Rome.", {"title": ["Rome"]}),
    ]


DAY = datetime.date(2024, 5, 1)
TIME = datetime.datetime(2024, 5, 1, 9, 30)


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (["a"], ["a"]),
        ([7], ["7"]),
        ([True], ["true"]),
        ([DAY], ["2024-05-01"]),
        ([TIME], ["2024-05-01T09:30:00"]),
        (
            pyarrow.array([TIME], pyarrow.timestamp("ns")),
            ["2024-05-01T09:30:00"],
        ),
        ([["a", "b"]], ["a", "b"]),
        # Not read: embeddings, images, what is nested.
        ([[0.5, 1.0]], None),
        ([b"a"], None),
        ([{"a": "b"}], None),
        ([[["a"]]], None),
    ],
)
def test_of_parquet(tmp_path, column, texts, capsys):
    path = str(tmp_path / "a.parquet")
    article = {name: [value] for name, value in ARTICLE.items()}
    table = pyarrow.table(article | {"x": column, "y": ["b"]})
    pyarrow.parquet.write_table(table, path)
    expected = {"x": texts, "y": ["b"]} if texts else {"y": ["b"]}
    assert _fields(path, ("x", "y")) == expected
    assert not capsys.readouterr().err


def test_of_markdown_all_sections(tmp_path):
    (tmp_path / "a.md").write_text(
        "---\ndate: 2024-05-01\ntags: [no, 01067, 1.10, 12:30, true]\nx: ~\n"
        "source: {a: b}\n---\n# A\nOne.\n## B\nTwo.\n"
    )
    expected = {
        "date": ["2024-05-01"],
        "tags": ["no", "01067", "1.10", "12:30", "true"],
    }
    assert _collect(tmp_path / "a.md", ("date", "tags", "x")) == {
        "a.md": expected,
        "a.md#B": expected,
    }


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (
            '<meta name="source" content=" HR "><meta content="x">'
            '<meta name="date"><meta charset="utf-8">',
            {"source": ["HR"]},
        ),
        ('<meta property="date" content="2024">', {"date": ["2024"]}),
        (
            '<meta name="tags" content="a, b"><meta name="tags" content="c">'
            '<meta name="tags" property="tags" content="d">',
            {"tags": ["a, b", "c", "d"]},
        ),
        (
            '<meta name="tags" property="source" content="e">',
            {"tags": ["e"], "source": ["e"]},
        ),
        ("", {}),
    ],
)
def test_of_html(tmp_path, head, expected):
    path = tmp_path / "a.html"
    path.write_text(
        f"<html><head>{head}</head><h1>A</h1>One.<h2>B</h2>Two.</html>"
    )
    assert _collect(path) == {"a.html": expected, "a.html#B": expected}
