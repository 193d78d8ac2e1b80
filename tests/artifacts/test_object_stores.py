"""Paths on S3 and Google Cloud Storage, by servers on this machine."""

import os

import pytest
from object_stores import STORES
from object_stores import opened

from realm_tf.artifacts import artifact
from realm_tf.artifacts import paths
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError
from realm_tf.errors import Resumable


@pytest.fixture(scope="module", params=STORES)
def store(request):
    with opened(request.param) as found:
        yield found


@pytest.fixture
def root(store, request, monkeypatch, tmp_path):
    """A folder of its own for each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bucket, proxy = store
    proxy.requests.clear()
    yield f"{bucket}/{request.node.originalname}"
    proxy.fault = lambda request: None


@pytest.fixture
def proxy(store, root):
    return store[1]


def test_files_and_folders(root):
    for name in ("a.txt", "b.txt", "in/c.txt"):
        paths.write_text(f"{root}/{name}", f"ä{name}")
    folder = Path(root)
    assert folder.exists() and folder.is_dir() and not folder.is_file()
    assert sorted(each.name for each in folder.iterdir()) == [
        *("a.txt", "b.txt", "in"),
    ]
    assert list(map(str, folder.glob("in/*.txt"))) == [f"{root}/in/c.txt"]
    assert paths.list_files(root) == ["a.txt", "b.txt", "in/c.txt"]
    file = folder / "a.txt"
    assert file.is_file() and file.size == len("äa.txt".encode())
    assert file.read_text() == file.open("r").read() == "äa.txt"
    assert not (folder / "none").exists()
    with pytest.raises(FileNotFoundError):
        (folder / "none").read_text()
    paths.remove(f"{root}/a.txt")
    assert not Path(f"{root}/a.txt").exists()
    paths.remove(root)
    paths.remove(root)
    assert not folder.exists()


def test_a_copy_serves_until_the_file_changes(root, proxy):
    path = f"{root}/a.txt"
    for text in ("one", "two"):
        paths.write_text(path, text)
        copies = {paths.local_copy(path) for _ in range(2)}
        assert [Path(copy).read_text() for copy in copies] == [text]
    contents = ("GET /bucket/", "GET /download/")
    fetched = [x for x in proxy.requests if x.startswith(contents)]
    assert len([x for x in fetched if "a.txt" in x]) == 2
    (copy,) = {paths.local_directory(root) for _ in range(2)}
    assert Path(f"{copy}/a.txt").read_text() == "two"


def test_a_busy_store_is_asked_again(root, proxy):
    answers = [429, 503, None, 503]
    proxy.fault = lambda request: answers and answers.pop()
    paths.write_text(f"{root}/a.txt", "a")
    assert Path(f"{root}/a.txt").read_text() == "a"
    assert not answers


def test_what_is_cut_off_is_written_again_as_a_whole(root, proxy, tmp_path):
    cuts = ["cut"]
    proxy.fault = lambda request: cuts and cuts.pop()
    with paths.writing(f"{root}/a.bin") as path:
        Path(path).write_bytes(bytes(range(256)) * 100)
        assert not Path(f"{root}/a.bin").exists()
        cuts = ["cut"]
    assert Path(f"{root}/a.bin").read_bytes() == bytes(range(256)) * 100
    assert not cuts
    with (
        pytest.raises(LookupError),
        paths.writing(f"{root}/b.bin") as path,
    ):
        Path(path).write_bytes(b"b")
        raise LookupError
    assert not Path(f"{root}/b.bin").exists()


def test_one_sentence_says_what_is_refused(root, proxy):
    nowhere = f"{root.partition('bucket')[0]}nowhere/a"
    with (
        pytest.raises(Resumable, match="no bucket .*nowhere. Make it or"),
        artifact.write(nowhere, kind="blocks"),
    ):
        raise AssertionError("it was opened")
    with pytest.raises(InputError, match="nowhere/a does not exist"):
        artifact.read(nowhere)
    proxy.fault = lambda request: 403
    for call in (
        lambda: paths.write_text(f"{root}/a", "a"),
        lambda: Path(f"{root}/a").exists(),
        lambda: artifact.read(f"{root}/a"),
        lambda: artifact.write(f"{root}/a", kind="blocks").__enter__(),
    ):
        with pytest.raises(Resumable, match="Forbidden.*: check the network"):
            call()


def test_a_directory_is_complete_with_its_marker(root, proxy):
    with artifact.write(f"{root}/made", kind="model") as stage:
        paths.write_text(stage.path("weights"), "w")
        assert not artifact.is_complete(f"{root}/made")
    writes = [x for x in proxy.requests if x.split()[0] in ("PUT", "POST")]
    assert paths.list_files(f"{root}/made") == [
        *("COMPLETED", "metadata.json", "weights"),
    ]
    assert len(writes) >= 4
    with pytest.raises(InputError, match="exists already"):
        artifact.write(f"{root}/made", kind="model").__enter__()


def test_a_run_goes_on_with_what_it_had_saved(root):
    """The files of a training, on a machine that has none of them."""
    options = {"kind": "model", "resumable": True}
    with (
        pytest.raises(KeyboardInterrupt),
        artifact.write(f"{root}/made", **options) as stage,
    ):
        os.makedirs(stage.path("run"))
        for text in ("1", "2"):
            paths.write_text(stage.path("run/state"), text)
            stage.save()
        paths.write_text(stage.path("run/state"), "3")
        raise KeyboardInterrupt
    with artifact.write(f"{root}/made", **options) as stage:
        assert Path(stage.path("run/state")).read_text() == "2"
        paths.remove(stage.path("run"))
        paths.write_text(stage.path("weights"), "w")
    assert paths.list_files(f"{root}/made") == [
        *("COMPLETED", "metadata.json", "weights"),
    ]


def test_other_stores_need_their_library(monkeypatch):
    with pytest.raises(InputError, match="nfs:// cannot be used.*expected a"):
        Path("nfs://a/b").exists()
    import fsspec

    def missing(*_, **__):
        raise ImportError("no adlfs")

    monkeypatch.setattr(fsspec, "filesystem", missing)
    with pytest.raises(InputError, match=r"pip install 'realm-tf\[azure\]'"):
        Path("az://a/b").exists()
