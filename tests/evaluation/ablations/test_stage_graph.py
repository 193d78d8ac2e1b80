"""Stages made once, and what of them is kept, refused and timed."""

import json
import os

import pytest

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.evaluation.ablations.stage_graph import Stage
from realm_tf.evaluation.ablations.stage_graph import StageGraph


class _World:
    """Three stages that write what they are given and what they read."""

    def __init__(self, output):
        self.output = output
        self.made = []
        self.stop_before = None

    def graph(self, *, steps=1, last="c", recipe=None):
        graph = StageGraph(self.output)
        a = graph.add(
            self._stage("a", "train", {}, {"recipe": recipe or {"steps": 1}})
        )
        b = graph.add(self._stage("b", "train", {"a": a}, {"steps": steps}))
        graph.add(self._stage(last, "test", {"a": a, "b": b}, {}))
        return graph

    def _stage(self, name, kind, inputs, parameters):
        def make(output):
            if name == self.stop_before:
                raise KeyboardInterrupt
            read = {k: artifact.read_metadata(p) for k, p in inputs.items()}
            with artifact.write(
                output, kind="x", parameters=parameters
            ) as stage:
                stage.metadata["fingerprint"] = fingerprints.fingerprint(
                    name,
                    json.dumps(parameters),
                    *(one["fingerprint"] for one in read.values()),
                )
            self.made.append(name)

        return Stage(name, kind, make, inputs, parameters, f"make {name}")


@pytest.fixture
def world(tmp_path):
    return _World(str(tmp_path / "output"))


def _plan(graph):
    return {stage.name: is_done for stage, is_done in graph.plan()}


def test_a_stopped_run_goes_on(world, capsys):
    assert _plan(world.graph()) == {"a": False, "b": False, "c": False}
    # A plan makes nothing.
    assert not os.path.exists(world.output)
    world.stop_before = "b"
    with pytest.raises(KeyboardInterrupt):
        world.graph().run()
    assert world.made == ["a"]
    made = os.stat(f"{world.output}/a/COMPLETED").st_mtime_ns
    assert _plan(world.graph()) == {"a": True, "b": False, "c": False}
    world.stop_before = None
    capsys.readouterr()
    world.graph().run()
    assert world.made == ["a", "b", "c"]
    assert os.stat(f"{world.output}/a/COMPLETED").st_mtime_ns == made
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "[1/3] a: done before",
        "[2/3] b",
        "      $ make b",
        "      0 s; 1 stage left",
        "[3/3] c",
        "      $ make c",
        "      0 s",
    ]
    world.graph().run()
    assert world.made == ["a", "b", "c"]


def test_what_is_left_is_estimated_from_the_same_kind(world, capsys):
    world.stop_before = "b"
    with pytest.raises(KeyboardInterrupt):
        world.graph().run()
    path = f"{world.output}/a.stage.json"
    record = json.loads(Path(path).read_text())
    write_text(path, json.dumps({**record, "seconds": 600.0}))
    graph = world.graph()
    assert graph.seconds("a") == 600.0
    assert graph._estimate(graph.stages) == (
        "; 2 stages left: about 10 min for 1 of them, the others not timed yet"
    )
    assert graph._estimate(graph.stages[1:2]) == (
        "; 1 stage left: about 10 min"
    )


def test_what_was_made_otherwise_is_refused(world):
    world.graph().run()
    kept = os.stat(f"{world.output}/b/COMPLETED").st_mtime_ns
    with pytest.raises(
        InputError, match=r"output/b was made with steps=1 \(now 2\)\. Choose"
    ):
        world.graph(steps=2).run()
    with pytest.raises(
        InputError, match=r"output/a was made with steps=1 \(now 3\)"
    ):
        world.graph(recipe={"steps": 3}).plan()
    assert os.stat(f"{world.output}/b/COMPLETED").st_mtime_ns == kept
    assert world.made == ["a", "b", "c"]


def test_what_was_made_of_another_input_is_refused(world):
    world.graph().run()
    path = f"{world.output}/a/metadata.json"
    metadata = json.loads(Path(path).read_text())
    write_text(path, json.dumps({**metadata, "fingerprint": "other"}))
    with pytest.raises(InputError, match="output/b was made with another a"):
        world.graph().run()


def test_an_input_that_was_removed_is_made_again(world):
    world.graph().run()
    remove(f"{world.output}/a")
    assert _plan(world.graph()) == {"a": False, "b": True, "c": True}
    world.graph().run()
    assert world.made == ["a", "b", "c", "a"]


def test_what_someone_else_made_is_refused(world):
    world.graph().run()
    remove(f"{world.output}/c.stage.json")
    with pytest.raises(InputError, match="there is no c.stage.json beside it"):
        world.graph().run()
    write_text(f"{world.output}/c.stage.json", '{"parameters": {}}')
    with pytest.raises(InputError, match="c.stage.json is damaged"):
        world.graph().run()


def test_a_run_that_was_begun_otherwise_is_refused(world):
    world.stop_before = "b"
    with pytest.raises(KeyboardInterrupt):
        world.graph().run()
    # A training's rest, with its state in it.
    os.makedirs(f"{world.output}/b.partial")
    world.stop_before = None
    with pytest.raises(InputError, match="output/b was begun with steps=1"):
        world.graph(steps=2).run()
    world.graph().run()
    assert world.made == ["a", "b", "c"]


def test_seconds_count_up_to_the_last_file_of_a_run_that_was_killed(world):
    world.stop_before = "b"
    with pytest.raises(KeyboardInterrupt):
        world.graph().run()
    path = f"{world.output}/b.stage.json"
    record = json.loads(Path(path).read_text())
    assert record["seconds_before"] == 0.0 and "seconds" not in record
    # It worked for 500 seconds, after 40 of a run before it.
    os.makedirs(f"{world.output}/b.partial/state")
    for name, after in (("state/weights", 500), ("log", 200)):
        file = f"{world.output}/b.partial/{name}"
        write_text(file, "")
        times = (record["started"] + after,) * 2
        os.utime(file, times)
        os.utime(os.path.dirname(file), (record["started"],) * 2)
    write_text(path, json.dumps({**record, "seconds_before": 40.0}))
    world.stop_before = None
    graph = world.graph()
    graph.run()
    # Writing the stage takes no second.
    assert graph.seconds("b") == pytest.approx(540, abs=1)
    assert json.loads(Path(path).read_text())["seconds_before"] == 540.0
    # Of what left nothing, nothing counts.
    assert graph.seconds("a") < 1


def test_seconds_of_a_stage_whose_record_was_not_finished(world):
    world.graph().run()
    path = f"{world.output}/b.stage.json"
    record = json.loads(Path(path).read_text())
    del record["seconds"]
    write_text(path, json.dumps({**record, "seconds_before": 7.0}))
    metadata = f"{world.output}/b/metadata.json"
    found = json.loads(Path(metadata).read_text())
    write_text(metadata, json.dumps({**found, "seconds": 5.5}))
    assert world.graph().seconds("b") == 12.5


def test_ancestors_are_counted_once(world):
    graph = world.graph()
    assert sorted(s.name for s in graph.ancestors("c")) == ["a", "b", "c"]
    assert [s.name for s in graph.ancestors("a")] == ["a"]


def test_a_stage_is_added_once(world):
    graph = world.graph()
    same = graph.stages[1]
    assert graph.add(same) == f"{world.output}/b"
    assert len(graph.stages) == 3
    with pytest.raises(ValueError, match="stage=b twice"):
        graph.add(Stage("b", "train", same.make, {}, {"steps": 1}))
