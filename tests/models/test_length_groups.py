"""Rows in groups of like length."""

import keras
import numpy as np
import pytest
from keras import ops

from realm_tf.models import block_reading

IS_TENSORFLOW = keras.backend.backend() == "tensorflow"


# None: as many groups as the rows need.
@pytest.mark.parametrize("num_groups", [1, 2, 4, None])
@pytest.mark.parametrize("num_rows", [0, 1, 2, 5, 8, 11])
def test_rows_in_groups_are_those_of_all_at_once(num_rows, num_groups):
    """A running sum depends on a row's own wordpieces, and is 0 at padding."""
    if num_groups and not num_rows:
        pytest.skip("in training there are rows")
    random = np.random.default_rng(num_rows)
    lengths = random.integers(1, 10, num_rows)
    mask = (np.arange(9)[None] < lengths[:, None]).astype("int32")
    token_ids = random.integers(1, 50, (num_rows, 9)).astype("int32") * mask
    widths = []

    def function(rows):
        widths.append(rows["token_ids"].shape)
        sums = ops.cumsum(rows["token_ids"], axis=1)
        sums = ops.cast(sums * rows["padding_mask"], "float32")
        return ops.stack([sums, -sums], axis=-1)

    joined = {
        "token_ids": ops.convert_to_tensor(token_ids),
        "padding_mask": ops.convert_to_tensor(mask),
    }
    found = (
        block_reading.in_length_groups(function, joined, num_groups)
        if num_groups
        else block_reading.in_groups_of(function, joined, 4, shape=(2,))
    )
    sums = np.cumsum(token_ids, axis=1) * mask
    np.testing.assert_array_equal(found, np.stack([sums, -sums], axis=-1))
    if IS_TENSORFLOW and num_groups and num_groups > 1:
        assert len(widths) == num_groups
        # The shortest rows come first, and no group is wider than its own.
        ordered = np.sort(lengths)
        size = -(-num_rows // num_groups)
        for group, (rows, width) in enumerate(widths):
            last = min(group * size, num_rows - size) + size - 1
            assert (rows, width) == (size, ordered[last])
    if IS_TENSORFLOW and not num_groups and 0 < num_rows <= 4:
        # Few rows are alone, without padding.
        assert widths == [(1, length) for length in np.sort(lengths)]
