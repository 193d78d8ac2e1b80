import numpy as np
import pytest
import search_oracle

from realm_tf import progress
from realm_tf.retrieval import ivf
from realm_tf.retrieval.ivf import partition


def _labels(found):
    """The partition of each block."""
    labels = np.empty(len(found["block_ids"]), int)
    labels[found["block_ids"]] = np.repeat(
        np.arange(len(found["sizes"])), found["sizes"]
    )
    return labels


def _check(found, rows, num_partitions):
    """What holds of every partitioning, computed row by row."""
    ids = found["block_ids"]
    np.testing.assert_array_equal(np.sort(ids), np.arange(len(rows)))
    assert found["sizes"].sum() == len(rows)
    assert len(found["sizes"]) == num_partitions
    limits = np.cumsum(found["sizes"])
    for number, (size, limit) in enumerate(
        zip(found["sizes"], limits, strict=True)
    ):
        ids = found["block_ids"][limit - size : limit]
        assert (np.diff(ids) > 0).all()
        mean = rows[ids].astype("float64").mean(axis=0) if size else 0
        np.testing.assert_allclose(found["centroids"][number], mean, atol=1e-5)
    assert found["centroids"].dtype == "float32"
    assert found["sizes"].dtype == found["block_ids"].dtype == "int32"


@pytest.mark.parametrize(
    "num_rows, num_partitions",
    [(1, 1), (2, 1), (5, 5), (50, 3), (50, 49), (1000, 126), (40_000, 30)],
)
def test_every_block_lies_in_one_partition(num_rows, num_partitions):
    rows = search_oracle.rows(num_rows)
    _check(partition(rows, num_partitions=num_partitions), rows, num_partitions)


def test_rows_of_one_direction_lie_together_whatever_their_length():
    random = np.random.default_rng(0)
    group = random.integers(0, 6, 600)
    lengths = random.uniform(0.1, 50.0, (600, 1))
    rows = np.eye(6, 8)[group] + 0.02 * random.normal(size=(600, 8))
    rows = (rows * lengths).astype("float32")
    labels = _labels(partition(rows, num_partitions=12))
    # No partition holds rows of two groups.
    for label in np.unique(labels):
        assert len(set(group[labels == label])) == 1


def test_the_same_rows_give_the_same_partitions(tmp_path):
    rows = search_oracle.rows(3_000)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    first = partition(rows, num_partitions=40)
    for again in (
        partition(rows.copy(), num_partitions=40),
        partition(mapped, num_partitions=40),
    ):
        for name in ("centroids", "sizes", "block_ids"):
            np.testing.assert_array_equal(first[name], again[name])


def test_it_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(ivf, "_ROWS_PER_PART", 1_000)
    partition(search_oracle.rows(2_600), num_partitions=5)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" blocks, ")[0] for line in lines] == [
        "index: 1,000 of 2,600",
        "index: 2,000 of 2,600",
        "index: 2,600 of 2,600",
    ]
