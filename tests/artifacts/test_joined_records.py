"""Blocks of several directories as one, against the directories."""

import numpy as np
import pytest

from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.joined_records import JoinedRecords
from realm_tf.artifacts.objects import Blocks

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def records(blocks_dir):
    return BlockRecords(Blocks(blocks_dir))


@pytest.mark.parametrize("spare", [None, 0, 3])
def test_some_blocks_of_each(records, spare):
    every, odd = np.arange(len(records)), np.arange(1, len(records), 2)
    rows = np.concatenate([every, odd])
    capacity = None if spare is None else len(rows) + spare
    joined = JoinedRecords(
        [(records, every), (records, odd)], capacity=capacity
    )
    assert joined.num_blocks == len(rows)
    assert len(joined) == (capacity or len(rows))
    for name in ("titles", "texts", "urls"):
        wanted = [getattr(records, name)[int(row)] for row in rows]
        assert list(getattr(joined, name)) == wanted + [""] * (spare or 0)
    tables = joined.token_ids(), records.token_ids()
    # As wide as any table of such blocks, so that another takes its place.
    width = records.metadata["max_block_length"]
    assert tables[0].shape[1] == (records.longest if spare is None else width)
    np.testing.assert_array_equal(
        tables[0][: len(rows), : records.longest], tables[1][rows]
    )
    assert not tables[0][len(rows) :].any()
    np.testing.assert_array_equal(
        joined.lengths, [*records.lengths[rows], *[0] * (spare or 0)]
    )
    for block_id, row in enumerate(rows.tolist()):
        limit = int(records.lengths[row])
        for start in (0, limit - 1):
            assert joined.span_text(block_id, start, limit) == (
                records.span_text(row, start, limit)
            )


def test_a_position_that_there_is_not(records):
    joined = JoinedRecords([(records, np.arange(2))], capacity=3)
    assert joined.texts[-1] == joined.texts[2] == ""
    with pytest.raises(IndexError):
        joined.texts[3]
