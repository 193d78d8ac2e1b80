import hashlib
import json

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import assert_that
from apache_beam.testing.util import equal_to

from realm_tf.beam_pipelines import execution
from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines import sources
from realm_tf.beam_pipelines import transforms
from realm_tf.errors import InputError


def entry(part, *pages):
    """(bucket, (part, pages)) of pages (id, text, number, blocks)."""
    found = []
    for article_id, text, number, blocks in pages:
        digest = hashlib.sha256(article_id.encode()).digest()
        high, low = (int.from_bytes(digest[i : i + 8], "big") for i in (0, 8))
        found.append((high, low, text, number, blocks))
    return 0, (part, np.array(found, dtype=parts.PAGES).tobytes())


def keep_first(directory, paths=(), formats=()):
    inputs = sources.Inputs(list(paths), list(formats), [None] * len(paths))
    return transforms.KeepFirst(str(directory), inputs)


def test_keep_first(tmp_path):
    entries = [
        entry((1, 0), ("a", 5, 5, 2), ("c", 1, 6, 1)),
        entry((0, 3), ("a", 5, 8, 2), ("b", 7, 9, 4), ("a", 5, 10, 2)),
        entry((0, 12), ("b", 7, 1, 4)),
    ]
    with test_pipeline.TestPipeline(runner=execution.LOCAL_RUNNER) as pipeline:
        found = (
            pipeline
            | beam.Create(entries)
            | beam.GroupByKey()
            | beam.ParDo(keep_first(tmp_path)).with_outputs(
                "dropped", "counts", main="kept"
            )
        )
        assert_that(
            found.kept,
            equal_to([((0, 3), 6), ((0, 12), 0), ((1, 0), 1)]),
            "kept",
        )
        assert_that(
            found.dropped,
            equal_to([((0, 3), 10), ((0, 12), 1), ((1, 0), 5)]),
            "dropped",
        )
        assert_that(
            found.counts,
            equal_to([("articles_kept", 3), ("dropped_duplicate", 3)]),
            "counts",
        )


def test_keep_first_against_a_loop(tmp_path):
    generator = np.random.default_rng(5)
    for _ in range(50):
        found = {}
        for number in range(1, 41):
            part = tuple(generator.integers(0, 3, 2).tolist())
            article_id = str(generator.integers(0, 25))
            found.setdefault(part, []).append(
                (article_id, int(article_id), number, int(article_id) + 1)
            )
        seen = set()
        kept = dict.fromkeys(found, 0)
        dropped = []
        for part in sorted(found):
            for article_id, _, number, blocks in found[part]:
                if article_id in seen:
                    dropped.append((part, number))
                else:
                    seen.add(article_id)
                    kept[part] += blocks
        values = [entry(part, *pages)[1] for part, pages in found.items()]
        generator.shuffle(values)
        result = list(keep_first(tmp_path).process((0, values)))
        tagged = [r.value for r in result if hasattr(r, "tag")]

        assert dict(r for r in result if not hasattr(r, "tag")) == kept
        assert tagged[:-2] == dropped
        assert tagged[-2:] == [
            ("articles_kept", len(seen)),
            ("dropped_duplicate", len(dropped)),
        ]


def test_one_id_with_two_texts_names_both_places(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(
        "".join(
            json.dumps({"id": i, "title": "T", "text": t}) + "\n"
            for i, t in [("a", "One."), ("b", "Two."), ("a", "Other.")]
        )
    )
    first = entry((0, 0), ("a", 1, 1, 1), ("b", 2, 2, 1))[1]
    other = entry((0, 1), ("a", 3, 3, 1))[1]
    transform = keep_first(tmp_path, [str(path)], ["jsonl"])

    assert list(transform.process((0, [other, first]))) == []
    assert resumable.has_error(str(tmp_path))
    with pytest.raises(InputError) as caught:
        resumable.raise_error(str(tmp_path))
    assert str(caught.value) == (
        f"article id 'a' stands at {path}:1 and, with another text, at "
        f"{path}:3: give every article its own id or leave one of the files "
        "out."
    )
    resumable.clean(str(tmp_path))
    resumable.raise_error(str(tmp_path))
