import pytest

from realm_tf.artifacts import model_card
from realm_tf.artifacts.model_card import Card


def _render(card):
    encoder = {"num_layers": 2, "hidden_dim": 4, "vocabulary_size": 9}
    tower = {"encoder": encoder, "pooling": "cls", "projection_dim": None}
    config = {
        "share_embedders": True,
        "query_embedder": tower,
        "reader": {"encoder": encoder, "max_span_width": 10},
        "masked_lm_head": False,
    }
    return model_card.render(card, config, {}, {})


@pytest.mark.parametrize(
    "card", [Card(), Card("Ours.", "mit", languages=("de", "no"))]
)
def test_what_is_written_is_read(card):
    said = model_card.read_header(_render(card))
    assert said.pop("license") == card.license
    assert said.pop("languages", ()) == card.languages
    assert not said


@pytest.mark.parametrize(
    "text, expected",
    [
        ("# No header\nlicense: mit\n", {}),
        ("---\nlicense: [broken\n---\n", {}),
        ("---\n- a list\n---\n", {}),
        (
            "---\nlanguage: en\nlicense: mit\ntags:\n- x\n---\n# Card\n",
            {"license": "mit", "languages": ("en",)},
        ),
        (
            "---\nlanguage:\n- multilingual\n- no\nlicense: other\n---\n",
            {"license": "other", "languages": ("multilingual", "no")},
        ),
    ],
)
def test_headers_of_others(text, expected):
    assert model_card.read_header(text) == expected
