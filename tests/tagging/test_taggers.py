import re
import sys
import types

import pytest
from sentence_blocks import block_of

from realm_tf.artifacts import artifact
from realm_tf.errors import InputError
from realm_tf.tagging import taggers


def marked(tagger, *blocks):
    """Texts and labels instead of places."""
    return [
        [(each.text[start:limit], label) for start, limit, label in spans]
        for each, spans in zip(blocks, tagger.tag(list(blocks)), strict=True)
    ]


SUEZ = block_of(
    "In 1869 🚢 the Suez Canal had no locks.",
    "At 日本, Café Zürich sold 12 million cups.",
)


def test_rules():
    assert marked(taggers.RulesTagger(), SUEZ, block_of("It is so.")) == [
        [
            ("1869", "date"),
            ("Suez Canal", "name"),
            ("Café Zürich", "name"),
            ("12 million", "number"),
        ],
        [],
    ]


def test_links_and_the_dates_between_them():
    linked = block_of(
        "🎼 Bach wrote in June 1723.",
        "Leipzig, a †, saw the 1723 Cantata and, in 1724, the †† of x.",
        links=["Bach", "†, ", "x", "Leipzig", "1723 Cantata", "††"],
    )
    assert marked(taggers.LinksTagger(), linked, block_of("Bach.")) == [
        [
            ("Bach", "link"),
            ("June 1723", "date"),
            ("Leipzig", "link"),
            ("1723 Cantata", "link"),
            ("1724", "date"),
        ],
        [],
    ]


def test_without_overlaps():
    spans = [(5, 9, "a"), (8, 12, "b"), (0, 5, "c"), (9, 10, "d"), (5, 9, "e")]
    assert taggers.without_overlaps(spans) == [
        (0, 5, "c"),
        (5, 9, "a"),
        (9, 10, "d"),
    ]


class FakePipeline:
    """Marks each word that begins with a capital letter."""

    meta = {"version": "1.2.3"}

    def __init__(self):
        self.calls = []

    def pipe(self, texts, batch_size):
        self.calls.append((list(texts), batch_size))
        for text in texts:
            entities = (
                types.SimpleNamespace(
                    start_char=word.start(), end_char=word.end(), label_="ORG"
                )
                for word in re.finditer(r"\b[A-Z]\w*", text)
            )
            yield types.SimpleNamespace(ents=tuple(entities))


@pytest.fixture
def spacy(monkeypatch):
    """Stands in for spaCy: its pipeline is called `shouting`."""
    pipeline = FakePipeline()

    def load(name):
        if name != "shouting":
            raise OSError(f"[E050] Can't find model '{name}'.")
        return pipeline

    module = types.ModuleType("spacy")
    module.load = load
    module.__version__ = "9.8.7"
    monkeypatch.setitem(sys.modules, "spacy", module)
    return pipeline


def test_spacy_gets_sentences_and_gives_places_in_the_block(spacy):
    tagger = taggers.make_tagger("spacy", tagger_model="shouting")
    blocks = [SUEZ, block_of("no"), block_of("Ada.", "In Rome.")]
    assert marked(tagger, *blocks) == [
        [
            ("In", "ORG"),
            ("Suez", "ORG"),
            ("Canal", "ORG"),
            ("At", "ORG"),
            ("Café", "ORG"),
            ("Zürich", "ORG"),
        ],
        [],
        [("Ada", "ORG"), ("In", "ORG"), ("Rome", "ORG")],
    ]
    assert spacy.calls == [
        (
            [
                "In 1869 🚢 the Suez Canal had no locks.",
                "At 日本, Café Zürich sold 12 million cups.",
                *("no", "Ada.", "In Rome."),
            ],
            32,
        )
    ]


def test_spacy_forgets_words_where_it_can(spacy):
    entered = []

    class Zone:
        def __enter__(self):
            entered.append(True)

        def __exit__(self, *_):
            entered.append(False)

    spacy.memory_zone = Zone
    tagger = taggers.SpacyTagger("shouting")
    assert marked(tagger, block_of("To Rome.")) == [
        [("To", "ORG"), ("Rome", "ORG")]
    ]
    assert entered == [True, False]


def test_what_is_missing_of_spacy_is_named(spacy, monkeypatch):
    with pytest.raises(InputError) as caught:
        taggers.make_tagger("spacy")
    assert "--tagger-model en_core_web_sm" in str(caught.value)
    assert "python -m spacy download en_core_web_sm" in str(caught.value)
    # What `import` makes of it then is an ImportError.
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(InputError) as caught:
        taggers.make_tagger("spacy", tagger_model="de_core_news_sm")
    assert "pip install spacy" in str(caught.value)
    assert "spacy download de_core_news_sm" in str(caught.value)


def test_bert(tagger_dir):
    tagger = taggers.make_tagger("bert", tagger_model=tagger_dir)
    assert tagger.tag([SUEZ]) == taggers.BertTagger(tagger_dir).tag([SUEZ])


def test_identity(tmp_path, spacy, tagger_dir):
    assert taggers.identity("rules") == "rules"
    assert taggers.identity("links") == "links"
    assert (
        taggers.identity("spacy", tagger_model="shouting")
        == "shouting 1.2.3, spaCy 9.8.7"
    )
    metadata = artifact.read(tagger_dir)
    assert (
        taggers.identity("bert", tagger_model=tagger_dir)
        == metadata["fingerprint"]
    )
    with pytest.raises(InputError, match="none does not exist"):
        taggers.identity("bert", tagger_model=str(tmp_path / "none"))


@pytest.mark.parametrize(
    "name, arguments, reason",
    [
        ("bert", {}, "--tagger bert needs --tagger-model"),
        (
            "rules",
            {"tagger_model": "x"},
            "--tagger-model belongs to --tagger bert and spacy. Received: --tagger rules",
        ),
    ],
)
def test_wrong_arguments_are_named(name, arguments, reason):
    with pytest.raises(InputError, match=reason):
        taggers.identity(name, **arguments)
