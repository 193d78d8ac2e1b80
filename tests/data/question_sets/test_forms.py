import json

import pytest

from realm_tf.data.question_sets.forms import parse_descriptions
from realm_tf.data.question_sets.forms import read_curatedtrec
from realm_tf.data.question_sets.forms import read_flashrag
from realm_tf.data.question_sets.forms import read_jsonl
from realm_tf.data.question_sets.forms import read_kilt
from realm_tf.data.question_sets.forms import read_nq_open
from realm_tf.data.question_sets.forms import read_squad
from realm_tf.data.question_sets.forms import read_webquestions
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


def _content(entries):
    return [
        (e.question, e.answers, e.answer_type, e.extra, e.dropped)
        for e in entries
    ]


def test_jsonl(write):
    path = write(
        _lines(
            {"question": "a ", "answer": ["x"], "evidence": None, "id": 1},
            {"question": "b", "answers": ["x", "y"]},
            {"question": "c", "answer": "x", "answer_type": "regex"},
            {"question": "d"},
        )
    )
    assert _content(read_jsonl(path)) == [
        ("a ", ["x"], "string", {"evidence": None, "id": 1}, ""),
        ("b", ["x", "y"], "string", {}, ""),
        ("c", ["x"], "regex", {}, ""),
        ("d", [], "string", {}, ""),
    ]


def test_nq_open(write):
    efficientqa = {
        "question": "how many",
        "def_correct_predictions": ["53"],
        "poss_correct_predictions": ["54"],
        "answer": ["53 players"],
        "answer_and_def_correct_predictions": ["53 players", "53"],
    }
    path = write(_lines(efficientqa))
    assert _content(read_nq_open(path)) == [
        ("how many", ["53 players"], "string", {}, "")
    ]
    field = "answer_and_def_correct_predictions"
    (entry,) = read_nq_open(path, answer_field=field)
    assert (entry.answers, entry.extra) == (["53 players", "53"], {})
    path = write(_lines(efficientqa, {"question": "who", "answer": ["x"]}))
    with pytest.raises(InputError, match="question 2 .* leave out --answer-f"):
        list(read_nq_open(path, answer_field=field))


def test_webquestions_as_published(write):
    path = write(
        [
            {
                "url": "http://x",
                "targetValue": '(list (description "Jaxon B.") '
                "(description Barbados))",
                "utterance": "who is it?",
            }
        ]
    )
    assert _content(read_webquestions(path)) == [
        ("who is it?", ["Jaxon B.", "Barbados"], "string", {}, "")
    ]


def test_brmson_s_json(write):
    items = [{"qId": "wqr1", "qText": "who?", "answers": ["Ada", "Bach"]}]
    path = write(items)
    expected = ("who?", ["Ada", "Bach"], "string", {"id": "wqr1"}, "")
    assert _content(read_webquestions(path)) == [expected]
    (entry,) = read_curatedtrec(path)
    assert (entry.answer_type, entry.answers) == ("regex", ["Ada", "Bach"])


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
    assert _content(read_curatedtrec(path)) == [
        # A pattern's spaces count.
        (
            "How tall? ",
            ["20\\s?,?\\s?(32|40)0|6 "],
            "regex",
            {"id": "1669"},
            "",
        ),
        ("Who?", ["(broken"], "regex", {"id": "17"}, ""),
    ]


def test_drqa_s_curatedtrec(write):
    path = write(_lines({"question": "Who?", "answer": ["A.a"]}))
    assert _content(read_curatedtrec(path)) == [
        ("Who?", ["A.a"], "regex", {}, "")
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
    entries = list(read_squad(path))
    assert [entry.answers for entry in entries] == [
        ["London", "London"],
        ["Ives", "Ada"],
        ["Ives, numbers.  Bach"],
        ["Bach was not."],
        ["London"],
        [],
    ]
    assert [entry.dropped for entry in entries] == [*[""] * 5, "impossible"]
    sentences = [
        entry.extra.get("evidence", {}).get("sentence") for entry in entries
    ]
    assert sentences == [
        "Ada was in London.",
        "She wrote, with St. Ives, numbers.",
        "She wrote, with St. Ives, numbers.  Bach was not.",
        "Bach was not.",
        # Not where the file says: nothing is claimed.
        None,
        None,
    ]
    assert entries[0].extra["evidence"]["title"] == "Ada Löwe"
    assert entries[0].extra["id"] == "q7"


def test_kilt(write):
    path = write(
        _lines(
            {
                "id": "k1",
                "input": "who sang it",
                "output": [
                    {"answer": "Ada", "provenance": [{"title": "Ada"}]},
                    {"provenance": [{"title": "Bach"}, {"title": "Ada"}]},
                    {"answer": "Ada L."},
                ],
            }
        )
    )
    extra = {"id": "k1", "titles": ["Ada", "Bach"]}
    assert _content(read_kilt(path)) == [
        ("who sang it", ["Ada", "Ada L."], "string", extra, "")
    ]


def test_flashrag(write):
    line = {"id": "t_0", "question": "who", "golden_answers": ["x", "y"]}
    path = write(_lines({**line, "metadata": {"split": "test"}}))
    assert _content(read_flashrag(path)) == [
        ("who", ["x", "y"], "string", {"id": "t_0"}, "")
    ]


@pytest.mark.parametrize(
    "read, content, place, reason",
    [
        (read_squad, [], "", "expected a document of SQuAD"),
        (read_squad, {"data": [{"title": "x"}]}, "article 1", "'paragraphs'"),
        (read_squad, _squad(_question({})), "article 1", "'text'"),
        (read_squad, "{", "", "expected a document of SQuAD"),
        (read_webquestions, 17, "", "expected an array of"),
        (read_webquestions, [{"utterance": "x"}], "entry 1", "'targetValue'"),
        (read_webquestions, [{"answers": ["x"]}], "entry 1", "'qText'"),
        (read_webquestions, _lines({}, {}), "", "JSONDecodeError"),
        (read_curatedtrec, "1\tfactoid\twho\n", "line 1", "id, type, quest"),
        (read_curatedtrec, "1\ta\tb\tc\n1\ta\tb\tc\td\n", "line 2", "id, ty"),
        (read_curatedtrec, "{\n", "line 1", "is not JSON"),
        (read_jsonl, _lines({"answer": ["x"]}), "line 1", 'lacks "question"'),
        (read_kilt, _lines({"input": "x"}), "line 1", '"input" and "output"'),
        (read_flashrag, _lines({"id": 1}), "line 1", '"golden_answers"'),
    ],
)
def test_other_files_are_refused(write, read, content, place, reason):
    path = write(content)
    with pytest.raises(InputError, match=f"set.json.*{place}") as caught:
        list(read(path))
    assert reason in str(caught.value)
