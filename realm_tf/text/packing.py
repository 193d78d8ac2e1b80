"""Rows of wordpieces as arrays; join_BERT as `models.packing` on tensors."""

import numpy as np


def pad(rows: list, length: int, value: int = 0) -> np.ndarray:
    """Rows of integers as one array.

    Args:
        rows: list of int arrays or lists.
        length: int. Not less than that of the longest.
        value: int. Pads shorter rows. Defaults to `0`.

    Returns:
        int32 array `(num_rows, length)`.
    """
    padded = np.full((len(rows), length), value, "int32")
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row
    return padded


def join_bert(
    rows: list,
    *,
    cls_id: int,
    sep_id: int,
    pad_id: int,
    max_length: int,
    segment_ids: tuple[int, ...] = (0, 1),
) -> dict:
    """Packs `[CLS] x [SEP]` or `[CLS] x1 [SEP] x2 [SEP]`.

    When the budget is short, earlier segments keep theirs and later ones are
    cut (the original's left-to-right budget).

    Args:
        rows: list of tuples of int arrays. The segments of each row; one or
            two, as many in each.
        cls_id: int. Id of [CLS].
        sep_id: int. Id of [SEP].
        pad_id: int. Id of [PAD].
        max_length: int. Wordpieces of a row, special ones included: longer
            rows are cut, shorter ones padded.
        segment_ids: tuple of int. Segment id of each segment and its [SEP].
            Defaults to `(0, 1)`; encoders trained on single texts take
            `(0, 0)`.

    Returns:
        A dict of int32 arrays `(num_rows, max_length)`: `token_ids`,
        `segment_ids`, `padding_mask`.

    References:
        [Guu et al., 2020](https://arxiv.org/abs/2002.08909), section 3.2.
    """
    shape = (len(rows), max_length)
    token_ids = np.full(shape, pad_id, "int32")
    numbers = np.zeros(shape, "int32")
    padding_mask = np.zeros(shape, "int32")
    for row, segments in enumerate(rows):
        budget = max_length - 1 - len(segments)
        token_ids[row, 0] = cls_id
        numbers[row, 0] = segment_ids[0]
        end = 1
        for segment, number in zip(segments, segment_ids, strict=False):
            size = min(len(segment), budget)
            budget -= size
            token_ids[row, end : end + size] = segment[:size]
            token_ids[row, end + size] = sep_id
            numbers[row, end : end + size + 1] = number
            end += size + 1
        padding_mask[row, :end] = 1
    return {
        "token_ids": token_ids,
        "segment_ids": numbers,
        "padding_mask": padding_mask,
    }
