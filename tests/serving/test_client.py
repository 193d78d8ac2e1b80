import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

from realm_tf.answering.answer import Alternative
from realm_tf.serving.client import ModelVersionStatus
from realm_tf.serving.client import RealmClient
from realm_tf.serving.client import RealmServerError

ROOT = pathlib.Path(__file__).parents[2]


def test_an_answer_with_its_evidence(running, rows):
    with RealmClient(running.target) as client:
        (answer,) = client.ask(["Who wrote Frankenstein?"])
    assert answer.answer == "Mary Shelley"
    assert answer.score == 112.5
    assert answer.confidence == 0.75
    assert answer.block_id == 7
    assert answer.title == "Frankenstein"
    assert answer.text == rows["text"][0]
    assert answer.url == "https://example.org/frankenstein"
    assert answer.text[answer.start : answer.limit] == "Mary Shelley"
    assert answer.nbest == (
        Alternative("Mary Shelley", 12.5),
        Alternative("1818", 3.0),
    )
    # The padded candidate is left out.
    assert [c.block_id for c in answer.candidates] == [7, 2]
    first, second = answer.candidates
    assert (first.title, first.answer) == ("Frankenstein", "Mary Shelley")
    assert (second.text, second.log_prob) == ("London is large.", -1.0)
    assert (first.url, second.url) == ("https://example.org/frankenstein", "")
    np.testing.assert_allclose(first.probability, np.exp(-0.5), rtol=1e-12)


def test_batches_and_empty_questions(running):
    with RealmClient(running.target) as client:
        assert client.ask([]) == []
        (empty,) = client.ask([""])
        answers = client.ask(["who wrote Frankenstein?", "\ud800"] * 32)
        with pytest.raises(TypeError, match="must be a list of str"):
            client.ask("who?")
    assert (empty.answer, empty.block_id, empty.score) == ("", -1, 0.0)
    assert empty.candidates == () and empty.nbest == ()
    assert [a.answer for a in answers] == ["Mary Shelley", ""] * 32


def test_status(running):
    with RealmClient(running.target) as client:
        statuses = client.status()
    assert statuses == [ModelVersionStatus(2, "AVAILABLE", "OK", "")]


def test_errors_name_the_server_and_the_way_out(running):
    with RealmClient(running.target, model="other") as client:
        with pytest.raises(
            RealmServerError, match=r"Latest\(other\)"
        ) as caught:
            client.ask(["x"])
        assert caught.value.code == "NOT_FOUND"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{unused.getsockname()[1]}"
        with (
            RealmClient(target, timeout_seconds=5, max_attempts=2) as client,
            pytest.raises(RealmServerError) as caught,
        ):
            client.ask(["x"])
    assert caught.value.code == "UNAVAILABLE"
    assert f"No server answers at {target} (Connection refused)" in str(
        caught.value
    )
    assert "realm serve --saved-model DIR" in str(caught.value)


# Runs where TensorFlow cannot be imported.
SCRIPT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocker())
from realm_tf.serving.client import RealmClient
with RealmClient({target!r}) as client:
    print(client.status()[0].state)
    print(client.ask(["who wrote Frankenstein?"])[0].answer)
    print(client.status()[0].version)
    print(client.ask(["where is the Eiffel Tower?"])[0].answer)
ours = (name for name in sys.modules if name.startswith("realm_tf."))
print(*sorted(name.partition("realm_tf.")[2] for name in ours))
"""


def test_needs_no_tensorflow(running):
    blocked = (
        "tensorflow",
        "tensorflow_serving",
        "keras",
        "numpy",
        "rich",
    )
    script = SCRIPT.format(blocked=blocked, target=running.target)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = done.stdout.splitlines()
    answers = ["AVAILABLE", "Mary Shelley", "2", "Paris"]
    assert lines[:-1] == answers, done.stderr
    assert set(lines[-1].split()) == {
        "answering",
        "answering.answer",
        "errors",
        "export",
        "export.signatures",
        "serving",
        "serving.client",
        "version",
    }
