import hashlib

import numpy as np

from realm_tf.beam_pipelines import parts
from realm_tf.beam_pipelines import transforms


def entry(part, *pages):
    """(bucket, (part, pages)) of pages (id, text, number, blocks)."""
    found = []
    for article_id, text, number, blocks in pages:
        digest = hashlib.sha256(article_id.encode()).digest()
        high, low = (int.from_bytes(digest[i : i + 8], "big") for i in (0, 8))
        found.append((high, low, text, number, blocks))
    return 0, (part, np.array(found, dtype=parts.PAGES).tobytes())


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
        result = list(
            transforms.KeepFirst(directory=str(tmp_path), paths={}).process(
                (0, values)
            )
        )
        tagged = [r.value for r in result if hasattr(r, "tag")]

        assert dict(r for r in result if not hasattr(r, "tag")) == kept
        assert tagged[:-2] == dropped
        assert tagged[-2:] == [
            ("articles_kept", len(seen)),
            ("dropped_duplicate", len(dropped)),
        ]
