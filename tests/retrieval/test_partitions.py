import dataclasses

import numpy as np
import pytest
import search_oracle

from realm_tf import progress
from realm_tf.errors import InputError
from realm_tf.retrieval import ivf
from realm_tf.retrieval.ivf import partition


def _labels(found):
    """The partition of each block."""
    labels = np.empty(len(found.block_ids), int)
    labels[found.block_ids] = np.repeat(
        np.arange(len(found.sizes)), found.sizes
    )
    return labels


def _check(found, rows, num_partitions):
    """What holds of every partitioning, computed row by row."""
    assert found.hold_once(rows.shape)
    assert len(found.sizes) == num_partitions + num_partitions // 2
    assert found.sizes.max() <= -(-2 * len(rows) // num_partitions)
    limits = np.cumsum(found.sizes)
    for number, (size, limit) in enumerate(
        zip(found.sizes, limits, strict=True)
    ):
        ids = found.block_ids[limit - size : limit]
        assert (np.diff(ids) > 0).all()
        mean = rows[ids].astype("float64").mean(axis=0) if size else 0
        np.testing.assert_allclose(found.centroids[number], mean, atol=1e-5)
    assert found.centroids.dtype == "float32"
    assert found.sizes.dtype == found.block_ids.dtype == "int32"


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


def test_a_large_partition_is_cut_where_its_rows_differ_most():
    random = np.random.default_rng(0)
    # 90 of 100 rows point the same way and differ along the second axis.
    rows = np.zeros((100, 4), "float32")
    rows[:90, 0] = 1.0
    rows[:90, 1] = 0.001 * random.permutation(90)
    rows[90:] = np.eye(4)[random.integers(2, 4, 10)]
    found = partition(rows, num_partitions=4)
    _check(found, rows, 4)
    # At most 50: two halves.
    assert sorted(found.sizes.tolist(), reverse=True)[:2] == [45, 45]
    labels = _labels(found)[:90]
    one, other = (rows[:90, 1][labels == each] for each in set(labels))
    assert one.max() < other.min() or other.max() < one.min()


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_rows_are_shared_out_by_their_ids(value):
    rows = np.full((30, 4), value, "float32")
    found = partition(rows, num_partitions=6)
    _check(found, rows, 6)
    # At most ten in each: in the first partition that was filled the first.
    assert sorted(found.sizes[found.sizes > 0]) == [10, 10, 10]
    assert found.block_ids.tolist() == list(range(30))


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
            np.testing.assert_array_equal(
                getattr(first, name), getattr(again, name)
            )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sampled", [True, False])
def test_a_value_that_is_not_finite_is_refused(monkeypatch, value, sampled):
    if not sampled:
        monkeypatch.setattr(ivf, "_SAMPLE_PER_PARTITION", 1)
    rows = search_oracle.rows(400)
    order = np.random.default_rng(0).permutation(400)
    rows[order[-1], 3] = value
    with pytest.raises(InputError, match="not finite.*`realm embed` again"):
        partition(rows, num_partitions=5)


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


def test_partitions_that_miss_a_block_are_told():
    good = partition(search_oracle.rows(20), num_partitions=4)
    assert good.hold_once((20, 8))
    assert not good.hold_once((21, 8))
    assert not good.hold_once((20, 9))
    twice = good.block_ids.copy()
    twice[0] = twice[1]
    moved = good.sizes.copy()
    moved[0], moved[1] = -1, moved[:2].sum() + 1
    for changes in (
        {"block_ids": twice},
        {"sizes": moved},
        {"sizes": good.sizes[:-1]},
    ):
        assert not dataclasses.replace(good, **changes).hold_once((20, 8))
