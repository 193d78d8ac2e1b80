"""The runtime of SavedModels: TensorFlow's C API, and Python's session."""

import shutil
import threading
from concurrent import futures

import hypothesis
import numpy as np
import pytest
import python_code
import tensorflow as tf
from file_gate import wait_for_file
from hypothesis import strategies as st
from waiting import wait_for

from realm_tf.export import c_session
from realm_tf.export.runtime import LoadError
from realm_tf.export.runtime import RunError
from realm_tf.export.runtime import Runtime
from realm_tf.serving import memory

# Bytes of a table: one that stayed would show.
_LARGE = 1 << 24
_TEXTS = [b"", b"a\0b", "né".encode(), b"longer than a short string" * 9]


class Module(tf.Module):
    """Tables of a number and of texts, a resource, and each dtype."""

    def __init__(self, number):
        super().__init__()
        self.numbers = tf.Variable(np.full(_LARGE // 4, number, "float32"))
        self.texts = tf.Variable([f"text {number}"] * 3)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="row")])
    def ask(self, row):
        return {
            "number": tf.gather(self.numbers, row),
            "text": tf.gather(self.texts, row),
        }

    @tf.function(
        input_signature=[
            tf.TensorSpec([], tf.string, name="begun"),
            tf.TensorSpec([], tf.string, name="ended"),
        ]
    )
    def wait(self, begun, ended):
        looked_up = [self.numbers[0], self.texts[0]]
        with tf.control_dependencies(looked_up):
            found = wait_for_file(begun, ended)
        with tf.control_dependencies([found]):
            return {"text": self.texts[0], "found": found}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.string, name="texts"),
            tf.TensorSpec([], tf.bool, name="flag"),
            tf.TensorSpec([None], tf.bfloat16, name="halves"),
            tf.TensorSpec([1, None], tf.int64, name="numbers"),
        ]
    )
    def echo(self, texts, flag, halves, numbers):
        return {
            "texts": tf.identity(texts),
            "joined": tf.strings.reduce_join(texts),
            "flag": ~flag,
            "halves": halves * tf.constant(2, tf.bfloat16),
            "numbers": numbers + 1,
        }


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    root = tmp_path_factory.mktemp("exports")
    for number in (1, 2):
        module = Module(number)
        tf.saved_model.save(
            module,
            str(root / str(number)),
            signatures={n: getattr(module, n) for n in ("ask", "wait", "echo")},
        )
    return root


@pytest.fixture(params=["c", "python"])
def kind(request, monkeypatch):
    """Runs a test with the C API, and with Python's TensorFlow."""
    if request.param == "python":
        monkeypatch.setattr(c_session, "library", lambda: None)
    else:
        assert c_session.library() is not None
    return request.param


def _ask(runtime):
    found = runtime.run("ask", {"row": [2]})
    return found["number"].tolist(), found["text"].tolist()


def test_versions_are_apart(kind, exports):
    with Runtime(str(exports / "2"), optimized=False) as second:
        with Runtime(str(exports / "1")) as first:
            assert _ask(first) == ([1.0], [b"text 1"])
            assert _ask(second) == ([2.0], [b"text 2"])
        assert _ask(second) == ([2.0], [b"text 2"])
        with pytest.raises(RunError, match="It is closed") as caught:
            _ask(first)
    assert caught.value.code == c_session.CANCELLED


def test_values_of_each_kind_survive(kind, exports):
    texts = np.array(_TEXTS, object).reshape(2, 2)
    halves = np.array([1.5, -2], c_session.DTYPES[14])
    inputs = {
        "texts": texts,
        "flag": True,
        "halves": halves,
        # Not contiguous.
        "numbers": np.arange(6).reshape(3, 2).T[:1],
    }
    with Runtime(str(exports / "1")) as runtime:
        found = runtime.run("echo", inputs)
        assert found["texts"].tolist() == texts.tolist()
        assert found["joined"].shape == () and found["joined"].dtype == object
        assert found["joined"].item() == b"".join(_TEXTS)
        assert not found["flag"]
        assert found["halves"].dtype == halves.dtype
        assert found["halves"].tolist() == [3, -4]
        assert found["numbers"].tolist() == [[1, 3, 5]]
        empty = {**inputs, "texts": np.empty((0, 2), object)}
        assert runtime.run("echo", empty)["texts"].shape == (0, 2)
        words = runtime.run("echo", {**inputs, "texts": [["é", "b"]]})
        assert words["joined"].item() == "éb".encode()


@pytest.mark.parametrize(
    "signature, inputs, message",
    [
        ("ask", {"row": [3]}, r"indices\[0\] = 3 is not in \[0, 3\)"),
        ("ask", {"row": 2}, r"row must be int32 of shape \(None,\) .*of \(\)"),
        ("ask", {"row": [1.5]}, "row must be int32: Cannot cast"),
        ("ask", {"row": ["x"]}, "row must be int32: Cannot cast"),
        ("ask", {"row": [[1], [2, 3]]}, "row must be int32: setting an array"),
        ("ask", {}, r"expected the inputs \['row'\], received \[\]"),
        (
            "wait",
            {"begun": 3, "ended": b""},
            "begun must be string: memoryview",
        ),
    ],
)
def test_bad_inputs_are_refused(kind, exports, signature, inputs, message):
    with Runtime(str(exports / "1")) as runtime:
        with pytest.raises(RunError, match=message) as caught:
            runtime.run(signature, inputs)
        assert caught.value.code == c_session.INVALID_ARGUMENT
        assert _ask(runtime)[0] == [1.0]


