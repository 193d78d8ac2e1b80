"""Versions that differ in their blocks share a graph; their states are apart."""

import json
import shutil
import weakref
from concurrent import futures

import grpc
import numpy as np
import pytest
import tensorflow as tf
from file_gate import wait_for_file
from waiting import wait_for

from realm_tf.errors import InputError
from realm_tf.export import card
from realm_tf.serving import memory
from realm_tf.serving import server
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.servable import SavedModelServable

# Bytes of a table: a state that stayed would show.
_LARGE = 1 << 24


class Corpus(tf.Module):
    def __init__(self, number):
        super().__init__()
        self.numbers = tf.Variable(np.full(_LARGE // 4, number, "float32"))
        self.texts = tf.Variable([f"text {number}"] * 3)


class Module(tf.Module):
    """What an export of `live_version` is, in small."""

    def __init__(self, number, weight):
        super().__init__()
        self.corpus = Corpus(number)
        self.weight = tf.Variable(weight)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="row")])
    def ask(self, row):
        # As reading follows searching.
        number = tf.gather(self.corpus.numbers, row) * self.weight
        with tf.control_dependencies([number]):
            return {"number": number, "text": tf.gather(self.corpus.texts, row)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([], tf.string, name="begun"),
            tf.TensorSpec([], tf.string, name="ended"),
        ]
    )
    def wait(self, begun, ended):
        looked_up = [self.corpus.numbers[0], self.corpus.texts[0]]
        with tf.control_dependencies(looked_up):
            found = wait_for_file(begun, ended)
        with tf.control_dependencies([found]):
            return {"text": self.corpus.texts[0], "found": found}


