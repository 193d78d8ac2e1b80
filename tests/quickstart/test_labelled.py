"""The hand-labelled sets."""

import labelled

from realm_tf import quickstart


def test_the_embedded_sets_are_large_enough():
    passages = labelled.read_passages(quickstart.SENTENCE_BOUNDARIES)
    marked = labelled.read_marked(quickstart.NAMES_AND_DATES)

    assert sum(len(passage) - 1 for passage in passages) >= 200
    assert len(marked) >= 200
    counts = {label: 0 for label in labelled.LABELS}
    for sentence, spans in marked:
        # Every bracket and bar belongs to a mark; unknown labels have no count.
        assert not set("[]|") & set(sentence), sentence
        limits = [0]
        for start, limit, label in spans:
            assert limits[-1] <= start < limit <= len(sentence)
            assert sentence[start:limit].strip() == sentence[start:limit]
            limits.append(limit)
            counts[label] += 1
    assert min(counts.values()) >= 20, counts
    # Nothing to find is a case, too.
    assert any(not spans for _, spans in marked)


def test_no_sentence_occurs_twice():
    passages = labelled.read_passages(quickstart.SENTENCE_BOUNDARIES)
    for found in (
        [sentence for passage in passages for sentence in passage],
        [s for s, _ in labelled.read_marked(quickstart.NAMES_AND_DATES)],
    ):
        assert len(set(found)) == len(found)
