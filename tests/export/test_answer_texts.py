"""Texts of answers in a graph: those of the Python code, of every span."""

import collections

import backends
import numpy as np
import pytest
import tensorflow as tf

from realm_tf.answering import corpus as corpora
from realm_tf.articles.pages import PlainText
from realm_tf.artifacts import array_files
from realm_tf.artifacts import artifact
from realm_tf.artifacts import record_files
from realm_tf.artifacts import schema
from realm_tf.artifacts.block_records import BlockRecords
from realm_tf.artifacts.objects import Blocks
from realm_tf.export import realm_module
from realm_tf.export.corpus_part import CorpusPart
from realm_tf.export.corpus_part import text_of
from realm_tf.retrieval.brute_force import BruteForce
from realm_tf.text import blocks as cutting
from realm_tf.text.answers import normalize_answer
from realm_tf.text.tokenizer import Tokenizer

pytestmark = backends.exports

TEXTS = [
    "Set OCTO_BACKUP_FULL (see “Backups”), or mail jo.doe@a-b.example.org. "
    "The port is 0.0.0.0:5000; run `octo --guess-dummy=yes` in ~/.octo/x.yaml.",
    "Ada Lovelace (1815–1852) wrote “Notes” in the U.S. edition. 'Smith's' was "
    'a 6" pipe, he said "so it is" (twice [2]). It cost $5,000.',
    "東京は日本の首都（1868年）です。大阪はhttps://osaka.example.jp/a_b。好。",
    "ประเทศไทย is Thailand 🚀. Müller’s “Straße” is 3.5 km.\nA line of its own",
    "x.",
]
WIDTHS = (1, 2, 3, 5, 8, 13, 21, 34)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    text = "".join(TEXTS)
    letters = sorted({c.lower() for c in text if not c.isspace()})
    # Of letters with accents.
    letters += [each for each in "uae" if each not in letters]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary += [*letters, *(f"##{letter}" for letter in letters)]
    tokenizer = Tokenizer(vocabulary)
    packing = cutting.Packing(max_length=150)
    articles = [PlainText(title="t", text=each) for each in TEXTS]
    found = cutting.split_articles(articles, tokenizer, packing)
    rows = [
        schema.Block(number, "a", "t", **vars(block))
        for number, block in enumerate(each for row in found for each in row)
    ]
    directory = str(tmp_path_factory.mktemp("blocks") / "b")
    with artifact.write(directory, kind="blocks") as stage:
        record_files.write_rows(
            stage.path("blocks-00000-of-00001.arrow"), schema.Block, rows
        )
        array_files.write_vocabulary(str(stage.directory), vocabulary)
        stage.metadata.update(
            shard_rows=[len(rows)],
            num_blocks=len(rows),
            max_block_length=150,
            fingerprint="abc",
        )
    return BlockRecords(Blocks(directory))


@pytest.fixture(scope="module")
def part(records):
    return CorpusPart(
        records,
        index=BruteForce(np.ones((len(records), 2), "float32")),
        block_table=corpora.block_table(records),
        lexical=None,
    )


def test_every_span_of_every_block(records, part):
    row, start, limit = (
        np.array(values, "int32")
        for values in zip(
            *(
                (row, start, limit)
                for row, length in enumerate(records.lengths)
                for start in range(length)
                for limit in (start + width for width in WIDTHS)
                if limit <= length
            ),
            strict=True,
        )
    )
    assert len(row) > 2000
    slice_ = tf.function(part.slice, autograph=False)
    for are_sentences in (False, True):
        lines = part.lines.lookup(row[None])
        found = slice_(
            row[None],
            lines,
            start[None],
            limit[None],
            tf.constant([are_sentences]),
        )
        found = {name: value.numpy()[0] for name, value in found.items()}
        texts = text_of(lines).numpy()[0]
        for place, (block, *wordpieces) in enumerate(
            zip(row.tolist(), start.tolist(), limit.tolist(), strict=True)
        ):
            text = records.texts[block]
            assert texts[place].decode() == text
            offsets, sentence = records.span_offsets(block, *wordpieces)
            begin, end = sentence
            assert found["sentence"][place].decode() == text[begin:end]
            first, last = sentence if are_sentences else offsets
            assert found["answer"][place].decode() == text[first:last] != ""
            assert (found["start"][place], found["limit"][place]) == (
                *(first, last),
            )


