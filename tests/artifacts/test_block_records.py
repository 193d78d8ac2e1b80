import pickle

import numpy as np
import pytest
import python_code

from realm_tf.artifacts import array_files
from realm_tf.artifacts import artifact
from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.objects import Blocks
from realm_tf.errors import InputError
from realm_tf.text.tokenizer import Tokenizer

TEXT = "👍 Café au lait"
VOCABULARY = [f"w{number}" for number in range(70_002)]
VOCABULARY[:5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY[8] = "##e"
BLOCKS = [
    schema.Block(
        block_id=0,
        article_id="a",
        title="Café",
        text=TEXT,
        url="https://example.org/a",
        title_ids=[5],
        token_ids=[6, 7, 8, 9, 10],
        token_starts=[0, 2, 5, 7, 10],
        token_limits=[1, 5, 6, 9, 14],
        sentence_starts=[0],
    ),
    schema.Block(
        block_id=1,
        article_id="b",
        title="",
        text="x",
        token_ids=[11],
        token_starts=[0],
        token_limits=[1],
        sentence_starts=[0],
    ),
]


def _write(directory, blocks, *, max_block_length=20, fingerprint="abc"):
    with artifact.write(str(directory), kind="blocks") as stage:
        path = stage.path("blocks-00000-of-00001.arrow")
        record_files.write_rows(path, schema.Block, blocks)
        array_files.write_vocabulary(str(stage.directory), VOCABULARY)
        stage.metadata.update(
            shard_rows=[len(blocks)],
            num_blocks=len(blocks),
            max_block_length=max_block_length,
            fingerprint=fingerprint,
        )
    return str(directory)


def test_all_of_a_block_by_its_id(tmp_path):
    records = BlockRecords(Blocks(_write(tmp_path / "b", BLOCKS)))
    assert len(records) == 2
    assert list(records.titles) == ["Café", ""]
    assert list(records.texts) == [TEXT, "x"] == records.texts[-2:]
    assert list(records.urls) == ["https://example.org/a", ""]
    assert records.texts[-1] == "x"
    with pytest.raises(IndexError):
        records.texts[2]
    assert records.lengths.tolist() == [5, 1]
    token_ids = records.token_ids()
    assert token_ids.tolist() == [[6, 7, 8, 9, 10], [11, 0, 0, 0, 0]]
    assert records.first_wordpieces.tolist() == [0, 5, 6]
    assert records.token_starts.tolist() == [0, 2, 5, 7, 10, 0]
    assert records.token_limits.tolist() == [1, 5, 6, 9, 14, 1]
    assert records.lengths.dtype == np.int32
    for array in (token_ids, records.token_starts):
        assert array.dtype == np.uint16


@pytest.mark.parametrize(
    "start, limit, expected",
    [
        (0, 1, "👍"),
        (1, 3, "Café"),
        # A word as a whole.
        (1, 2, "Café"),
        (2, 4, "Café au"),
        (1, 4, "Café au"),
        (0, 5, TEXT),
        (4, 5, "lait"),
    ],
)
def test_the_text_of_a_span(tmp_path, start, limit, expected):
    records = BlockRecords(Blocks(_write(tmp_path / "b", BLOCKS)))
    assert records.span_text(0, start, limit) == expected
    (first, last), sentence = records.span_offsets(0, start, limit)
    assert sentence == (0, len(TEXT))
    assert TEXT[first:last] == expected
    assert type(first) is type(last) is int


def test_an_over_long_body_is_cut_to_the_budget(tmp_path):
    records = BlockRecords(
        Blocks(_write(tmp_path / "b", BLOCKS, max_block_length=4))
    )
    assert records.lengths.tolist() == [4, 1]
    assert records.token_ids().tolist() == [[6, 7, 8, 9], [11, 0, 0, 0]]
    assert records.longest == 4
    assert records.texts[0] == TEXT


def test_no_blocks_are_refused(tmp_path):
    directory = _write(tmp_path / "b", [], max_block_length=4)
    with pytest.raises(InputError, match="holds no block"):
        BlockRecords(Blocks(directory))


def test_a_pickled_one_opens_the_blocks_again(tmp_path):
    directory = _write(tmp_path / "b", BLOCKS)
    records = BlockRecords(Blocks(directory))
    content = pickle.dumps(records)
    assert len(content) < 1000
    assert list(pickle.loads(content).texts) == list(records.texts)


def test_reading_needs_no_tensorflow(blocks_dir):
    code = (
        "import sys\n"
        "from realm_tf.artifacts.objects import Blocks\n"
        "from realm_tf.data.inverse_cloze import IctExamples\n"
        f"blocks = Blocks({blocks_dir!r})\n"
        "next(IctExamples(blocks.records, batch_size=2).batches())\n"
        "print([n for n in ('tensorflow', 'keras')"
        " if n in sys.modules])\n"
    )
    assert python_code.run(code) == "[]\n"


def test_numbers_of_more_than_16_bits(tmp_path):
    text = "x" * 70_000 + " y"
    block = schema.Block(0, "a", "", text, token_ids=[5, 70_001])
    block.token_starts, block.token_limits = [0, 70_001], [70_000, 70_002]
    records = BlockRecords(Blocks(_write(tmp_path / "b", [block])))
    assert records.token_ids().tolist() == [[5, 70_001]]
    assert records.token_ids().dtype == np.int32
    assert records.span_text(0, 1, 2) == "y"


def test_wordpieces_of_every_block(blocks_dir):
    found = BlockRecords(Blocks(blocks_dir))
    blocks = list(Blocks(blocks_dir).read())
    assert len(found) == len(blocks) > 6
    tokenizer = Tokenizer.from_file(f"{blocks_dir}/vocab.txt")
    assert found.wordpieces == tokenizer.vocabulary
    for block in blocks:
        one = found[block.block_id]
        assert one.block_id == block.block_id
        assert one.title_ids.tolist() == block.title_ids
        assert one.token_ids.tolist() == block.token_ids
        # Cut at full stops, each sentence tokenised alone is its range.
        texts = [
            block.text[start:limit]
            for start, limit in zip(
                block.sentence_starts, block.sentence_limits(), strict=True
            )
        ]
        ranges = [one.sentence(n) for n in range(len(one.sentence_starts))]
        assert [
            one.token_ids[start:limit].tolist() for start, limit in ranges
        ] == [tokenizer.tokenize(text).ids for text in texts]
    for number in (len(blocks), -1):
        with pytest.raises(IndexError):
            found[number]


def test_blocks_of_an_article_share_its_number(blocks_dir):
    names = [b.article_id for b in Blocks(blocks_dir).read()]
    order = list(dict.fromkeys(names))
    numbers = BlockRecords(Blocks(blocks_dir)).article_numbers()
    assert numbers.tolist() == [order.index(name) for name in names]


_SENTENCES = [
    # Two wordpieces, one, two.
    ([0, 2, 5, 8, 9], [0, 5, 8], [0, 2, 3]),
    # The second and the last sentence hold no wordpiece.
    ([0, 2, 8], [0, 5, 8, 12], [0, 2]),
    # Nothing but white space at the first.
    ([3, 4], [0, 3], [0]),
    ([], [0], []),
    ([0, 1], [0], [0]),
]


def test_where_sentences_begin(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "ROWS_PER_BATCH", 2)
    blocks = [
        schema.Block(
            number,
            "a",
            "A",
            "text",
            token_ids=[7] * len(starts),
            token_starts=starts,
            token_limits=starts,
            sentence_starts=sentences,
        )
        for number, (starts, sentences, _) in enumerate(_SENTENCES)
    ]
    found = BlockRecords(Blocks(_write(tmp_path / "b", blocks)))
    expected = [each for _, _, each in _SENTENCES]
    assert [each.sentence_starts.tolist() for each in found] == expected
    assert found.count_sentences().tolist() == list(map(len, expected))


@pytest.mark.parametrize("spare", [None, 0, 3])
def test_some_blocks_of_each_directory(blocks_dir, spare):
    blocks = Blocks(blocks_dir)
    records = blocks.records
    every, odd = np.arange(len(records)), np.arange(1, len(records), 2)
    rows = np.concatenate([every, odd])
    capacity = None if spare is None else len(rows) + spare
    joined = BlockRecords.joined(
        [(blocks, every), (blocks, odd)], capacity=capacity
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


def test_sentences_without_a_space_between(tmp_path):
    block = schema.Block(
        0,
        "a",
        "",
        "One. 二。三。",
        token_ids=[6, 7, 9, 7, 9],
        token_starts=[0, 5, 6, 7, 8],
        token_limits=[3, 6, 7, 8, 9],
        sentence_starts=[0, 5, 7],
    )
    assert block.sentence_limits() == [4, 7, 9]
    records = Blocks(_write(tmp_path / "blocks", [block])).records
    assert records.line(0) == "One.\n二。三。"
    assert records.span_offsets(0, 1, 2) == ((5, 6), (5, 7))
    assert records.span_offsets(0, 3, 4) == ((7, 8), (7, 9))
