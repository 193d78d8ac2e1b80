from realm_tf.artifacts import schema
from realm_tf.beam_pipelines import annotate_spans


def block(text, starts=(0,)):
    return schema.Block(7, "1", "Title", text, sentence_starts=list(starts))


def test_places_become_bytes():
    # 4, 3, 2 and 1 bytes a character; the accents are characters too.
    text = "🚢日é e\u0301. 𝔘 b."
    passage, counts = annotate_spans.annotate_block(
        block(text, [0, 8]),
        [(0, 1, "A"), (1, 3, "B"), (4, 6, "A"), (8, 9, "C")],
    )
    assert passage.spans() == ["🚢", "日é", "e\u0301", "𝔘"]
    assert passage.span_byte_start == [0, 4, 10, 15]
    assert passage.span_byte_limit == [4, 9, 13, 19]
    assert passage.span_label == ["A", "B", "A", "C"]
    assert passage.sentences() == ["🚢日é e\u0301.", "𝔘 b."]
    assert passage.sentence_byte_start == [0, 15]
    assert passage.sentence_byte_limit == [14, 22]
    assert (passage.block_id, passage.title) == (7, "Title")
    assert +counts == {
        **{"passages": 1, "sentences": 2, "spans": 4},
        **{"spans_A": 2, "spans_B": 1, "spans_C": 1},
    }


def test_what_crosses_or_overlaps_is_dropped_and_counted():
    text = "Ada was. Bach wrote."
    passage, counts = annotate_spans.annotate_block(
        block(text, [0, 9]),
        [
            # Out of order; ends with the space, or in the next sentence.
            *((9, 13, "x"), (4, 9, "x"), (4, 11, "x"), (8, 9, "x")),
            # The longer of two that begin together stays.
            *((0, 2, "x"), (0, 3, "x"), (10, 15, "x"), (13, 14, "x")),
        ],
    )
    assert passage.spans() == ["Ada", "Bach", " "]
    assert counts["dropped_crossing_spans"] == 3
    assert counts["dropped_overlapping_spans"] == 2
    assert counts["spans"] == 3
    assert counts["passages_without_span"] == 0
