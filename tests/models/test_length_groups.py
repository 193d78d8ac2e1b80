"""Rows in groups of like length."""

import numpy as np
import pytest

from realm_tf.models import block_reading


@pytest.mark.parametrize("num_rows", [1, 2, 5, 8, 11])
@pytest.mark.parametrize("num_groups", [1, 2, 4])
def test_rows_in_groups_are_those_of_all_at_once(num_rows, num_groups):
    """A running sum depends on a row's own wordpieces, and is 0 at padding."""
    import keras
    from keras import ops

    random = np.random.default_rng(num_rows)
    lengths = random.integers(1, 10, num_rows)
    mask = (np.arange(9)[None] < lengths[:, None]).astype("int32")
    token_ids = random.integers(1, 50, (num_rows, 9)) * mask
    widths = []

    def function(rows):
        widths.append(rows["token_ids"].shape)
        sums = ops.cumsum(rows["token_ids"], axis=1)
        sums = ops.cast(sums * rows["padding_mask"], "float32")
        return ops.stack([sums, -sums], axis=-1)

    joined = {
        "token_ids": ops.convert_to_tensor(token_ids, "int32"),
        "padding_mask": ops.convert_to_tensor(mask),
    }
    found = np.asarray(
        block_reading.in_length_groups(function, joined, num_groups)
    )
    sums = np.cumsum(token_ids, axis=1) * mask
    np.testing.assert_array_equal(found, np.stack([sums, -sums], axis=-1))
    if keras.backend.backend() == "tensorflow" and num_groups > 1:
        assert len(widths) == num_groups
        # The shortest rows come first, and no group is wider than its own.
        ordered = np.sort(lengths)
        size = -(-num_rows // num_groups)
        for group, (rows, width) in enumerate(widths):
            last = min(group * size, num_rows - size) + size - 1
            assert (rows, width) == (size, ordered[last])


@pytest.mark.parametrize("num_rows", [0, 1, 4, 5, 9])
def test_groups_of_rows_give_what_all_rows_give(num_rows):
    from keras import ops

    random = np.random.default_rng(num_rows)
    lengths = random.permutation(np.arange(1, num_rows + 1))
    mask = (np.arange(num_rows + 2) < lengths[:, None]).astype("int32")
    token_ids = random.integers(1, 9, mask.shape).astype("int32") * mask
    joined = {"token_ids": token_ids, "padding_mask": mask}

    def function(rows):
        sums = ops.cumsum(rows["token_ids"], axis=1)
        sums = ops.cast(sums * rows["padding_mask"], "float32")
        return ops.stack([sums, -sums], axis=-1)

    found = block_reading.in_groups_of(
        function,
        {k: ops.convert_to_tensor(v) for k, v in joined.items()},
        4,
        shape=(2,),
    )
    sums = np.cumsum(token_ids, axis=1) * mask
    np.testing.assert_array_equal(found, np.stack([sums, -sums], axis=-1))
