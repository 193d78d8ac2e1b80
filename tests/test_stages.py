import json
import os
import uuid

import pytest

from realm_tf import stages
from realm_tf.errors import InputError
from realm_tf.version import __version__


@pytest.fixture(params=["local", "object store"])
def output(request, tmp_path):
    """A place for a directory; TensorFlow's ram:// has no rename either."""
    if request.param == "local":
        return str(tmp_path / "output")
    return f"ram://{uuid.uuid4()}/output"


def _write(output, *, files=None, fail=None, **arguments):
    arguments = {"kind": "blocks", **arguments}
    with stages.write(output, **arguments) as stage:
        for name, text in (files or {}).items():
            stages.write_text(stage.path(name), text)
        if fail is not None:
            raise fail
        stage.metadata["counts"] = {"rows": 3}


def _working_directory(output):
    return output if stages.is_remote(output) else f"{output}.partial"


def test_a_finished_stage_can_be_read(output):
    _write(
        output,
        files={"a.txt": "ä"},
        parameters={"size": 2, "names": ["x"]},
        parents={"model": "abc"},
    )
    assert stages.is_complete(output)
    metadata = stages.read(output, kind="blocks")
    assert metadata.pop("seconds") >= 0
    assert metadata == {
        "kind": "blocks",
        "parameters": {"size": 2, "names": ["x"]},
        "parents": {"model": "abc"},
        "version": __version__,
        "counts": {"rows": 3},
    }
    assert stages.list_names(output) == [
        "COMPLETED",
        "a.txt",
        "metadata.json",
    ]
    assert stages.read_text(stages.join(output, "a.txt")) == "ä"
    assert stages.read_bytes(f"{output}/a.txt") == "ä".encode()


def test_nothing_is_left_beside_a_finished_stage(tmp_path):
    _write(str(tmp_path / "output"))
    assert os.listdir(tmp_path) == ["output"]


def test_a_trailing_slash_changes_nothing(tmp_path):
    _write(f"{tmp_path}/output/", files={"a.txt": "a"})
    assert stages.read(f"{tmp_path}/output/", kind="blocks")["counts"]
    assert os.listdir(tmp_path) == ["output"]


def test_a_stage_that_fails_leaves_nothing(output):
    for error in (RuntimeError("broken"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            _write(output, files={"a.txt": "a"}, fail=error)
        assert not stages.exists(output)
        assert not stages.exists(_working_directory(output))


@pytest.mark.parametrize("error", [RuntimeError("x"), KeyboardInterrupt()])
def test_a_resumable_stage_goes_on_with_the_same_job(output, error):
    arguments = {
        "resumable": True,
        "parameters": {"size": 2},
        "parents": {"model": "abc"},
    }
    with pytest.raises(type(error)):
        _write(output, files={"a.txt": "first"}, fail=error, **arguments)
    assert not stages.is_complete(output)
    with pytest.raises(InputError, match="is not complete"):
        stages.read(output, kind="blocks")

    _write(output, files={"b.txt": "second"}, **arguments)
    assert stages.read_text(stages.join(output, "a.txt")) == "first"
    assert stages.read_text(stages.join(output, "b.txt")) == "second"
    assert "job.json" not in stages.list_names(output)


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "index"},
        {"parameters": {"size": 3}},
        {"parents": {"model": "another"}},
        {"parents": {}},
        # Not resumable: the files of another run are of no use.
        {"resumable": False},
    ],
)
def test_another_job_starts_anew(output, other):
    arguments = {
        "resumable": True,
        "parameters": {"size": 2},
        "parents": {"model": "abc"},
    }
    with pytest.raises(RuntimeError):
        _write(output, files={"a.txt": "a"}, fail=RuntimeError(), **arguments)
    _write(output, files={"b.txt": "b"}, **{**arguments, **other})
    assert "a.txt" not in stages.list_names(output)


def test_another_version_starts_anew(output, monkeypatch):
    with pytest.raises(RuntimeError):
        _write(
            output, files={"a.txt": "a"}, fail=RuntimeError(), resumable=True
        )
    monkeypatch.setattr(stages, "__version__", "99.0")
    _write(output, resumable=True)
    assert "a.txt" not in stages.list_names(output)
    assert stages.read(output, kind="blocks")["version"] == "99.0"


def test_files_without_a_job_are_not_resumed(tmp_path):
    output = str(tmp_path / "output")
    os.mkdir(f"{output}.partial")
    (tmp_path / "output.partial" / "a.txt").write_text("of unknown origin")
    _write(output, resumable=True)
    assert "a.txt" not in stages.list_names(output)


