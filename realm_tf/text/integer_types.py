"""Tables of integers in no more bytes than they need."""

import numpy as np


def smallest_dtype(largest: int) -> str:
    """The smallest type for numbers from 0 to `largest`.

    Args:
        largest: int. From 0 to 2 ** 31 - 1.

    Returns:
        str, `"uint16"` or `"int32"`: every backend gathers rows of these.
    """
    return "uint16" if largest <= np.iinfo("uint16").max else "int32"