def test_sentences(records):
    text = records.texts[0]
    place = text.index("port is")
    starts = records.token_starts[: records.lengths[0]]
    start = int(np.searchsorted(starts, place))
    (first, last), (begin, end) = records.span_offsets(0, start, start + 1)
    assert text[first:last] == "port"
    assert text[begin:end].startswith("The port is 0.0.0.0:5000;")
    # Of two sentences both.
    _, (begin, end) = records.span_offsets(0, start - 10, start + 1)
    assert (begin, end) == (0, len(text))


def test_no_span_and_no_block(part):
    found = part.slice(
        tf.constant([[0, -1]]),
        part.lines.lookup(tf.constant([[0, -1]])),
        tf.constant([[-1, -1]]),
        tf.constant([[-1, -1]]),
        tf.constant([True]),
    )
    assert found["answer"].numpy().tolist() == [[b"", b""]]
    assert found["sentence"].numpy().tolist() == [[b"", b""]]
    assert found["limit"].numpy().tolist() == [[0, 0]]


@pytest.mark.parametrize(
    "asked, wanted",
    [
        ("BACK", "OCTO_BACKUP_FULL"),
        ("doe@a", "jo.doe@a-b.example.org"),
        ("Lovelace (18", "Lovelace"),
        ("U.S", "U.S"),
        ("(twice [2", "twice [2]"),
        ("5,0", "$5,000"),
        ("日本の", "日本の"),
        ("osaka", "https://osaka.example.jp/a_b"),
    ],
)
def test_answers_of_the_corpus(records, asked, wanted):
    for block, text in enumerate(records.texts):
        place = text.find(asked)
        if place < 0:
            continue
        first, last = records.first_wordpieces[block : block + 2]
        starts = records.token_starts[first:last]
        start = int(np.searchsorted(starts, place, "right")) - 1
        limit = int(np.searchsorted(starts, place + len(asked)))
        assert records.span_text(block, start, limit) == wanted
        return
    raise AssertionError(f"No text holds {asked}.")


def test_equal_answers_add_up():
    rows = [
        ["Rome", "The Nile", "nile.", "a Nile", "", ",", "the", "Oslo"],
        ["a", "b", "c", "d", "e", "f", "g", "h"],
        ["x", "X", "x.", "the x", "x", "x", "x", "x"],
    ]
    is_span = np.ones((3, 8), bool)
    is_span[0, 7] = is_span[1, 2:] = False
    scores = np.linspace(9.0, 8.0, 8, dtype="float32") * np.ones((3, 1))
    chosen, totals = realm_module._different(
        *map(tf.constant, (rows, scores.astype("float32"), is_span))
    )
    for row, scored, allowed, places, found in zip(
        rows, scores, is_span, chosen.numpy(), totals.numpy(), strict=True
    ):
        sums, firsts = collections.defaultdict(float), {}
        for place in np.flatnonzero(allowed):
            key = normalize_answer(row[place]) or row[place]
            sums[key] += np.exp(scored[place])
            firsts.setdefault(key, place)
        wanted = sorted(sums, key=lambda key: -sums[key])[: len(places)]
        number = len(wanted)
        assert places[:number].tolist() == [firsts[key] for key in wanted]
        np.testing.assert_allclose(
            found[:number], [np.log(sums[key]) for key in wanted], rtol=1e-6
        )
        assert (found[number:] == -np.inf).all()
        assert len(places) == realm_module.NUM_ALTERNATIVES
    # Three places of one answer beat the best span.
    assert rows[0][chosen[0, 0].numpy()] == "The Nile"
