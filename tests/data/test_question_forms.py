import json

import pytest

from realm_tf.data.question_sets import parse_descriptions
from realm_tf.data.question_sets import read
from realm_tf.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write(content, name="set.json"):
        if not isinstance(content, str):
            content = json.dumps(content)
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return str(path)

    return write


def _lines(*objects):
    return "".join(f"{json.dumps(each)}\n" for each in objects)


def _read(path, form):
    return [line for _, line in read(path, form)]


def test_nq_open(write):
    line = {
        "question": "how many",
        "def_correct_predictions": ["53"],
        "poss_correct_predictions": ["54"],
        "answer": ["53 players"],
        "answer_and_def_correct_predictions": ["53 players", "53"],
    }
    path = write(_lines(line))
    expected = {"question": "how many", "answer": ["53 players"]}
    assert _read(path, "nq-open") == [expected]
    expected["answer"].append("53")
    assert _read(path, "efficientqa") == [expected]
    path = write(_lines(line, {"question": "who", "answer": ["x"]}))
    with pytest.raises(InputError, match="line 2 .* answer_and_def_correct_p"):
        _read(path, "efficientqa")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("(list)", []),
        (" (list (description X))\n", ["X"]),
        ("(list(description X)(description Y))", ["X", "Y"]),
        (r'(list (description "a \"b\" (c) \\ d"))', ['a "b" (c) \\ d']),
        ('(list (description "("))', ["("]),
        ('(list (description ""))', [""]),
        (r'(list (description "a\nb"))', ["a\nb"]),
        ("(list (description Zoë's))", ["Zoë's"]),
    ],
)
def test_descriptions(text, expected):
    assert parse_descriptions(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "list", "(list", "()", "(list (description))"),
        *("(list (number 5))", "(list X)", "(list (description X Y))"),
        *("(list (description X)) Y", '(list (description "X))'),
        *("(list (description (X)))", "(set (description X))"),
        *("(list (description X)", '("(" (description X))'),
    ],
)
def test_other_values_are_refused(text):
    with pytest.raises(ValueError):
        parse_descriptions(text)


def test_curatedtrec_tsv(write):
    path = write(
        "1669\tfactoid\tHow tall? \t20\\s?,?\\s?(32|40)0|6 \n"
        "\n"
        "17\tfactoid\tWho?\t(broken\r\n"
    )
    assert _read(path, "curatedtrec") == [
        {
            "question": "How tall? ",
            # A pattern's spaces count.
            "answer": ["20\\s?,?\\s?(32|40)0|6 "],
            "answer_type": "regex",
            "id": "1669",
        },
        {
            "question": "Who?",
            "answer": ["(broken"],
            "answer_type": "regex",
            "id": "17",
        },
    ]


CONTEXT = "Ada was in London. She wrote, with St. Ives, numbers.  Bach was not."


def _answer(text, start=None):
    start = CONTEXT.index(text) if start is None else start
    return {"text": text, "answer_start": start}


def _squad(*questions):
    return {
        "version": "v2.0",
        "data": [
            {
                "title": "Ada_L%C3%B6we",
                "paragraphs": [{"context": CONTEXT, "qas": list(questions)}],
            }
        ],
    }


def _question(*answers, **more):
    return {"id": "q7", "question": "who?", "answers": list(answers), **more}


def test_squad(write):
    path = write(
        _squad(
            _question(_answer("London"), _answer("London")),
            _question(_answer("Ives"), _answer("Ada"), is_impossible=False),
            _question(_answer("Ives, numbers.  Bach")),
            _question(_answer("Bach was not.")),
            _question(_answer("London", 4)),
            _question(is_impossible=True, plausible_answers=[_answer("Ada")]),
        )
    )
    lines = _read(path, "squad")
    assert [line["answer"] for line in lines] == [
        ["London", "London"],
        ["Ives", "Ada"],
        ["Ives, numbers.  Bach"],
        ["Bach was not."],
        ["London"],
        [],
    ]
    sentences = [line.get("evidence", {}).get("sentence") for line in lines]
    assert sentences == [
        "Ada was in London.",
        "She wrote, with St. Ives, numbers.",
        "She wrote, with St. Ives, numbers.  Bach was not.",
        "Bach was not.",
        # Not where the file says: nothing is claimed.
        None,
        None,
    ]
    assert lines[0]["evidence"]["title"] == "Ada Löwe"
    assert lines[0]["id"] == "q7"


@pytest.mark.parametrize(
    "form, row, expected",
    [
        (
            "webquestions",
            {
                "url": "http://x",
                "targetValue": '(list (description "Jaxon B.") '
                "(description Barbados))",
                "utterance": "who?",
            },
            {"answer": ["Jaxon B.", "Barbados"]},
        ),
        # As brmson has them.
        (
            "webquestions",
            {"qId": "wqr1", "qText": "who?", "answers": ["Ada", "Bach"]},
            {"answer": ["Ada", "Bach"]},
        ),
        (
            "curatedtrec",
            {"qId": "wqr1", "qText": "who?", "answers": ["Ada", "Bach"]},
            {"answer": ["Ada", "Bach"], "answer_type": "regex"},
        ),
        # As DrQA has them.
        (
            "curatedtrec",
            {"question": "who?", "answer": ["A.a"]},
            {"answer": ["A.a"], "answer_type": "regex"},
        ),
        (
            "kilt",
            {
                "id": "k1",
                "input": "who?",
                "output": [
                    {"answer": "Ada", "provenance": [{"title": "Ada"}]},
                    {"provenance": [{"title": "Bach"}, {"title": "Ada"}]},
                    {"answer": "Ada L."},
                ],
            },
            {"answer": ["Ada", "Ada L."], "id": "k1"},
        ),
        (
            "flashrag",
            {
                "id": "t_0",
                "question": "who?",
                "golden_answers": ["x", "y"],
                "metadata": {"split": "test"},
            },
            {"answer": ["x", "y"], "id": "t_0"},
        ),
    ],
)
@pytest.mark.parametrize("lines", [True, False])
def test_other_forms(write, form, row, expected, lines):
    path = write(_lines(row) if lines else [row])
    assert _read(path, form) == [{"question": "who?", **expected}]


@pytest.mark.parametrize(
    "form, content, place, reason",
    [
        ("squad", [], "", "expected question and answers"),
        ("squad", {"data": [{"title": "x"}]}, "article 1", "'paragraphs'"),
        ("squad", _squad(_question({})), "article 1", "'text'"),
        ("webquestions", [17], "entry 1", "expected utterance or qText and"),
        ("webquestions", "[", "", "JSONDecodeError"),
        ("curatedtrec", "1\tfactoid\twho\n", "line 1", "question or qText"),
        ("curatedtrec", "1\ta\tb\tc\n1\ta\tb\tc\td\n", "line 2", "qText"),
        ("jsonl", "{\n", "line 1", "expected question and answer"),
        ("kilt", _lines({"input": "x"}), "line 1", "expected input and out"),
    ],
)
def test_other_files_are_refused(write, form, content, place, reason):
    path = write(content)
    with pytest.raises(InputError, match=f"set.json.*{place}") as caught:
        _read(path, form)
    assert reason in str(caught.value)
