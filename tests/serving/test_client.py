import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

from serving import server
from serving.client import OUTPUTS
from serving.client import Alternative
from serving.client import RealmClient
from serving.client import RealmServerError
from serving.client import to_answers

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def client(running):
    with RealmClient(running.target, timeout_seconds=10) as client:
        yield client


def test_an_answer_with_its_evidence(client, rows):
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
    np.testing.assert_allclose(first.probability, np.exp(-0.5), rtol=1e-12)


def test_offsets_count_code_points(client):
    (answer,) = client.ask(["where is the Eiffel tower?"])
    assert answer.text.startswith("Café")
    assert answer.text[answer.start : answer.limit] == "Paris"


def test_batches_and_empty_questions(client):
    assert client.ask([]) == []
    (empty,) = client.ask([""])
    assert (empty.answer, empty.block_id, empty.score) == ("", -1, 0.0)
    assert empty.candidates == () and empty.nbest == ()
    answers = client.ask(["who wrote Frankenstein?", "\ud800"] * 32)
    assert [a.answer for a in answers] == ["Mary Shelley", ""] * 32


def test_a_single_string_is_refused(client):
    with pytest.raises(TypeError, match="must be a list of str"):
        client.ask("who?")


def test_metadata(client):
    metadata = client.metadata()
    assert metadata["model"] == "realm"
    assert metadata["version"] == 2
    default = metadata["signatures"]["serving_default"]
    assert default["inputs"] == {"question": {"dtype": "string", "shape": [-1]}}
    assert default["outputs"]["candidate_log_prob"] == {
        "dtype": "float32",
        "shape": [-1, 3],
    }
    assert set(default["outputs"]) == set(OUTPUTS)


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
            RealmClient(target, timeout_seconds=5) as client,
            pytest.raises(RealmServerError) as caught,
        ):
            client.ask(["x"])
    assert caught.value.code == "UNAVAILABLE"
    assert f"No server answers at {target}" in str(caught.value)
    assert "realm serve --saved-model DIR" in str(caught.value)
    with pytest.raises(ValueError, match="`timeout_seconds` must be positive"):
        RealmClient(target, timeout_seconds=0)


def test_a_slow_server_is_given_up(fake_servable):
    with (
        server.start_services({"realm": {1: fake_servable}}) as running,
        RealmClient(running.target, timeout_seconds=0.2) as client,
    ):
        with pytest.raises(RealmServerError, match="within 0.2 s") as caught:
            client.ask(["x"])
        assert caught.value.code == "DEADLINE_EXCEEDED"
        fake_servable.let_go.set()


def outputs(**changes):
    """The columns of one answer."""
    values = {
        name: [[0]] if name.startswith(("nbest", "candidate")) else [0]
        for name in OUTPUTS
    }
    return {**values, **changes}


def test_outputs_that_are_none():
    broken = outputs()
    del broken["url"], broken["candidate_title"]
    with pytest.raises(
        RealmServerError, match="url, candidate_title"
    ) as caught:
        to_answers(broken, count=1)
    assert caught.value.code == "UNEXPECTED_RESPONSE"
    with pytest.raises(RealmServerError, match="for 2 questions"):
        to_answers(outputs(), count=2)
    with pytest.raises(RealmServerError, match="rows for 1 questions"):
        to_answers(outputs(score=[1.0, 2.0]), count=1)
    with pytest.raises(RealmServerError, match="of different lengths"):
        to_answers(outputs(candidate_answer=[[0, 0]]), count=1)


# Runs where TensorFlow cannot be imported.
SCRIPT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocker())
from serving.client import RealmClient
with RealmClient({target!r}) as client:
    print(client.metadata()["version"])
    print(client.ask(["who wrote Frankenstein?"])[0].answer)
"""


def test_needs_no_tensorflow(running):
    blocked = (
        "tensorflow",
        "tensorflow_serving",
        "keras",
        "numpy",
        "realm_tf",
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
    assert done.stdout == "2\nMary Shelley\n", done.stderr