@pytest.fixture(scope="module")
def fuzzed(exports):
    with Runtime(str(exports / "1")) as runtime:
        yield runtime
        assert _ask(runtime)[0] == [1.0]


_SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats()),
    *(st.text(), st.binary(), st.just("\ud800"), st.just(b"x\0" * (1 << 19))),
)
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=3))


@hypothesis.settings(max_examples=300, deadline=None, derandomize=True)
@hypothesis.given(st.data())
def test_no_input_ends_the_process(fuzzed, data):
    signature = data.draw(st.sampled_from(["ask", "echo"]))
    names = list(fuzzed.signature_defs[signature].inputs)
    # Sometimes not all of them, or one more.
    names = data.draw(st.sampled_from([names, names, names[:-1], [*names, ""]]))
    try:
        fuzzed.run(signature, {name: data.draw(_VALUES) for name in names})
    except RunError as error:
        assert error.code == c_session.INVALID_ARGUMENT


@pytest.fixture
def begin(tmp_path):
    """Begins a run that ends when the file `tmp_path / "ended"` exists."""
    inputs = {name: str(tmp_path / name) for name in ("begun", "ended")}
    with futures.ThreadPoolExecutor(1) as pool:

        def start(runtime, **options):
            running = pool.submit(runtime.run, "wait", inputs, **options)
            wait_for((tmp_path / "begun").exists)
            return running

        yield start
        (tmp_path / "ended").touch()


def test_close_cancels_what_runs(kind, exports, begin):
    runtime = Runtime(str(exports / "1"))
    running = begin(runtime)
    # Others answer meanwhile.
    assert _ask(runtime)[0] == [1.0]
    runtime.close()
    runtime.close()
    with pytest.raises(RunError) as caught:
        running.result()
    assert caught.value.code == c_session.CANCELLED


def test_a_run_ends_when_its_time_is_over(kind, exports, begin):
    with Runtime(str(exports / "1")) as runtime:
        with pytest.raises(RunError) as caught:
            begin(runtime, timeout_seconds=0.1).result()
        # DEADLINE_EXCEEDED.
        assert caught.value.code == 4
        assert _ask(runtime)[0] == [1.0]


def test_threads_share_a_session_that_closes_among_them(kind, exports):
    runtime = Runtime(str(exports / "1"))
    found, barrier = [], threading.Barrier(5)

    def ask():
        barrier.wait()
        try:
            while True:
                found.append(_ask(runtime))
        except RunError as error:
            return error.code

    with futures.ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        barrier.wait()
        wait_for(lambda: len(found) > 40)
        runtime.close()
        codes = {each.result() for each in asking}
    assert codes == {c_session.CANCELLED}
    assert set(map(str, found)) == {"([1.0], [b'text 1'])"}


def test_damaged_files_do_not_load(kind, exports, tmp_path):
    shutil.copytree(exports / "2", tmp_path / "2")
    (tmp_path / "2" / "variables" / "variables.data-00000-of-00001").unlink()
    for directory in ("2", "none"):
        path = str(tmp_path / directory)
        with pytest.raises(LoadError, match=f"{directory} does not load: "):
            Runtime(path)


def test_closed_runtimes_leave_no_memory(kind, exports):
    allocated = []
    for number in (1, 2, 1):
        with Runtime(str(exports / str(number)), optimized=False) as runtime:
            assert _ask(runtime)[0] == [number]
        del runtime
        memory.hand_back()
        allocated.append(memory.allocated_bytes())
    if None in allocated:
        pytest.skip("the C library does not tell what is allocated")
    assert max(allocated[1:]) - allocated[0] < _LARGE / 2, allocated


def test_long_strings_are_freed(exports):
    texts = [["x" * (1 << 20), "y" * (1 << 20)]]
    inputs = {"texts": texts, "flag": True, "halves": [], "numbers": [[]]}
    inputs["halves"] = np.zeros(0, c_session.DTYPES[14])
    inputs["numbers"] = np.zeros((1, 0), int)
    with Runtime(str(exports / "1")) as runtime:
        runtime.run("echo", inputs)
        before = memory.allocated_bytes()
        for _ in range(20):
            runtime.run("echo", inputs)
        after = memory.allocated_bytes()
    if before is None:
        pytest.skip("the C library does not tell what is allocated")
    assert after - before < 4 << 20


_FRESH = """
import sys
sys.path.insert(0, sys.argv[1])
from runtime import Runtime, MetaGraphDef

with Runtime(sys.argv[2]) as runtime:
    print(runtime.run("ask", {"row": [0]})["text"])
assert not {"tensorflow", "keras", "realm_tf"} & set(sys.modules)
# Both in one process.
import tensorflow_text
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

assert meta_graph_pb2.MetaGraphDef is MetaGraphDef
print(tensorflow_text.case_fold_utf8(["ABC"]).numpy())
print(tf.saved_model.load(sys.argv[2]).signatures["ask"](tf.constant([0])))
"""


@pytest.mark.slow
def test_a_process_runs_it_before_tensorflow_and_beside_it(exports):
    folder = str(c_session.__file__).rpartition("/")[0]
    lines = python_code.run(_FRESH, folder, str(exports / "1")).splitlines()
    assert lines[:2] == ["[b'text 1']", "[b'abc']"]
    assert "text 1" in lines[-1]
