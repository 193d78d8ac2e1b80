import pytest

from realm_tf.artifacts import array_files
from realm_tf.artifacts import artifact
from realm_tf.artifacts import packed_blocks
from realm_tf.artifacts import schema
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.packed_blocks import PackedBlocks
from realm_tf.artifacts.packed_blocks import pack_blocks
from realm_tf.errors import InputError
from realm_tf.text.tokenizer import Tokenizer


@pytest.fixture
def packed(blocks_dir, tmp_path):
    pack_blocks(blocks_dir, str(tmp_path / "packed"))
    return str(tmp_path / "packed")


def test_every_block_comes_back(packed, blocks_dir):
    found = PackedBlocks(packed)
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
    with pytest.raises(IndexError):
        found[len(blocks)]
    with pytest.raises(IndexError):
        found[-1]


def test_metadata_and_counts(packed, blocks_dir):
    blocks = list(Blocks(blocks_dir).read())
    metadata = artifact.read(packed, kind="packed_blocks")
    source = artifact.read(blocks_dir, kind="blocks")
    assert metadata["parents"] == {"blocks": source["fingerprint"]}
    assert metadata["tokenizer"] == source["tokenizer"]
    assert metadata["num_blocks"] == len(blocks)
    single = sum(len(b.sentence_starts) == 1 for b in blocks)
    assert 0 < single < len(blocks)
    assert metadata["counts"] == {
        "blocks": len(blocks),
        "articles": 6,
        "sentences": 18,
        "wordpieces": sum(len(b.token_ids) for b in blocks),
        "blocks_of_one_sentence": single,
    }
    found = PackedBlocks(packed)
    assert found.fingerprint == source["fingerprint"]
    assert found.count_sentences().tolist() == [
        len(b.sentence_starts) for b in blocks
    ]


def test_blocks_of_an_article_share_its_number(packed, blocks_dir):
    names = [b.article_id for b in Blocks(blocks_dir).read()]
    order = list(dict.fromkeys(names))
    numbers = PackedBlocks(packed).article_numbers()
    assert numbers.tolist() == [order.index(name) for name in names]


def test_tables(packed, blocks_dir, monkeypatch):
    # More parts than one.
    monkeypatch.setattr(array_files, "_PART", 4)
    found = PackedBlocks(packed)
    blocks = list(Blocks(blocks_dir).read())
    for max_length in (5, 1000):
        for (table, lengths), rows in (
            (found.bodies(max_length), [b.token_ids for b in blocks]),
            (found.titles(max_length), [b.title_ids for b in blocks]),
        ):
            expected = [row[:max_length] for row in rows]
            width = max(map(len, expected))
            assert table.dtype == "uint16"
            assert lengths.tolist() == list(map(len, expected))
            assert table.tolist() == [
                row + [0] * (width - len(row)) for row in expected
            ]


@pytest.mark.parametrize(
    ("starts", "sentences", "expected"),
    [
        # Two wordpieces, one, two.
        ([0, 2, 5, 8, 9], [0, 5, 8], [0, 2, 3]),
        # The second and the last sentence hold no wordpiece.
        ([0, 2, 8], [0, 5, 8, 12], [0, 2]),
        # Nothing but white space at the first.
        ([3, 4], [0, 3], [0]),
        ([], [0], []),
        ([0, 1], [0], [0]),
    ],
)
def test_where_sentences_begin(starts, sentences, expected):
    block = schema.Block(
        0,
        "a",
        "A",
        "text",
        token_ids=[7] * len(starts),
        token_starts=starts,
        sentence_starts=sentences,
    )
    assert packed_blocks.sentence_starts(block).tolist() == expected


def test_wrong_directories_are_refused(blocks_dir, packed, model_dir, tmp_path):
    with pytest.raises(InputError, match="holds 'blocks', expected"):
        PackedBlocks(blocks_dir)
    with pytest.raises(InputError, match="expected 'blocks'"):
        pack_blocks(model_dir, str(tmp_path / "other"))
    with pytest.raises(InputError, match="exists already"):
        pack_blocks(blocks_dir, packed)
    with pytest.raises(InputError, match="not on a local disk"):
        pack_blocks(blocks_dir, "gs://bucket/packed")
