"""Directories of Sentence Transformers, against its own embeddings."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from init_runs import init

from realm_tf import cli
from realm_tf.checkpoints import sentence_transformers
from realm_tf.errors import InputError
from realm_tf.text import packing

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/sentence_transformers"
TEXTS = [
    "what is the river of rome ?",
    "Bach wrote organ music in 1750.",
    "the Nile is in Egypt",
    "a",
]


def _packed(tokenizer):
    """All texts as one batch, `[CLS] x [SEP]`."""
    return packing.join_bert(
        [(tokenizer.tokenize(text).ids,) for text in TEXTS],
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        pad_id=tokenizer.pad_id,
        max_length=40,
    )


# e5 has no module that normalises, and is compared by cosine.
@pytest.mark.parametrize(
    ("kind", "has_prompts"), [("minilm", False), ("bge", True), ("e5", True)]
)
def test_the_embeddings_are_its_own(kind, has_prompts, tmp_path):
    loaded = init(GOLDEN / kind, tmp_path / "model")
    model = loaded.model
    assert loaded.tokenizer.vocabulary_size == 44
    inputs = _packed(loaded.tokenizer)
    with np.load(GOLDEN / kind / "outputs.npz") as file:
        expected = dict(file)
    for tower, name in (
        (model.query_embedder, "query"),
        (model.block_embedder, "passage"),
    ):
        wanted = expected[name]
        wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
        np.testing.assert_allclose(np.asarray(tower(inputs)), wanted, atol=1e-5)
    assert model.share_embedders == (not has_prompts)
    assert model.score_scale == 20
    assert loaded.block_segment_ids == (0, 0)


def test_a_prompt_is_part_of_the_model(tmp_path):
    """Also of a copy, and of one that learns."""
    loaded = init(GOLDEN / "e5", tmp_path / "model")
    tower = loaded.model.query_embedder
    inputs = _packed(loaded.tokenizer)
    expected = np.asarray(tower(inputs))
    assert tower.max_length == 64 - 2
    np.testing.assert_array_equal(np.asarray(tower.copy()(inputs)), expected)
    other = init(
        GOLDEN / "e5", tmp_path / "other", *("--set", "query_prefix=passage: ")
    )
    assert other.model.share_embedders
    np.testing.assert_array_equal(
        np.asarray(other.model.query_embedder(inputs)),
        np.asarray(loaded.model.block_embedder(inputs)),
    )


def test_rows_of_padding_stay_empty(tmp_path):
    tower = init(GOLDEN / "e5", tmp_path / "model").model.query_embedder
    zeros = np.zeros((2, 5), "int32")
    names = ("token_ids", "segment_ids", "padding_mask")
    read = tower.get_layer("prefix")(dict.fromkeys(names, zeros))
    for rows in read.values():
        np.testing.assert_array_equal(np.asarray(rows), np.zeros((2, 7)))


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "1_Pooling/config.json",
            {"pooling_mode": "max", "pooling_mode_max_tokens": True},
            "asks for the pooling .*max.*: expected the first position's",
        ),
        (
            "1_Pooling/config.json",
            {"include_prompt": False},
            "leaves prompts out of the mean",
        ),
        (
            "modules.json",
            [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}],
            "names a Dense in 2_Dense: expected a Transformer",
        ),
        ("modules.json", None, "missing or no JSON"),
        (
            "config_sentence_transformers.json",
            {"similarity_fn_name": "euclidean"},
            "compares by euclidean: expected dot or cosine",
        ),
    ],
)
def test_what_no_tower_has_is_refused(tmp_path, file, change, message):
    directory = tmp_path / "source"
    shutil.copytree(GOLDEN / "minilm", directory)
    path = directory / file
    content = path.read_text()
    if isinstance(change, dict):
        content = json.dumps(json.loads(content) | change)
    elif change:
        content = json.dumps(json.loads(content) + change)
    path.write_text(content if change else "{")
    with pytest.raises(InputError, match=message):
        sentence_transformers.read(str(directory))


@pytest.mark.parametrize(
    ("change", "is_cosine"),
    [
        ({"similarity_fn_name": "dot"}, False),
        ({"similarity_fn_name": "cosine"}, True),
        ({"similarity_fn_name": None}, True),
        (None, True),
    ],
)
def test_it_compares_by_cosine_if_nothing_is_said(tmp_path, change, is_cosine):
    directory = tmp_path / "source"
    shutil.copytree(GOLDEN / "minilm", directory)
    modules = json.loads((directory / "modules.json").read_text())
    kept = [m for m in modules if not m["type"].endswith("Normalize")]
    assert len(kept) == len(modules) - 1
    (directory / "modules.json").write_text(json.dumps(kept))
    path = directory / "config_sentence_transformers.json"
    if change is None:
        path.unlink()
    else:
        content = json.loads(path.read_text()) | change
        path.write_text(json.dumps(content))
    assert sentence_transformers.read(str(directory)).normalize == is_cosine


def test_how_it_embeds_is_not_asked_twice(tmp_path, capsys):
    command = ["init", "--from", "hf", "--source", str(GOLDEN / "bge")]
    output = ["--set", "cosine=true", "--output", str(tmp_path / "model")]
    assert cli.main([*command, *output]) == 2
    assert (
        "leave --set cosine and --set projection_dim out"
        in capsys.readouterr().err
    )
