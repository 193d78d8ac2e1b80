import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from realm_tf.answering.answer import Alternative
from realm_tf.serving import server
from realm_tf.serving.answers import ModelVersionStatus
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


def test_offsets_count_code_points(running):
    with RealmClient(running.target) as client:
        (answer,) = client.ask(["where is the Eiffel tower?"])
    assert answer.text.startswith("Café")
    assert answer.text[answer.start : answer.limit] == "Paris"


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


VECTORS = np.array([[1, 0], [0, 2], [3, 3], [-1, 0]], np.float32)
TITLES = ["One", "Two", "Three", "Four"]


class SearchModule(tf.Module):
    """A question is embedded as its length and 1; an empty one finds none."""

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="question")]
    )
    def embed_query(self, question):
        length = tf.cast(tf.strings.length(question), tf.float32)
        return {"embedding": tf.stack([length, tf.ones_like(length)], axis=1)}

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string, name="question")]
    )
    def retrieve(self, question):
        scores = tf.matmul(
            self.embed_query(question)["embedding"], VECTORS, transpose_b=True
        )
        best, ids = tf.math.top_k(scores, 3)
        asked = tf.strings.length(question)[:, None] > 0
        ids = tf.where(asked, ids, -1)
        titles = tf.gather(tf.constant(["", *TITLES]), ids + 1)
        return {
            "block_id": tf.cast(ids, tf.int64),
            "score": tf.where(asked, best, 0.0),
            "title": titles,
            "text": tf.strings.upper(titles),
            "url": tf.strings.lower(titles),
        }


@pytest.fixture(scope="module")
def search_server(tmp_path_factory):
    module = SearchModule()
    base = tmp_path_factory.mktemp("search")
    tf.saved_model.save(
        module,
        str(base / "1"),
        signatures={
            "embed_query": module.embed_query,
            "retrieve": module.retrieve,
        },
    )
    with server.start(str(base), no_rest=True) as running:
        yield running


def test_retrieved_blocks_and_embeddings(search_server):
    questions = ["abc", "", "x" * 20]
    with RealmClient(search_server.target) as client:
        retrieved = client.retrieve(questions)
        embeddings = client.embed(questions)
        with pytest.raises(RealmServerError, match="serving_default"):
            client.ask(questions)
    expected = np.array([[3, 1], [0, 1], [20, 1]], np.float32)
    assert embeddings == expected.tolist()
    scores = expected @ VECTORS.T
    for row in (0, 2):
        order = np.argsort(-scores[row])[:3]
        assert [b.block_id for b in retrieved[row]] == order.tolist()
        assert [b.score for b in retrieved[row]] == scores[row][order].tolist()
        assert [b.title for b in retrieved[row]] == [TITLES[i] for i in order]
        assert retrieved[row][0].text == TITLES[order[0]].upper()
        assert retrieved[row][0].url == TITLES[order[0]].lower()
    assert retrieved[1] == []


def test_metadata_and_status(running, rows):
    with RealmClient(running.target) as client:
        metadata = client.metadata()
        statuses = client.status()
    assert metadata["model"] == "realm"
    assert metadata["version"] == 2
    default = metadata["signatures"]["serving_default"]
    assert default["inputs"] == {"question": {"dtype": "string", "shape": [-1]}}
    assert default["outputs"]["candidate_log_prob"] == {
        "dtype": "float32",
        "shape": [-1, 3],
    }
    assert set(default["outputs"]) == set(rows)
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
import asyncio
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocker())
from realm_tf.serving.client import AsyncRealmClient
from realm_tf.serving.client import RealmClient
with RealmClient({target!r}) as client:
    print(client.metadata()["version"], client.status()[0].state)
    print(client.ask(["who wrote Frankenstein?"])[0].answer)

async def main():
    async with AsyncRealmClient({target!r}) as client:
        print((await client.metadata())["version"])
        print((await client.ask(["where is the Eiffel Tower?"]))[0].answer)

asyncio.run(main())
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
    answers = ["2 AVAILABLE", "Mary Shelley", "2", "Paris"]
    assert lines[:-1] == answers, done.stderr
    parts = ("answers", "calls", "client", "connection", "messages")
    assert set(lines[-1].split()) == {
        "answering",
        "answering.answer",
        "errors",
        "serving",
        "version",
        *(f"serving.{part}" for part in parts),
    }
