"""Lists of operations: what is kept, refused, resumed and timed."""

import dataclasses
import os
import re
from typing import ClassVar

import pytest

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.directory import Artifact
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.question_files import Questions
from realm_tf.errors import InputError
from realm_tf.operations.graph import Graph
from realm_tf.operations.graph import is_done
from realm_tf.operations.operation import Operation

# Names of what was made, and the one before which Ctrl-C is pressed.
made = []
stop_before = []


class Thing(Artifact):
    kind = "thing"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Make(Operation):
    """Makes a thing of things."""

    command: ClassVar[str] = "make"
    makes = Thing

    output: str
    a: Thing | None = None
    b: Thing | None = None
    steps: int = 1

    def run(self):
        name = os.path.basename(self.output)
        with self.write(resumable=True) as stage:
            if name in stop_before:
                raise KeyboardInterrupt
            stage.metadata["fingerprint"] = fingerprints.fingerprint(
                repr([self.steps, self.parents()])
            )
        made.append(name)


class Other(Make):
    """Another operation, which takes another time."""


@pytest.fixture(autouse=True)
def _nothing_made():
    made.clear()
    stop_before.clear()


@pytest.fixture
def output(tmp_path):
    return f"{tmp_path}/output"


def _graph(output, *, steps=1, first=1):
    graph = Graph()
    a = graph.add(Make(output=f"{output}/a", steps=first))
    b = graph.add(Make(output=f"{output}/b", a=a, steps=steps))
    graph.add(Make(output=f"{output}/c", a=a, b=b))
    return graph


def _plan(graph):
    return {
        os.path.basename(path): is_made
        for path, is_made in graph.plan().items()
    }


def _stopped(output, name):
    stop_before.append(name)
    with pytest.raises(KeyboardInterrupt):
        _graph(output).run()
    stop_before.clear()


def test_a_stopped_run_goes_on(output, capsys):
    assert _plan(_graph(output)) == {"a": False, "b": False, "c": False}
    # A plan makes nothing.
    assert not os.path.exists(output)
    _stopped(output, "b")
    assert made == ["a"]
    time_made = os.stat(f"{output}/a/COMPLETED").st_mtime_ns
    assert _plan(_graph(output)) == {"a": True, "b": False, "c": False}
    capsys.readouterr()
    _graph(output).run()
    assert made == ["a", "b", "c"]
    assert os.stat(f"{output}/a/COMPLETED").st_mtime_ns == time_made
    told = re.sub(
        r"^ +\d+ s$", "      0 s", capsys.readouterr().out, flags=re.M
    )
    assert told.splitlines() == [
        "[1/3] a: done before",
        "[2/3] b",
        f"      $ realm make --output {output}/b --a {output}/a",
        "      0 s",
        "[3/3] c",
        f"      $ realm make --output {output}/c --a {output}/a --b {output}/b",
        "      0 s",
    ]
    _graph(output).run()
    assert made == ["a", "b", "c"]


def test_what_was_made_otherwise_is_refused(output):
    _graph(output).run()
    kept = os.stat(f"{output}/b/COMPLETED").st_mtime_ns
    with pytest.raises(
        InputError, match=r"output/b was made with steps=1 \(now 2\)\. Choose"
    ):
        _graph(output, steps=2).run()
    with pytest.raises(
        InputError, match=r"output/a was made with steps=1 \(now 3\)"
    ):
        _graph(output, first=3).plan()
    assert os.stat(f"{output}/b/COMPLETED").st_mtime_ns == kept
    assert made == ["a", "b", "c"]


def test_an_input_that_was_removed_is_made_again(output):
    _graph(output).run()
    remove(f"{output}/a")
    assert _plan(_graph(output)) == {"a": False, "b": True, "c": True}
    _graph(output).run()
    assert made == ["a", "b", "c", "a"]


def test_a_run_that_was_begun_otherwise_is_refused(output):
    _stopped(output, "b")
    assert os.path.isdir(f"{output}/b.partial")
    with pytest.raises(
        InputError, match="output/b.partial was begun with steps=1"
    ):
        _graph(output, steps=2).run()
    _graph(output).run()
    assert made == ["a", "b", "c"]


def test_an_operation_is_added_once(output):
    graph = _graph(output)
    again = Make(output=f"{output}/b", a=f"{output}/a")
    assert graph.add(again) == Thing(f"{output}/b")
    assert len(graph.plan()) == 3
    with pytest.raises(ValueError, match="one output must be the same"):
        graph.add(Make(output=f"{output}/b", steps=2))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Read(Make):
    """Makes a thing of a file, and of one that it only names."""

    questions: Questions
    named: str

    def contents(self):
        return fingerprints.sha256(self.named)

    def run(self):
        with self.write() as stage:
            stage.metadata["contents"] = self.contents()


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("questions", "another questions"), ("named", "other contents of its")],
)
def test_a_changed_input_file_is_noticed(tmp_path, name, complaint):
    """In one process, whose objects have read the file, and in another."""
    paths = {name: str(tmp_path / name) for name in ("questions", "named")}
    for path in paths.values():
        write_text(path, '{"question": "Where?", "answer": ["here"]}')
    graph = Graph()
    made = Read(output=str(tmp_path / "output"), **paths)
    graph.add(made)
    graph.run()
    assert is_done(made)
    write_text(paths[name], '{"question": "Who?", "answer": ["she"]}')
    for each in (made, Read(output=str(tmp_path / "output"), **paths)):
        with pytest.raises(InputError, match=f"made with {complaint}"):
            is_done(each)
