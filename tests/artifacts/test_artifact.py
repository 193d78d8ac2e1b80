import hashlib
import os
import subprocess
import sys
import uuid

import pytest

from realm_tf.artifacts import artifact
from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.paths import remove
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.version import __version__


@pytest.fixture(params=["local", "object store"])
def output(request, tmp_path):
    """A place for a directory; fsspec's, in memory, has no rename either."""
    if request.param == "local":
        return str(tmp_path / "output")
    return f"memory://{uuid.uuid4()}/output"


def _write(output, *, files=None, fail=None, **arguments):
    arguments = {"kind": "blocks", "by_workers": True, **arguments}
    with artifact.write(output, **arguments) as stage:
        for name, text in (files or {}).items():
            write_text(stage.path(name), text)
        if fail is not None:
            raise fail
        stage.metadata["counts"] = {"rows": 3}


def _working_directory(output):
    return output if is_remote(output) else f"{output}.partial"


def test_a_finished_stage_can_be_read(output):
    _write(
        output,
        files={"a.txt": "ä"},
        parameters={"size": 2, "names": ["x"]},
        parents={"model": "abc"},
    )
    assert artifact.is_complete(output)
    metadata = artifact.read(output, kind="blocks")
    assert metadata.pop("seconds") >= 0
    assert metadata == {
        "kind": "blocks",
        "parameters": {"size": 2, "names": ["x"]},
        "parents": {"model": "abc"},
        "version": __version__,
        "counts": {"rows": 3},
        "checksums": {"a.txt": hashlib.sha256("ä".encode()).hexdigest()},
    }
    assert sorted(each.name for each in Path(output).iterdir()) == [
        "COMPLETED",
        "a.txt",
        "metadata.json",
    ]
    assert Path(f"{output}/a.txt").read_bytes() == "ä".encode()
    remove(os.path.join(output, artifact.MARKER))
    with pytest.raises(InputError, match="is not complete"):
        artifact.read(output, kind="blocks")
    assert not artifact.is_complete(output)


def test_while_it_is_written_nobody_else_writes_or_reads_it(tmp_path):
    output = str(tmp_path / "output")
    with artifact.write(output, kind="blocks"):
        assert not artifact.is_complete(output)
        with pytest.raises(InputError, match="interrupted or is still going"):
            artifact.read(output, kind="blocks")
        with pytest.raises(
            InputError, match="is being written by another process"
        ):
            _write(output)
    assert artifact.read(output, kind="blocks")["kind"] == "blocks"
    assert os.listdir(tmp_path) == ["output"]


def test_never_do_two_processes_have_the_lock(tmp_path):
    """Though each removes the file of the lock at its end."""
    code = f"""
import fcntl, os, random, time
from realm_tf.artifacts.artifact import BeingWritten, locked
flock = fcntl.flock
def late(*arguments):
    time.sleep(random.random() / 500)
    return flock(*arguments)
fcntl.flock = late
for _ in range(300):
    try:
        with locked({str(tmp_path / "output")!r}):
            inside = {str(tmp_path / "inside")!r}
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
            time.sleep(random.random() / 500)
            os.remove(inside)
    except BeingWritten:
        continue
"""
    runs = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [run.wait() for run in runs] == [0, 0, 0]
    assert not os.listdir(tmp_path)


def test_what_another_kind_of_operation_began_is_left_alone(output):
    with pytest.raises(KeyboardInterrupt):
        _write(
            output,
            kind="embeddings",
            files={"a.npy": "hours of work"},
            fail=KeyboardInterrupt(),
            resumable=True,
        )
    with pytest.raises(InputError, match=r"kind embeddings \(now blocks\)"):
        _write(output)
    assert Path(f"{_working_directory(output)}/a.npy").exists()


