import keras_hub
import numpy as np
import pytest

from realm_tf.text import packing

CLS, SEP, PAD = 2, 3, 1


def _pack(*segments, **arguments):
    packed = packing.join_bert(
        list(zip(*segments, strict=True)),
        **{
            "cls_id": CLS,
            "sep_id": SEP,
            "pad_id": PAD,
            "max_length": 12,
            **arguments,
        },
    )
    assert set(packed) == {"token_ids", "segment_ids", "padding_mask"}
    assert {value.dtype for value in packed.values()} == {np.dtype("int32")}
    return {name: value.tolist() for name, value in packed.items()}


def _random_rows(random, *, num_rows, longest):
    return [
        random.integers(4, 100, random.integers(0, longest + 1)).tolist()
        for _ in range(num_rows)
    ]


@pytest.mark.parametrize("segment_ids", [(0, 1), (0, 0), (1, 0)])
@pytest.mark.parametrize("num_segments", [1, 2])
@pytest.mark.parametrize("max_length", [4, 9, 16, 40])
def test_against_keras_hub(segment_ids, num_segments, max_length):
    random = np.random.default_rng(max_length)
    segments = [
        _random_rows(random, num_rows=30, longest=18)
        for _ in range(num_segments)
    ]
    packer = keras_hub.layers.MultiSegmentPacker(
        sequence_length=max_length,
        start_value=CLS,
        end_value=SEP,
        pad_value=PAD,
        truncate="waterfall",
    )
    token_ids, numbers = map(np.asarray, packer(tuple(segments)))
    mask = token_ids != PAD
    packed = _pack(*segments, max_length=max_length, segment_ids=segment_ids)
    assert packed == {
        "token_ids": token_ids.tolist(),
        "segment_ids": np.where(
            mask, np.take(segment_ids, numbers), 0
        ).tolist(),
        "padding_mask": mask.astype(int).tolist(),
    }
