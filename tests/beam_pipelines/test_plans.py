import itertools

import numpy as np
import pytest

from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import plans
from realm_tf.beam_pipelines import sources
from realm_tf.errors import InputError


def make_pages(generator, num_pages, num_ids):
    """Pages of two files, some of which have one id and one text."""
    pages = np.zeros(num_pages, parts.PAGES)
    first = int(generator.integers(0, num_pages + 1))
    pages["file"][first:] = 1
    pages["number"] = (
        np.append(np.arange(first), np.arange(num_pages - first))
        * int(generator.integers(1, 3))
        + 1
    )
    ids = generator.integers(0, num_ids, num_pages)
    pages["id_high"], pages["id_low"] = ids // 5, ids % 5
    pages["text"] = ids
    pages["blocks"] = 1 + ids % 4
    return pages


def test_is_first_against_a_loop():
    generator = np.random.default_rng(5)
    for _ in range(100):
        pages = make_pages(generator, int(generator.integers(0, 40)), 25)
        seen = set()
        expected = []
        for text in pages["text"].tolist():
            expected.append(text not in seen)
            seen.add(text)
        assert plans.is_first(pages, "ab").tolist() == expected


def test_two_texts_of_one_id_are_refused():
    pages = make_pages(np.random.default_rng(1), 30, 1000)
    for row in (3, 11, 20):
        for name in ("id_high", "id_low"):
            pages[name][row] = pages[name][3]
    pages["text"][11] = pages["text"][3]
    places = [
        f"page {pages['number'][row]} of {'ab'[pages['file'][row]]}"
        for row in (3, 20)
    ]
    with pytest.raises(InputError, match=f"^{places[0]} and {places[1]} have"):
        plans.is_first(pages, "ab")


def test_plans_cover_all_kept_blocks_once(monkeypatch):
    monkeypatch.setattr(sources, "PAGES_PER_PART", 3)
    generator = np.random.default_rng(2)
    for _ in range(200):
        pages = make_pages(generator, int(generator.integers(0, 40)), 25)
        is_kept = plans.is_first(pages, "ab")
        expected = []
        num_rows = dict.fromkeys(itertools.product(range(2), range(40)), 0)
        for page, kept in zip(pages, is_kept, strict=True):
            part = int(page["file"]), (int(page["number"]) - 1) // 3
            rows = range(num_rows[part], num_rows[part] + int(page["blocks"]))
            num_rows[part] = rows.stop
            expected += [(part, row) for row in rows if kept]
        shards = plans.plan_shards(
            pages,
            is_kept,
            output="out",
            blocks_per_shard=int(generator.integers(1, 9)),
        )
        found = []
        for shard in shards:
            assert shard.start == len(found)
            for part, low, high in shard.runs:
                assert low < high
                found += [(part, row) for row in range(low, high)]
            assert shard.limit == len(found)
            # As few as can be.
            assert all(
                (one[0], one[2]) != next_one[:2]
                for one, next_one in itertools.pairwise(shard.runs)
            )
        assert found == expected
        sizes = [shard.limit - shard.start for shard in shards]
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_number_of_shards():
    pages = np.zeros(5, parts.PAGES)
    pages["number"] = np.arange(5) + 1
    pages["blocks"] = 2

    def count(pages, blocks_per_shard):
        kept = np.ones(len(pages), "bool")
        return len(
            plans.plan_shards(
                pages, kept, output="out", blocks_per_shard=blocks_per_shard
            )
        )

    assert [count(pages, 4), count(pages, 5), count(pages[:0], 3)] == [3, 2, 0]
