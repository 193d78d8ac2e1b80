"""Inputs of an encoder for one text, without any padding."""

import numpy as np


def one_row(ids, segments=None, **more):
    """A batch of one row; segments default to 0."""
    return {
        "token_ids": np.array([ids], "int32"),
        "segment_ids": np.array([segments or [0] * len(ids)], "int32"),
        "padding_mask": np.ones((1, len(ids)), "int32"),
        **more,
    }
