"""CoNLL files: columns, schemes, compression; errors name the line."""

import bz2
import gzip
import os
import random

import pytest
from seqeval.metrics import classification_report

from realm_tf.errors import InputError
from realm_tf.tagging import conll
from realm_tf.tagging.conll import Sentence

CONLL_2003 = """\
-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC
lamb NN I-NP O

-DOCSTART- -X- O O

Rome NNP I-NP I-LOC
Paris NNP I-NP B-LOC
"""


def _write(path, content):
    if isinstance(content, str):
        content = content.encode("utf-8")
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    "compress", [bytes, gzip.compress, bz2.compress], ids=["", "gz", "bz2"]
)
def test_conll_2003(tmp_path, compress):
    path = _write(tmp_path / "eng", compress(CONLL_2003.encode("utf-8")))
    assert conll.read_sentences(path) == [
        Sentence(
            ("EU", "rejects", "German", "lamb"), ("B-ORG", "O", "B-MISC", "O")
        ),
        Sentence(("Rome", "Paris"), ("B-LOC", "B-LOC")),
    ]


def test_two_columns_by_tab_and_lines_of_a_tab_alone(tmp_path):
    # A no-break space is a word of a tweet, not a gap between columns.
    path = _write(
        tmp_path / "wnut",
        "@you\tO\nGardena\tB-location\n\u00a0\tO\n\t\nEd\tB-creative-work\r\n"
        "Wood\tI-creative-work\r\n",
    )
    assert conll.read_sentences(path) == [
        Sentence(("@you", "Gardena", "\u00a0"), ("O", "B-location", "O")),
        Sentence(("Ed", "Wood"), ("B-creative-work", "I-creative-work")),
    ]


@pytest.mark.parametrize(
    "given, expected",
    [
        # IOB1: B only between two of a type that touch.
        ("I-A I-A O I-A B-A I-A", "B-A I-A O B-A B-A I-A"),
        ("I-A I-B B-B I-B", "B-A B-B B-B I-B"),
        # IOB2 stays.
        ("B-A I-A B-A O B-B", "B-A I-A B-A O B-B"),
        # BIOES.
        ("S-A B-A I-A E-A O S-B S-B", "B-A B-A I-A I-A O B-B B-B"),
        # Ill-formed, as a model may predict it.
        ("O I-A I-B O I-B", "O B-A B-B O B-B"),
        ("B-A E-A I-A", "B-A I-A B-A"),
        ("", ""),
    ],
)
def test_every_scheme_becomes_iob2(given, expected):
    converted = conll.to_iob2(given.split())
    assert converted == expected.split()
    assert conll.to_iob2(converted) == converted


def test_entities():
    tags = ["B-A", "I-A", "B-A", "O", "I-B-c", "I-B-c", "I-A"]
    assert conll.entities(tags) == [
        (0, 2, "A"),
        (2, 3, "A"),
        (4, 6, "B-c"),
        (6, 7, "A"),
    ]


def test_scores_are_seqevals():
    choose = random.Random(0)
    tags = [f"{prefix}-{kind}" for prefix in "BIES" for kind in "ABC"]
    expected, predicted = (
        [choose.choices([*tags, "O"], k=12) for _ in range(100)]
        for _ in range(2)
    )
    wanted = classification_report(expected, predicted, output_dict=True)
    found = conll.entity_scores(expected, predicted)
    assert list(found) == ["A", "B", "C", "all"]
    for name, scores in found.items():
        of_name = wanted["micro avg" if name == "all" else name]
        assert [*scores.values()] == pytest.approx([*of_name.values()])


@pytest.mark.parametrize(
    "content, reason",
    [
        ("a O\nb\n", "file:2: expected a word and, in .* Received: 'b'"),
        ("a\n", "file:1: expected"),
        ("a x O\nb O\n", "file:2: expected .* last of 3 columns"),
        ("a O\n\nb PER\n", "file:3: expected"),
        ("a O\nb B-\n", "file:2: expected"),
        (b"a O\nb\xff O\n", "file:2: not UTF-8"),
        ("-DOCSTART- O\n\n", "file holds no sentence"),
        (gzip.compress(b"a O\n", mtime=0)[:-4], "file is truncated"),
    ],
)
def test_an_error_names_file_and_line(tmp_path, content, reason):
    path = _write(tmp_path / "file", content)
    with pytest.raises(InputError, match=reason):
        conll.read_sentences(path)


@pytest.mark.data
@pytest.mark.parametrize(
    "name, sentences, words, entities",
    [
        # Tjong Kim Sang and De Meulder, 2003, tables 1 and 2.
        ("conll2003/eng.train.gz", 14041, 203621, 23499),
        ("conll2003/eng.testa.gz", 3250, 51362, 5942),
        ("conll2003/eng.testb.gz", 3453, 46435, 5648),
        # Derczynski et al., 2017, table 3.
        ("wnut17/wnut17train.conll.gz", 3394, 62730, 1975),
        ("wikigold/wikigold.conll.txt.gz", 1696, 39007, 3558),
    ],
)
def test_published_counts(name, sentences, words, entities):
    directory = os.environ.get("REALM_DATA_DIR")
    if not directory:
        pytest.skip("REALM_DATA_DIR is not set")
    found = conll.read_sentences(os.path.join(directory, "ner", name))
    assert len(found) == sentences
    assert sum(len(s.words) for s in found) == words
    assert sum(len(conll.entities(s.tags)) for s in found) == entities
