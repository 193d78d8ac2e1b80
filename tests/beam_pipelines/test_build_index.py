import os
import pathlib

import numpy as np
import pytest
from embedding_files import write_embeddings

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Index
from realm_tf.errors import InputError
from realm_tf.operations.build_index import BuildIndex
from realm_tf.retrieval.index import load

NUM_BLOCKS = 21_000
WIDTH = 8


@pytest.fixture(autouse=True)
def tensorflow_only():
    import keras

    if keras.backend.backend() != "tensorflow":
        pytest.skip("ScaNN's op needs the TensorFlow backend")


def _random(num_blocks, seed=0):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((num_blocks, WIDTH)).astype("float32")


@pytest.fixture(scope="module")
def rows():
    """Enough that ScaNN does not search exactly."""
    return _random(NUM_BLOCKS)


@pytest.fixture(scope="module")
def random_embeddings(tmp_path_factory, rows):
    directory = tmp_path_factory.mktemp("random") / "embeddings"
    return write_embeddings(directory, rows, 8_000)


def _build(embeddings, output, **arguments):
    """The metadata of an index that is built."""
    return (
        BuildIndex(embeddings=embeddings, output=str(output), **arguments)
        .run()
        .metadata
    )


def _found(index_dir, queries, k):
    index = load(Index(index_dir))
    return np.asarray(index.search(queries, k)[1])


# Few candidates are scored, so that some are missed.
@pytest.mark.parametrize(
    "arguments",
    [
        {"kind": "scann", "num_reordered": 20},
        {"kind": "ivf", "num_partitions": 100, "num_probed": 4},
    ],
    ids=["scann", "ivf"],
)
def test_recall_against_numpy(tmp_path, random_embeddings, rows, arguments):
    output = str(tmp_path / "index")
    metadata = _build(random_embeddings, output, **arguments)
    assert metadata == artifact.read(output, kind="index")
    chosen = np.sort(np.random.default_rng(0).permutation(NUM_BLOCKS)[:200])
    found = _found(output, rows[chosen], 6)
    truth = np.argsort(-(rows[chosen] @ rows.T), axis=1, kind="stable")[:, :6]
    # A query is a block: of its neighbours, it is left out.
    others = [
        [
            [x for x in row if x != own][:5]
            for own, row in zip(chosen, ids, strict=True)
        ]
        for ids in (found, truth)
    ]
    expected = np.mean(
        [len({*a} & {*b}) / 5 for a, b in zip(*others, strict=True)]
    )
    assert metadata["recall@5"] == round(expected, 4)
    assert 0.3 < metadata["recall@5"] < 0.999
    assert metadata["recall_queries"] == 200
    # Shards of other sizes: the same index, the same recall.
    other = write_embeddings(tmp_path / "other", rows, 20_999)
    again = _build(other, str(tmp_path / "again"), **arguments)
    assert {**again, "seconds": 0} == {**metadata, "seconds": 0}
    for name in sorted(os.listdir(output)):
        if name.endswith(".npy"):
            one = (tmp_path / "index" / name).read_bytes()
            assert one == (tmp_path / "again" / name).read_bytes(), name


def test_any_of_equal_blocks_is_found(tmp_path):
    """Copies of 20 blocks, which no search can tell apart."""
    rows = np.tile(_random(20), (20, 1))
    embeddings = write_embeddings(tmp_path / "embeddings", rows, 100)
    metadata = _build(
        embeddings,
        tmp_path / "index",
        kind="ivf",
        num_partitions=20,
        num_probed=20,
    )
    assert metadata["recall@5"] == 1.0


def test_what_the_directory_says(tmp_path, embeddings_dir):
    embeddings = artifact.read(embeddings_dir, kind="embeddings")
    for kind, num_queries, num_files in (
        # Its rows are those of embeddings.npy.
        ("scann", 11, 11),
        ("ivf", 11, 6),
        ("brute_force", 0, 3),
    ):
        output = str(tmp_path / kind)
        metadata = _build(embeddings_dir, output, kind=kind)
        assert metadata["parents"] == embeddings["parents"]
        assert metadata["num_blocks"] == 11
        assert metadata["embedding_dim"] == 8
        # Fewer blocks than queries: all of them.
        assert metadata["recall_queries"] == num_queries
        assert metadata["recall@5"] == 1.0
        names = set(os.listdir(output))
        assert {"COMPLETED", "metadata.json", "embeddings.npy"} <= names
        assert len(names) == num_files
        assert sum(n.startswith(f"{kind}-") for n in names) == num_files - 3


def test_fingerprints_tell_indices_apart(tmp_path):
    rows = _random(50)
    embeddings = write_embeddings(tmp_path / "embeddings", rows, 20)
    other = write_embeddings(tmp_path / "other", rows, 20, fingerprint="other")
    builds = [
        (embeddings, {}),
        (other, {}),
        (embeddings, {"kind": "brute_force"}),
        (embeddings, {"reordering": "int8"}),
        (embeddings, {"num_reordered": 100}),
        (embeddings, {"kind": "ivf"}),
        (embeddings, {"kind": "ivf", "num_partitions": 9}),
        (embeddings, {"kind": "ivf", "num_probed": 9}),
        (embeddings, {}),
    ]
    *different, again = [
        BuildIndex(
            embeddings=source, output=str(tmp_path / str(number)), **arguments
        ).run()
        for number, (source, arguments) in enumerate(builds)
    ]
    fingerprints = [index.fingerprint for index in different]
    assert len(set(fingerprints)) == len(fingerprints)
    assert again.fingerprint == fingerprints[0]


@pytest.mark.parametrize("kind", ["scann", "ivf", "brute_force"])
def test_a_damaged_shard_is_named(tmp_path, rows, kind):
    embeddings = write_embeddings(tmp_path / "embeddings", rows[:6], 4)
    path = os.path.join(embeddings, "embeddings-00000004.npy")
    operation = BuildIndex(
        embeddings=embeddings, output=str(tmp_path / "index"), kind=kind
    )
    # A bit, then the rest.
    content = bytearray(pathlib.Path(path).read_bytes())
    content[-1] ^= 1
    for each in (content, b"\x93NUMPY"):
        pathlib.Path(path).write_bytes(each)
        with pytest.raises(InputError, match=f"{path} is missing or not as"):
            operation.run()
    assert os.listdir(tmp_path) == ["embeddings"]


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ({"reordering": "float16"}, "reordering"),
        ({"num_reordered": 0}, "at least 1.*num_reordered=0"),
        ({"kind": "ivf", "num_partitions": 12}, "between 1 and 11.*=12"),
        ({"kind": "ivf", "num_probed": 0}, "num_probed=0"),
        ({"beam_options": ["--no-such-option=1"]}, "--no-such-option"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, embeddings_dir, arguments, reason):
    with pytest.raises(InputError, match=reason):
        BuildIndex(
            embeddings=embeddings_dir,
            output=str(tmp_path / "index"),
            **arguments,
        ).run()
    assert os.listdir(tmp_path) == []


def test_the_command_says_what_it_built(tmp_path, embeddings_dir, capsys):
    output = str(tmp_path / "index")
    words = ["index", "--embeddings", embeddings_dir, "--output", output]
    assert cli.main(words) == 0
    assert capsys.readouterr().out == (
        f"{output}: scann over 11 blocks, recall@5 against exact search "
        "1.000 (11 queries)\n"
    )
