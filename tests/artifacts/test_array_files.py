"""The smallest type is large enough."""

import numpy as np
import pytest

from realm_tf.artifacts.array_files import smallest_dtype


@pytest.mark.parametrize("largest", [0, 65_535, 65_536, 2**31 - 1])
def test_the_largest_number_fits(largest):
    dtype = smallest_dtype(largest)
    assert np.array([largest]).astype(dtype)[0] == largest
    assert dtype == ("uint16" if largest < 2**16 else "int32")
