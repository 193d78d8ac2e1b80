"""Tables of integers in no more bytes than they need."""

import numpy as np


def smallest_dtype(largest: int) -> str:
    """The smallest type for numbers from 0 to `largest`.

    Args:
        largest: int. Not negative.

    Returns:
        str, `"uint16"` or `"int32"`: every backend gathers rows of these.

    Raises:
        ValueError: if it does not fit into an int32.
    """
    if not 0 <= largest <= np.iinfo("int32").max:
        raise ValueError(
            "Expected a number from 0 to 2**31 - 1. "
            f"Received: largest={largest}"
        )
    return "uint16" if largest <= np.iinfo("uint16").max else "int32"
