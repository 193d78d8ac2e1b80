import numpy as np
import pytest
import search_oracle

from realm_tf.errors import InputError
from realm_tf.retrieval.numpy_index import NumpyIndex


@pytest.mark.parametrize("rows_per_block", [1, 7, 10, 49, 50, 999])
@pytest.mark.parametrize("num_candidates", [1, 8, 50])
def test_the_best_are_found(tmp_path, rows_per_block, num_candidates):
    embeddings, queries = (
        search_oracle.integers(50, 0),
        search_oracle.integers(9, 1),
    )
    np.save(tmp_path / "embeddings.npy", embeddings)
    index = NumpyIndex(
        np.load(tmp_path / "embeddings.npy", mmap_mode="r"),
        rows_per_block=rows_per_block,
    )
    found_scores, found = index.search(queries, num_candidates)
    scores, expected = search_oracle.oracle(embeddings, queries, num_candidates)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(found_scores, scores)
    assert (found.dtype, found_scores.dtype) == ("int32", "float32")
    assert index.is_exact


def test_ever_better_rows_are_all_seen():
    index = NumpyIndex(np.arange(100.0)[:, None], rows_per_block=9)
    _, found = index.search(np.array([[1.0], [-1.0]]), 3)
    assert found.tolist() == [[99, 98, 97], [0, 1, 2]]


def test_other_embeddings():
    index = NumpyIndex(np.eye(3))
    index.swap(np.eye(3)[::-1])
    assert index.search(np.eye(3)[:1], 1)[1].tolist() == [[2]]
    with pytest.raises(InputError, match=r"shape=\(2, 3\)"):
        index.swap(np.eye(3)[:2])
    with pytest.raises(InputError, match="num_candidates=4"):
        index.search(np.eye(3), 4)


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="rows_per_block=0"):
        NumpyIndex(np.eye(3), rows_per_block=0)
