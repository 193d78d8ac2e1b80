import numpy as np
import pytest
import search_oracle

from realm_tf.retrieval import numpy_index
from realm_tf.retrieval.numpy_index import NumpyIndex


@pytest.mark.parametrize("rows_at_once", [1, 7, 10, 50, 999])
@pytest.mark.parametrize("num_candidates", [1, 8, 50])
def test_the_best_are_found(
    monkeypatch, tmp_path, rows_at_once, num_candidates
):
    monkeypatch.setattr(numpy_index, "_ROWS_AT_ONCE", rows_at_once)
    embeddings = search_oracle.integers(50)
    queries = search_oracle.integers(9, seed=1)
    np.save(tmp_path / "embeddings.npy", embeddings)
    index = NumpyIndex(np.load(tmp_path / "embeddings.npy", mmap_mode="r"))
    found = index.search(queries, num_candidates)
    scores, expected = search_oracle.oracle(embeddings, queries, num_candidates)
    np.testing.assert_array_equal(found[1], expected)
    np.testing.assert_array_equal(found[0], scores)
    assert (found[1].dtype, found[0].dtype) == ("int32", "float32")