def _export(path, number, *, weight=2.0, parents=None, room=True):
    module = Module(number, weight)
    tf.saved_model.save(
        module,
        str(path),
        signatures={"serving_default": module.ask, "wait": module.wait},
    )
    files = ["saved_model.pb", "variables/variables.index"]
    (path / "assets.extra").mkdir()
    facts = {
        "room": {"blocks": 3} if room else None,
        "parents": parents or {"model": "m"},
        "files": {
            name: card.fingerprints.sha256(str(path / name)) for name in files
        },
    }
    (path / card.FILE).write_text(json.dumps(facts))


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Numbered exports of one graph, and some that are others."""
    root = tmp_path_factory.mktemp("exports")
    _export(root / "1", 1)
    for number in (2, 3):
        _export(root / str(number), number)
        # Traced again, names of functions differ; `write_next` copies.
        _copy_graph(root / "1", root / str(number))
    _export(root / "4", 4, parents={"model": "another"}, weight=3.0)
    _copy_graph(root / "1", root / "4")
    _export(root / "5", 5, room=False)
    _export(root / "6", 6, weight=3.0)
    return root


def _copy_graph(source, target):
    shutil.copy(source / "saved_model.pb", target)
    facts = json.loads((target / card.FILE).read_text())
    facts["files"]["saved_model.pb"] = json.loads(
        (source / card.FILE).read_text()
    )["files"]["saved_model.pb"]
    (target / card.FILE).write_text(json.dumps(facts))


def _ask(servable):
    found = servable.run({"row": np.array([2], "int32")})
    return found["number"].tolist(), found["text"].tolist()


def test_states_are_apart(exports):
    first = SavedModelServable(str(exports / "1"))
    graph = weakref.ref(first._runtime)
    second = SavedModelServable(str(exports / "2"), beside=first)
    third = SavedModelServable(str(exports / "3"), beside=second)
    assert second._runtime is third._runtime is first._runtime
    for number, servable in enumerate((first, second, third, first), start=1):
        number = (number - 1) % 3 + 1
        assert _ask(servable) == ([2.0 * number], [b"text %d" % number])
    first.close()
    third.close()
    assert _ask(second) == ([4.0], [b"text 2"])
    with pytest.raises(RequestError, match="being unloaded"):
        _ask(third)
    second.close()
    assert graph() is None


def test_a_server_takes_a_state_into_its_graph(exports, tmp_path):
    shutil.copytree(exports / "1", tmp_path / "1")
    with server.start(str(tmp_path)) as running:
        versions = running._versions
        with versions.use("realm") as (_, batching):
            graph = batching.servable._runtime
        shutil.copytree(exports / "2", tmp_path / "copy")
        (tmp_path / "copy").rename(tmp_path / "2")
        wait_for(lambda: versions.current == 2)
        with versions.use("realm") as (_, batching):
            assert batching.servable._runtime is graph
            assert _ask(batching.servable) == ([4.0], [b"text 2"])


@pytest.mark.parametrize("number, weight", [(4, 3), (5, 2), (6, 3)])
def test_another_graph_or_model_is_loaded_whole(exports, number, weight):
    with (
        SavedModelServable(str(exports / "1")) as first,
        SavedModelServable(str(exports / str(number)), beside=first) as other,
    ):
        assert other._runtime is not first._runtime
        assert _ask(other) == ([weight * number], [b"text %d" % number])
        assert _ask(first) == ([2.0], [b"text 1"])


def test_a_state_beside_what_is_closed_is_loaded_whole(exports):
    first = SavedModelServable(str(exports / "1"))
    first.close()
    with SavedModelServable(str(exports / "2"), beside=first) as second:
        assert _ask(second) == ([4.0], [b"text 2"])


@pytest.fixture
def begin(tmp_path):
    """Begins a run that ends when the file `tmp_path / "ended"` exists."""
    inputs = {
        name: np.array(str(tmp_path / name).encode(), object)
        for name in ("begun", "ended")
    }
    with futures.ThreadPoolExecutor(1) as pool:

        def start(servable):
            running = pool.submit(servable.run, inputs, signature="wait")
            wait_for((tmp_path / "begun").exists)
            return running

        yield start
        (tmp_path / "ended").touch()


def test_a_run_keeps_the_state_that_it_began_with(exports, begin, tmp_path):
    first = SavedModelServable(str(exports / "1"))
    with SavedModelServable(str(exports / "2"), beside=first) as second:
        running = begin(first)
        # The graph of two states stays: only the state of `first` is freed.
        first.close()
        assert not running.done()
        assert _ask(second) == ([4.0], [b"text 2"])
        (tmp_path / "ended").touch()
        assert running.result()["text"] == b"text 1"


def test_close_cancels_what_runs(exports, begin):
    servable = SavedModelServable(str(exports / "1"))
    running = begin(servable)
    servable.close()
    for call in (running.result, lambda: _ask(servable)):
        with pytest.raises(RequestError) as caught:
            call()
        assert caught.value.code == grpc.StatusCode.UNAVAILABLE


def test_a_state_that_cannot_be_read_changes_nothing(exports, tmp_path):
    shutil.copytree(exports / "2", tmp_path / "2")
    (tmp_path / "2" / "variables" / "variables.data-00000-of-00001").unlink()
    with SavedModelServable(str(exports / "1")) as first:
        with pytest.raises(
            InputError,
            match=r"2 does not load: its .*variables cannot be read: .*No such",
        ):
            SavedModelServable(str(tmp_path / "2"), beside=first)
        assert _ask(first) == ([2.0], [b"text 1"])


def test_states_leave_no_memory(exports):
    allocated = []
    served = SavedModelServable(str(exports / "1"))
    for number in (2, 3, 1, 2, 3, 1):
        state = SavedModelServable(str(exports / str(number)), beside=served)
        assert _ask(state)[0] == [2.0 * number]
        served.close()
        served = state
        allocated.append(memory.allocated_bytes())
    served.close()
    if None in allocated:
        pytest.skip("the C library does not tell what is allocated")
    assert max(allocated[1:]) - allocated[0] < _LARGE / 16, allocated