def test_a_stage_that_fails_leaves_nothing(output):
    for error in (RuntimeError("broken"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            _write(output, files={"a.txt": "a"}, fail=error)
        assert not Path(output).exists()
        assert not Path(_working_directory(output)).exists()


JOB = {"resumable": True, "parameters": {"size": 2}, "parents": {"model": "a"}}


@pytest.mark.parametrize("error", [RuntimeError("x"), KeyboardInterrupt()])
def test_a_resumable_stage_goes_on_with_the_same_job(output, error):
    with pytest.raises(type(error)):
        _write(output, files={"a.txt": "first"}, fail=error, **JOB)
    assert not artifact.is_complete(output)
    with pytest.raises(InputError, match="is not complete"):
        artifact.read(output, kind="blocks")

    _write(output, files={"b.txt": "second"}, **JOB)
    assert Path(os.path.join(output, "a.txt")).read_text() == "first"
    assert Path(os.path.join(output, "b.txt")).read_text() == "second"
    assert "job.json" not in sorted(
        each.name for each in Path(output).iterdir()
    )


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "index"},
        {"parameters": {"size": 3}},
        {"parents": {"model": "another"}},
        {"parents": {}},
    ],
)
def test_another_job_is_refused_and_nothing_lost(output, other):
    with pytest.raises(RuntimeError):
        _write(output, files={"a.txt": "a"}, fail=RuntimeError(), **JOB)
    with pytest.raises(InputError, match="was begun with .* remove it"):
        _write(output, files={"b.txt": "b"}, **{**JOB, **other})
    # But where the files of another run are of no use.
    assert (Path(artifact.unfinished(output)) / "a.txt").exists()
    _write(output, files={"b.txt": "b"}, **{**JOB, "resumable": False})
    assert "a.txt" not in sorted(each.name for each in Path(output).iterdir())


@pytest.mark.parametrize("is_complete", [True, False])
def test_what_is_there_is_not_overwritten(output, is_complete):
    if is_complete:
        _write(output, files={"a.txt": "a"})
    else:
        Path(output).mkdir(parents=True, exist_ok=True)
        write_text(os.path.join(output, "a.txt"), "a")
    before = sorted(each.name for each in Path(output).iterdir())
    for resumable in (True, False):
        with pytest.raises(InputError, match="exists already"):
            _write(output, resumable=resumable)
    assert Path(os.path.join(output, "a.txt")).read_text() == "a"
    assert sorted(each.name for each in Path(output).iterdir()) == before


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").write_text("a")
    with pytest.raises(InputError, match="file exists already"):
        _write(str(tmp_path / "file"))
    with pytest.raises(InputError, match="output cannot be written"):
        _write(str(tmp_path / "file" / "output"))
    assert (tmp_path / "file").read_text() == "a"


def test_a_missing_directory_is_named(output):
    with pytest.raises(InputError, match="does not exist") as caught:
        artifact.read(output, kind="blocks")
    assert output in str(caught.value)
    assert "'blocks'" in str(caught.value)
    assert not artifact.is_complete(output)


def test_another_kind_is_refused(output):
    _write(output, kind="index")
    assert artifact.read(output)["kind"] == "index"
    with pytest.raises(InputError, match="'index', expected 'blocks'"):
        artifact.read(output, kind="blocks")


@pytest.mark.parametrize("damage", [None, "", "{", "[]", "{}"])
def test_damaged_metadata_is_named(output, damage):
    _write(output)
    path = os.path.join(output, artifact.METADATA)
    remove(path)
    if damage is not None:
        write_text(path, damage)
    with pytest.raises(InputError, match=r"metadata\.json is missing or dam"):
        artifact.read(output, kind="blocks")


def test_fingerprints_see_order_and_boundaries():
    digest = fingerprints.fingerprint("ab", "c")
    assert digest == fingerprints.fingerprint(b"ab", b"c")
    assert len(digest) == 16
    others = [("a", "bc"), ("c", "ab"), ("abc",), ("ab", "c", ""), ()]
    assert digest not in [fingerprints.fingerprint(*parts) for parts in others]
    # A change of the digest would make every directory foreign.
    assert fingerprints.fingerprint("ä") == "a23060887d1e3120"


def test_remove_takes_files_directories_and_nothing(output):
    for name in ("inner", "a.txt"):
        Path(output).mkdir(parents=True, exist_ok=True)
        write_text(os.path.join(output, name), "a")
    remove(os.path.join(output, "a.txt"))
    assert sorted(each.name for each in Path(output).iterdir()) == ["inner"]
    remove(output)
    assert not Path(output).exists()
    remove(output)
