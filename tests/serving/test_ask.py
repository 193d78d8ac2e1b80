import json
import shutil
import subprocess
import sys

import pytest

from realm_tf import cli
from realm_tf.operations import ask as ask_module
from realm_tf.operations.ask import Ask
from realm_tf.serving.client import RealmClient
from realm_tf.serving.servable import SavedModelServable

QUESTION = "Who wrote Frankenstein?"


@pytest.fixture(params=["--server", "--saved-model"])
def where(request, running, saved_model):
    """The option that says who answers, and its value."""
    servers = {"--server": running.target, "--saved-model": saved_model}
    return request.param, servers[request.param]


@pytest.fixture(scope="module")
def model(saved_model):
    with SavedModelServable(saved_model) as model:
        yield model


def fails(capsys, *arguments):
    """The line a bad command ends with."""
    assert cli.main(["ask", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_local_model_answers_as_the_server(model, running):
    questions = [QUESTION, "", "where is the Eiffel Tower?", "\ud800"]
    with RealmClient(running.target) as client:
        assert model.ask(questions) == client.ask(questions)
    assert model.ask([]) == []
    answers = Ask(question=(QUESTION,), server=running.target).run()
    assert answers[0].answer.answer == "Mary Shelley"


def test_ask_prints_the_answer(where, capsys):
    assert cli.main(["ask", *where, QUESTION, "where?"]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[:2] == [
        f"Q: {QUESTION}",
        "A: Mary Shelley   (score 112.50, confidence 0.75)",
    ]
    assert "   It was written by [[Mary Shelley]] “in” 1818." in lines
    assert "   0.3679  London (block 2): London" in lines
    assert lines[-4:] == ["Q: where?", "A: (no answer)", "", ""]


_PROCESS = """
import sys
from realm_tf import cli

assert cli.main(["ask", *sys.argv[1:]]) == 0
if sys.argv[1] == "--saved-model":
    import realm_tf.serving.server
print({"tensorflow", "keras", "numpy"} & set(sys.modules))
"""


def test_asking_and_serving_import_no_tensorflow(where):
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS, *where, QUESTION],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "A: Mary Shelley" in done.stdout
    imported = {"--server": "set()", "--saved-model": "{'numpy'}"}[where[0]]
    assert done.stdout.endswith(f"\n{imported}\n")
    # Nor does TensorFlow's log reach the terminal.
    assert done.stderr == ""


def test_file_is_answered(where, rows, tmp_path, capsys):
    questions, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    records = [
        {"question": QUESTION, "answer": ["Mary Shelley"], "note": "é\u2028"},
        *[{"question": "?", "id": i} for i in range(30)],
        # As BEIR names them.
        {"text": "where is the Eiffel Tower?", "_id": "q"},
    ]
    questions.write_text(
        "\n\n".join(json.dumps(r, ensure_ascii=False) for r in records) + "\n"
    )
    arguments = ["--questions", str(questions), "--output", str(output)]
    assert cli.main(["ask", *where, *arguments]) == 0
    assert capsys.readouterr().out == f"{output}: 32 questions answered\n"
    lines = [json.loads(line) for line in output.read_text().split("\n")[:-1]]
    assert lines[0] == {
        **records[0],
        "prediction": "Mary Shelley",
        "score": 112.5,
        "confidence": 0.75,
        "answered": True,
        "block_id": 7,
        "title": "Frankenstein",
        "text": rows["text"][0],
        "url": "https://example.org/frankenstein",
        "answer_sentence": rows["answer_sentence"][0],
        "is_sentence": False,
    }
    assert [line["prediction"] for line in lines[1:31]] == [""] * 30
    assert lines[30]["id"] == 29
    assert lines[31]["text"] == rows["text"][1]
    # Nothing is overwritten.
    assert "exists already" in fails(capsys, *where, *arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "Expected either a question or --questions FILE"),
        (["q", "--questions", "f", "--output", "g"], "Expected either"),
        (
            ["--questions", __file__, "--output", "{absent}/out"],
            "directory {absent} does not exist",
        ),
        (
            ["--questions", "{absent}", "--output", "{absent}.jsonl"],
            "{absent} does not exist",
        ),
        (["--questions", "f"], "--output FILE go together"),
        (["q", "--output", "f"], "--output FILE go together"),
        (["q", "--server", "nohost"], "'nohost' is not an address"),
        (["q", "--server", "host:x"], "expected HOST:PORT"),
        (["q", "--saved-model", "{absent}"], "{absent} does not exist"),
        (
            ["q", "--saved-model", "{absent}", "--server", "a:1"],
            "--server is not for",
        ),
        (
            ["q", "--saved-model", "{absent}", "--tls-client", "a", "b"],
            "--tls-client is not for --saved-model",
        ),
        (["q", "--tls-ca", "{absent}"], "{absent} cannot be used for TLS"),
        (
            ["q", "--api-key-file", "{absent}"],
            "--api-key-file {absent} cannot be",
        ),
        (["q", "--api-key-file", "/dev/null"], "holds no key"),
    ],
)
def test_bad_arguments(arguments, message, capsys, tmp_path):
    absent = str(tmp_path / "absent")
    arguments = [each.format(absent=absent) for each in arguments]
    assert message.format(absent=absent) in fails(capsys, *arguments)


def test_interrupted_between_two_requests_it_leaves_nothing(
    running, tmp_path, capsys, monkeypatch
):
    asked = []

    class Interrupted(RealmClient):
        def ask(self, questions, *, filter=""):
            asked.append(len(questions))
            if len(asked) == 3:
                raise KeyboardInterrupt
            return super().ask(questions, filter=filter)

    monkeypatch.setattr(ask_module, "RealmClient", Interrupted)
    questions, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    questions.write_text('{"question": "x"}\n' * 100)
    arguments = ["--questions", str(questions), "--output", str(output)]
    assert cli.main(["ask", "--server", running.target, *arguments]) == 130
    assert asked == [16, 16, 16]
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    assert "interrupted" in capsys.readouterr().err


def test_the_terms_of_the_evidence_are_shown(saved_model, tmp_path, capsys):
    model = tmp_path / "model" / "5"
    shutil.copytree(f"{saved_model}/2", model)
    (model / "assets.extra").mkdir()
    card = {"evidence_license": "CC BY-SA 4.0", "files": {}}
    (model / "assets.extra" / "card.json").write_text(json.dumps(card))
    where = ["--saved-model", str(model.parent), QUESTION]
    assert cli.main(["ask", *where]) == 0
    assert "   Evidence: CC BY-SA 4.0\n" in capsys.readouterr().out
