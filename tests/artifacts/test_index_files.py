import json
import os
import pathlib
import shutil
import uuid

import numpy as np
import pytest
from embedding_files import write_embeddings

from realm_tf.artifacts import array_files
from realm_tf.artifacts.objects import Embeddings
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.paths import remove
from realm_tf.beam_pipelines import build_index
from realm_tf.errors import InputError
from realm_tf.operations.build_index import BuildIndex
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.retrieval.index import load
from realm_tf.retrieval.ivf import Ivf


def _embeddings(num_blocks=50, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(num_blocks, 8)).astype("float32")


@pytest.fixture
def embeddings(tmp_path):
    return write_embeddings(tmp_path / "embeddings", _embeddings(), 20)


def _check(index, rows):
    queries = _embeddings(9, seed=1)
    scores, block_ids = index.search(queries, 6)
    expected = BruteForce(rows).search(queries, 6)
    np.testing.assert_array_equal(block_ids, expected[1])
    np.testing.assert_allclose(scores, expected[0], atol=1e-5)


def test_a_shard_of_another_size_is_named(tmp_path, embeddings):
    path = f"{embeddings}/embeddings-00000020.npy"
    np.save(path, _embeddings(19))
    with pytest.raises(InputError) as caught:
        build_index.write_embeddings(Embeddings(embeddings), str(tmp_path))
    assert str(caught.value) == (
        f"{path} holds an array of shape (19, 8), expected 20 rows: make its "
        "directory again."
    )


@pytest.mark.parametrize(
    "value, norm, told",
    [
        (np.nan, None, "row 3 has the norm nan, expected a finite one"),
        (-np.inf, 1.0, "row 3 has the norm inf, expected 1.0"),
        # Of which the product with itself is too large for float32.
        (1e30, None, "row 3 has the norm inf, expected a finite one"),
        (2.0, 1.0, "row 3 has the norm 2, expected 1.0"),
    ],
)
def test_rows_that_no_tower_gives_are_refused(tmp_path, value, norm, told):
    rows = np.zeros((5, 8), "float32")
    rows[:, 0] = 1
    rows[3, 0] = value
    with pytest.raises(InputError, match=told):
        array_files.check_embeddings(rows, "x.npy", norm=norm, mend="")
    # In a directory without checksums, too.
    directory = write_embeddings(tmp_path / "embeddings", rows, 4)
    _change_metadata(directory, norm=norm, checksums={})
    with pytest.raises(InputError, match=f"00000000.npy: .* {told}"):
        BuildIndex(
            embeddings=directory, output=str(tmp_path / "index"), kind="ivf"
        ).run()


def _change_metadata(directory, **changes):
    path = pathlib.Path(directory, "metadata.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "shards",
    [["../x.npy"] * 3, ["/x.npy"] * 3, ["gs://x/y"] * 3, [3] * 3, [""] * 3]
    + [None, [], {"x": 1}],
)
def test_shards_are_in_their_directory(tmp_path, embeddings, shards):
    np.save(tmp_path / "x.npy", _embeddings(20))
    _change_metadata(embeddings, shards=shards)
    with pytest.raises(InputError, match="expected one inside|does not name"):
        Embeddings(embeddings).read()
    _change_metadata(embeddings, checksums={"../x.npy": "0"})
    with pytest.raises(InputError, match="names the file '../x.npy'"):
        Embeddings(embeddings).check_files()


def test_what_metadata_do_not_say_is_named(embeddings):
    _change_metadata(embeddings, parameters={})
    with pytest.raises(InputError, match="says nothing of 'rows_per_shard'"):
        Embeddings(embeddings).read()


@pytest.mark.parametrize("quantize", ["int8", "bfloat16"])
@pytest.mark.parametrize(
    "kind, expected", [("brute_force", BruteForce), ("ivf", Ivf)]
)
def test_an_index_of_smaller_rows(
    tmp_path, embeddings, kind, expected, quantize
):
    output = str(tmp_path / "index")
    BuildIndex(embeddings=embeddings, output=output, kind=kind).run()
    index = load(Index(output), quantize=quantize)
    assert type(index) is expected
    assert index.rows.values.dtype == quantize
    queries = _embeddings(9, seed=1)
    scores, block_ids = map(np.asarray, index.search(queries, 6))
    exact = np.take_along_axis(queries @ _embeddings().T, block_ids, axis=1)
    # Half of 1 / 127 of values below 3, times those of a query, below 20.
    np.testing.assert_allclose(scores, exact, atol=0.2)
    assert np.abs(scores - exact).max() > 1e-4


def test_quantizations_that_are_not_to_be_had(tmp_path, embeddings):
    output = str(tmp_path / "scann")
    BuildIndex(embeddings=embeddings, output=output, kind="scann").run()
    with pytest.raises(
        InputError,
        match="scann is a ScaNN index.*'int8'.*realm index --reordering int8",
    ):
        load(Index(output), quantize="int8")


def test_on_an_object_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = f"memory://{uuid.uuid4()}"
    rows = _embeddings()
    embeddings = write_embeddings(f"{root}/embeddings", rows, 20)
    for kind in ("brute_force", "ivf", "scann"):
        output = f"{root}/{kind}"
        BuildIndex(embeddings=embeddings, output=output, kind=kind).run()
        _check(load(Index(output)), rows)
        assert isinstance(Index(output).embeddings, np.memmap)
    remove(f"{root}/brute_force/embeddings.npy")
    with pytest.raises(InputError, match="embeddings.npy is missing"):
        load(Index(f"{root}/brute_force"))


def _damage(path, how):
    if how == "missing":
        os.remove(path)
    else:
        content = {
            "empty": b"",
            "cut": path.read_bytes()[:-50],
            "other": b"<html>404 Not Found</html>" * 9,
        }
        path.write_bytes(content[how])


_FILES = {
    "scann": ["embeddings.npy", "scann-scann_config.npy"],
    "ivf": ["ivf-centroids.npy", "ivf-sizes.npy", "ivf-block_ids.npy"],
}


@pytest.mark.parametrize(
    "kind, how",
    [
        ("scann", "missing"),
        ("scann", "cut"),
        ("ivf", "empty"),
        ("ivf", "other"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, embeddings, kind, how):
    output = tmp_path / "index"
    BuildIndex(embeddings=embeddings, output=str(output), kind=kind).run()
    for name in _FILES[kind]:
        copy = tmp_path / f"copy-{name}"
        shutil.copytree(output, copy)
        _damage(copy / name, how)
        reason = "is missing" if how == "missing" else "is damaged"
        with pytest.raises(InputError, match=f"{name} {reason}"):
            len(Index(copy).embeddings)
            load(Index(copy))
    path = tmp_path / "embeddings" / "embeddings-00000020.npy"
    _damage(path, how)
    with pytest.raises(InputError, match="embeddings-00000020.npy is"):
        array_files.load_array(str(path))