def test_a_complete_directory_is_not_overwritten(output):
    _write(output, files={"a.txt": "a"})
    for resumable in (True, False):
        with pytest.raises(InputError, match="exists already"):
            _write(output, resumable=resumable)
    assert stages.read_text(stages.join(output, "a.txt")) == "a"


def test_the_files_of_others_are_not_removed(output):
    stages.make_directory(output)
    stages.write_text(stages.join(output, "thesis.txt"), "years of work")
    for resumable in (True, False):
        with pytest.raises(InputError, match="was not made by realm"):
            _write(output, resumable=resumable)
    assert stages.list_names(output) == ["thesis.txt"]


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("a")
    with pytest.raises(InputError, match="file exists and was not made"):
        _write(str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"output\.partial cannot be written"):
        _write(str(tmp_path / "file" / "output"))
    assert (tmp_path / "file").read_text() == "a"


def test_a_missing_directory_is_named(output):
    with pytest.raises(InputError, match="does not exist") as caught:
        stages.read(output, kind="blocks")
    assert output in str(caught.value)
    assert "'blocks'" in str(caught.value)
    assert not stages.is_complete(output)


def test_a_directory_without_a_marker_is_never_read(output):
    _write(output, files={"a.txt": "a"})
    stages.remove(stages.join(output, stages.MARKER))
    with pytest.raises(InputError, match="is not complete"):
        stages.read(output, kind="blocks")
    assert not stages.is_complete(output)


def test_a_run_that_goes_on_is_told_from_a_missing_one(tmp_path):
    output = str(tmp_path / "output")
    with stages.write(output, kind="blocks"):
        assert not stages.is_complete(output)
        with pytest.raises(InputError, match="interrupted or is still going"):
            stages.read(output, kind="blocks")
    assert stages.read(output, kind="blocks")["kind"] == "blocks"


def test_another_kind_is_refused(output):
    _write(output, kind="index")
    with pytest.raises(InputError, match="holds 'index', expected 'blocks'"):
        stages.read(output, kind="blocks")


def test_one_of_several_kinds_may_be_asked_for(output):
    _write(output, kind="index")
    kinds = ("blocks", "index")
    assert stages.read(output, kind=kinds)["kind"] == "index"
    with pytest.raises(InputError, match="'index', expected 'blocks' or 'x'"):
        stages.read(output, kind=("blocks", "x"))


@pytest.mark.parametrize("damage", [None, "", "{", "[]", "{}"])
def test_damaged_metadata_is_named(output, damage):
    _write(output)
    path = stages.join(output, stages.METADATA)
    # TensorFlow's ram:// appends to what is there.
    stages.remove(path)
    if damage is not None:
        stages.write_text(path, damage)
    with pytest.raises(InputError, match=r"metadata\.json is missing or dam"):
        stages.read(output, kind="blocks")


def test_metadata_is_readable_json(output):
    _write(output)
    text = stages.read_text(stages.join(output, stages.METADATA))
    assert json.loads(text)["kind"] == "blocks"
    assert text.count("\n") > 3


def test_all_files_below_a_directory_and_their_sizes(output):
    with stages.write(output, kind="things") as stage:
        stages.make_directory(stage.path("a/b"))
        stages.write_text(stage.path("a/b/c.txt"), "four")
        stages.write_text(stage.path("z"), "")
    assert stages.list_files(f"{output}/") == [
        "COMPLETED",
        "a/b/c.txt",
        "metadata.json",
        "z",
    ]
    assert stages.file_size(f"{output}/a/b/c.txt") == 4
    assert stages.file_size(f"{output}/z") == 0


def test_fingerprints_see_order_and_boundaries():
    digest = stages.fingerprint("ab", "c")
    assert digest == stages.fingerprint(b"ab", b"c")
    assert len(digest) == 16
    others = [("a", "bc"), ("c", "ab"), ("abc",), ("ab", "c", ""), ()]
    assert digest not in [stages.fingerprint(*parts) for parts in others]
    # A change of the digest would make every directory foreign.
    assert stages.fingerprint("ä") == "a23060887d1e3120"


def test_remove_takes_files_directories_and_nothing(output):
    stages.make_directory(stages.join(output, "inner"))
    stages.write_text(stages.join(output, "a.txt"), "a")
    stages.remove(stages.join(output, "a.txt"))
    assert stages.list_names(output) == ["inner"]
    stages.remove(output)
    assert not stages.exists(output)
    stages.remove(output)
