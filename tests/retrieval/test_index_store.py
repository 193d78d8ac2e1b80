import os
import shutil
import uuid

import numpy as np
import pytest

from beam_pipelines import build_index
from realm_tf import stages
from realm_tf.errors import InputError
from realm_tf.retrieval import index_store
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.retrieval.scann import ExportedScann
from realm_tf.retrieval.scann import Scann

PARENTS = {"block_tower": "tower", "blocks": "blocks"}


def _embeddings(num_blocks=50, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=(num_blocks, 8)).astype("float32")


def _write(directory, shards):
    """An embeddings directory of these shards."""
    with stages.write(
        str(directory),
        kind="embeddings",
        parameters={"rows_per_shard": len(shards[0])},
        parents=PARENTS,
    ) as stage:
        names = [f"embeddings-{number}.npy" for number in range(len(shards))]
        for name, rows in zip(names, shards, strict=True):
            np.save(stage.path(name), rows)
        stage.metadata.update(
            shards=names,
            num_blocks=sum(map(len, shards)),
            fingerprint="f",
        )
    return str(directory)


@pytest.fixture
def embeddings(tmp_path):
    return _write(
        tmp_path / "embeddings", np.array_split(_embeddings(), [20, 40])
    )


def _check(index, rows):
    queries = _embeddings(9, seed=1)
    scores, block_ids = index.search(queries, 6)
    expected = BruteForce(rows).search(queries, 6)
    np.testing.assert_array_equal(block_ids, expected[1])
    np.testing.assert_allclose(scores, expected[0], atol=1e-5)


@pytest.mark.parametrize("sizes", [(20, 20, 10), (50,), (49, 1)])
def test_shards_are_joined_in_order(tmp_path, sizes):
    rows = _embeddings()
    shards = np.split(rows, np.cumsum(sizes)[:-1])
    embeddings = _write(tmp_path / "embeddings", shards)
    assert index_store.embedding_shards(embeddings) == [
        (f"{embeddings}/embeddings-{number}.npy", number * sizes[0])
        for number in range(len(sizes))
    ]
    joined = index_store.write_embeddings(embeddings, str(tmp_path))
    assert isinstance(joined, np.memmap)
    np.testing.assert_array_equal(joined, rows)
    # As if they had been one array.
    np.save(tmp_path / "expected.npy", rows)
    expected = (tmp_path / "expected.npy").read_bytes()
    assert (tmp_path / "embeddings.npy").read_bytes() == expected


def test_a_shard_of_another_size_is_named(tmp_path, embeddings):
    path = f"{embeddings}/embeddings-1.npy"
    np.save(path, _embeddings(19))
    with pytest.raises(InputError) as caught:
        index_store.write_embeddings(embeddings, str(tmp_path))
    assert str(caught.value) == (
        f"{path} holds 19 rows, expected 20: run `realm embed` again."
    )


@pytest.mark.parametrize(
    "kind, for_export, expected",
    [
        ("brute_force", False, BruteForce),
        ("brute_force", True, BruteForce),
        ("scann", False, Scann),
        ("scann", True, ExportedScann),
    ],
)
def test_an_index_can_be_built_and_loaded(
    tmp_path, embeddings, kind, for_export, expected
):
    output = str(tmp_path / "index")
    metadata = build_index.build(embeddings, output, kind=kind)
    assert metadata == stages.read(output, kind="index")
    assert metadata["parents"] == PARENTS
    assert metadata["num_blocks"] == 50
    assert metadata["embedding_dim"] == 8
    assert metadata["recall@5"] == 1.0
    assert metadata["recall_queries"] == (50 if kind == "scann" else 0)
    index = index_store.load(output, for_export=for_export)
    assert type(index) is expected
    assert (index.num_blocks, index.embedding_dim) == (50, 8)
    _check(index, _embeddings())
    np.testing.assert_array_equal(
        index_store.load_embeddings(output), _embeddings()
    )


def test_the_indices_of_the_tiny_world(
    embeddings_dir, brute_force_index_dir, scann_index_dir
):
    rows = np.concatenate(
        [
            index_store.load_shard(path)
            for path, _ in index_store.embedding_shards(embeddings_dir)
        ]
    )
    assert rows.shape == (11, 8)
    for directory in (brute_force_index_dir, scann_index_dir):
        _check(index_store.load(directory), rows)


def test_on_an_object_store(tmp_path, embeddings):
    root = f"ram://{uuid.uuid4()}"
    rows = _embeddings()
    for kind in ("brute_force", "scann"):
        output = f"{root}/{kind}"
        build_index.build(embeddings, output, kind=kind)
        _check(index_store.load(output), rows)
    stages.remove(f"{root}/brute_force/embeddings.npy")
    with pytest.raises(InputError, match="embeddings.npy is missing"):
        index_store.load(f"{root}/brute_force")


def test_a_parent_that_is_another_is_refused(tmp_path, embeddings):
    output = str(tmp_path / "index")
    metadata = build_index.build(embeddings, output, kind="brute_force")
    found = index_store.check_parents(
        output, block_tower="tower", blocks="blocks"
    )
    assert found == metadata
    with pytest.raises(
        InputError, match="not made from these blocks .it is from blocks, exp"
    ):
        index_store.check_parents(output, block_tower="tower", blocks="other")
    with pytest.raises(InputError, match="not made from this model's block t"):
        index_store.check_parents(output, block_tower="other", blocks="blocks")


def test_the_tiny_world_belongs_together(
    scann_index_dir, model_dir, blocks_dir
):
    model = stages.read(model_dir, kind="model")
    blocks = stages.read(blocks_dir, kind="blocks")
    index_store.check_parents(
        scann_index_dir,
        block_tower=model["block_tower"],
        blocks=blocks["fingerprint"],
    )


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


@pytest.mark.parametrize("how", ["missing", "empty", "cut", "other"])
def test_a_damaged_file_is_named(tmp_path, embeddings, how):
    output = tmp_path / "index"
    build_index.build(embeddings, str(output))
    for name in ("embeddings.npy", "scann-dataset.npy"):
        copy = tmp_path / f"copy-{name}"
        shutil.copytree(output, copy)
        _damage(copy / name, how)
        reason = "is missing" if how == "missing" else "is damaged"
        with pytest.raises(InputError, match=f"{name} {reason}"):
            index_store.load_embeddings(str(copy))
            index_store.load(str(copy))
    path = tmp_path / "embeddings" / "embeddings-1.npy"
    _damage(path, how)
    with pytest.raises(InputError, match="embeddings-1.npy is"):
        index_store.load_shard(str(path))


def test_other_directories_are_refused(tmp_path, embeddings, blocks_dir):
    with pytest.raises(InputError, match="'blocks', expected 'embeddings'"):
        index_store.embedding_shards(blocks_dir)
    with pytest.raises(InputError, match="'embeddings', expected 'index'"):
        index_store.load(embeddings)
    with pytest.raises(InputError, match="does not exist"):
        index_store.load(str(tmp_path / "missing"))
