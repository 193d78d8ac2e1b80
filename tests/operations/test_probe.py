"""Probes against a slow recomputation, one block at a time, in float64."""

import dataclasses
import json

import keras
import numpy as np
import probe_oracle
import pytest
from probe_oracle import NUM_RETRIEVED

from realm_tf import cli
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.packed_blocks import pack_blocks
from realm_tf.configs.pretrain import RECIPES
from realm_tf.errors import InputError
from realm_tf.models import model_directory
from realm_tf.models.knowledge_augmented_encoder import (
    KnowledgeAugmentedEncoder,
)
from realm_tf.operations.probe import Probe

RECIPE = RECIPES["tiny"].flat()
RIVER = ("The Nile is a [MASK].", ["river"])
CASES = [
    RIVER,
    # Two wordpieces: water ##s.
    ("The [MASK] of Italy flow to Rome.", ["waters"]),
    ("Ada wrote [MASK] in [MASK].", ["a number", "1843"]),
]


@pytest.fixture(scope="module")
def make_model(tmp_path_factory, model_dir):
    """Makes model directories with a masked-LM head, of the same towers."""

    def make(**recipe):
        loaded = model_directory.load(model_dir)
        keras.utils.set_random_seed(5)
        encoder = KnowledgeAugmentedEncoder(loaded.model.reader.encoder)
        for variable in encoder.get_layer("masked_lm_head").weights:
            if "intermediate" in variable.path and len(variable.shape) > 1:
                variable.assign(25.0 * variable)
        loaded.model.knowledge_augmented_encoder = encoder
        path = str(tmp_path_factory.mktemp("probe") / "model")
        model_directory.save(loaded, path, parameters={**RECIPE, **recipe})
        return path

    return make


@pytest.fixture(scope="module")
def world(tmp_path_factory, make_model, blocks_dir, brute_force_index_dir):
    packed = str(tmp_path_factory.mktemp("probe") / "packed")
    pack_blocks(blocks_dir, packed)
    model = make_model()
    return {
        "model": model,
        "blocks": blocks_dir,
        "packed": packed,
        "index": brute_force_index_dir,
        "loaded": model_directory.load(model),
        "records": list(Blocks(blocks_dir).read()),
    }


def _probe(world, text, answer=(), **changes):
    given = {name: world[name] for name in ("model", "blocks", "index")}
    given |= {"num_retrieved": NUM_RETRIEVED, **changes}
    return Probe(text=text, answer=answer, **given).run()


def _assert_blocks(found, block_ids, priors, of_gold):
    """Rows of a probe, whatever their order, and the order itself."""
    marginal = np.log(np.exp(priors + of_gold).sum())
    assert found.blocks[0].block_id is None
    by_prior = [block.retrieval_log_prob for block in found.blocks[1:]]
    assert by_prior == sorted(by_prior, reverse=True)
    places = {block_id: place for place, block_id in enumerate(block_ids)}
    assert sorted(places[block.block_id] for block in found.blocks) == list(
        range(len(block_ids))
    )
    for block in found.blocks:
        place = places[block.block_id]
        prior, log_prob = priors[place], of_gold[place]
        assert block.retrieval_log_prob == pytest.approx(prior, abs=2e-5)
        assert block.answer_log_prob == pytest.approx(log_prob, abs=1e-4)
        # Guu et al., 2020, section 3.3.
        gradient = (np.exp(log_prob) / np.exp(marginal) - 1) * np.exp(prior)
        assert block.gradient == pytest.approx(gradient, abs=1e-5)
    assert found.marginal_log_prob == pytest.approx(marginal, abs=1e-4)


def _of_gold(log_probs, gold):
    return log_probs[:, np.arange(len(gold)), gold].sum(1)


@pytest.mark.parametrize(("text", "answers"), CASES)
def test_probabilities(world, text, answers):
    found = _probe(world, text, answers)
    retrieved, left_out = probe_oracle.search(world, text, answers)
    assert found.left_out == left_out
    block_ids = [None, *retrieved]
    priors, log_probs, gold = probe_oracle.read(world, text, answers, block_ids)
    _assert_blocks(found, block_ids, priors, _of_gold(log_probs, gold))
    assert found.retrieved_log_prob == found.marginal_log_prob
    assert not any(block.is_added for block in found.blocks)
    pieces = [piece for answer in found.answers for piece in answer]
    assert pieces == [world["loaded"].tokenizer.vocabulary[i] for i in gold]
    assert {b.block_id: (b.title, b.text) for b in found.blocks[1:]} == {
        i: (world["records"][i].title, world["records"][i].text)
        for i in retrieved
    }


def _own_block(world):
    (own,) = (
        block.block_id
        for block in world["records"]
        if "The Nile is a river." in block.text
    )
    return own


@pytest.mark.slow
def test_the_sentence_s_own_block_is_left_out(world):
    own = _own_block(world)
    # All of them: it is left out wherever it would stand.
    found = _probe(world, *RIVER, num_retrieved=11)
    assert found.left_out == [own]
    assert own not in [block.block_id for block in found.blocks]
    # What it does not hold, it may be read for.
    found = _probe(world, "The Nile is a [MASK].", ["city"], num_retrieved=11)
    assert own in [block.block_id for block in found.blocks]
    assert found.left_out == []


@pytest.mark.slow
def test_added_blocks(world):
    retrieved, left_out = probe_oracle.search(world, *RIVER)
    own = _own_block(world)
    far = next(
        block_id
        for block_id in range(11)
        if block_id not in [*retrieved, *left_out, own]
    )
    wanted = [own, retrieved[0], far, own]
    found = _probe(world, *RIVER, block_id=wanted)
    block_ids = [None, *retrieved, own, far]
    priors, log_probs, gold = probe_oracle.read(world, *RIVER, block_ids)
    _assert_blocks(found, block_ids, priors, _of_gold(log_probs, gold))
    assert {b.block_id for b in found.blocks if b.is_added} == {own, far}
    # The model's own prediction stays what it is.
    own_ids = [None, *retrieved]
    priors, log_probs, gold = probe_oracle.read(world, *RIVER, own_ids)
    expected = np.log(np.exp(priors + _of_gold(log_probs, gold)).sum())
    assert found.retrieved_log_prob == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "num_masks"),
    [("Ada wrote [MASK].", 1), ("[MASK] wrote music in [MASK].", 2)],
)
def test_predictions_without_an_answer(world, text, num_masks):
    found = _probe(world, text)
    assert found.answers == []
    assert found.marginal_log_prob is found.retrieved_log_prob is None
    retrieved, _ = probe_oracle.search(world, text, [])
    block_ids = [None, *retrieved]
    priors, log_probs, _ = probe_oracle.read(world, text, [], block_ids)
    probs = dict(zip(block_ids, np.exp(log_probs), strict=True))
    vocabulary = np.array(world["loaded"].tokenizer.vocabulary)

    def check(predictions, expected):
        assert len(predictions) == num_masks
        for best, row in zip(predictions, expected, strict=True):
            order = np.argsort(-row)[:5]
            assert [w.wordpiece for w in best] == vocabulary[order].tolist()
            np.testing.assert_allclose(
                [w.probability for w in best], row[order], atol=1e-5
            )

    for block in found.blocks:
        assert block.answer_log_prob is block.gradient is None
        check(block.predictions, probs[block.block_id])
    check(
        found.predictions,
        np.einsum("k,kmv->mv", np.exp(priors), np.exp(log_probs)),
    )


@pytest.mark.slow
def test_packed_blocks_give_the_same(world):
    found = _probe(world, *RIVER)
    packed = _probe(world, *RIVER, blocks=world["packed"])
    assert packed.left_out == found.left_out
    for one, other in zip(packed.blocks, found.blocks, strict=True):
        assert one.text == other.text.lower()
        assert one.title == other.title.lower()
        assert (
            dataclasses.replace(one, title=other.title, text=other.text)
            == other
        )


@pytest.mark.slow
def test_blocks_are_cut_as_in_pre_training(world, make_model):
    text, answers = "Italy flow [MASK].", ["waters"]
    query, _, _ = probe_oracle.masked_query(world["loaded"], text, answers)
    short = make_model(max_block_length=7, max_joint_length=8)
    found = _probe(world, text, answers, model=short)
    block_ids = [block.block_id for block in found.blocks]
    lengths = [len(world["records"][i].token_ids) for i in block_ids[1:]]
    assert max(lengths) > 7
    # A joint length of 8 would leave nothing of a body beside this query of
    # 7; 7 + 7 leave 6.
    assert len(query) == 7
    priors, log_probs, gold = probe_oracle.read(
        world, text, answers, block_ids, 7, 6
    )
    _assert_blocks(found, block_ids, priors, _of_gold(log_probs, gold))


def test_the_command(world, capsys):
    arguments = [
        *("--model", world["model"], "--blocks", world["blocks"]),
        *("--index", world["index"], "--num-retrieved", str(NUM_RETRIEVED)),
    ]
    text, answers = RIVER
    command = ["probe", text, "--answer", *answers, *arguments]
    assert cli.main([*command, "--block-id", "0", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    found = _probe(world, text, answers, block_id=[0])
    assert record == json.loads(found.to_json())
    assert record["marginal_probability"] == pytest.approx(
        np.exp(found.marginal_log_prob)
    )
    assert [b["answer_probability"] for b in record["blocks"]] == pytest.approx(
        [np.exp(block.answer_log_prob) for block in found.blocks]
    )
    assert cli.main(command) == 0
    found = _probe(world, text, answers)
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[:2] == [f"x = {text}", "y = river   (wordpieces: river)"]
    for block in found.blocks[1:]:
        (line,) = (
            line for line in lines if line.split()[:1] == [str(block.block_id)]
        )
        assert f" {block.gradient:+.4f} " in line and block.title in line
    assert f"({found.retrieved_log_prob:.2f} nats)" in printed
    # Without an answer, predictions stand where it stood.
    assert cli.main(["probe", text, *arguments]) == 0
    printed = capsys.readouterr().out
    found = _probe(world, text)
    best = found.predictions[0][0]
    assert f"predicted over all: {best.wordpiece} " in printed
    assert "p(y|" not in printed


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("The Nile is a river.", {}, "holds no \\[MASK\\]"),
        ("A [MASK] in [MASK].", {"answer": ["city"]}, "2 \\[MASK\\], but"),
        ("A [MASK].", {"answer": ["zebra"]}, "'zebra' holds what"),
        ("A [MASK].", {"answer": ["  "]}, "'  ' is empty"),
        ("A [MASK].", {"num_retrieved": 0}, "--num-retrieved 0"),
        ("A [MASK].", {"block_id": [3, 11]}, "blocks 0 to 10.*--block-id 11"),
        ("A [MASK].", {"block_id": [-1]}, "--block-id -1"),
        ("a " * 600 + "[MASK]", {}, "can be 603 wordpieces"),
        ("A [MASK].", {"index": "nowhere"}, "nowhere does not exist"),
    ],
)
def test_wrong_arguments(world, text, arguments, message):
    with pytest.raises(InputError, match=message):
        _probe(world, text, **arguments)


def test_directories_that_do_not_fit(world, model_dir, tmp_path, make_model):
    with pytest.raises(InputError, match="no masked-LM head.*`realm pretrain`"):
        _probe(world, *RIVER, model=model_dir)
    loaded = model_directory.load(world["model"])
    for variable in loaded.model.block_embedder.trainable_variables:
        variable.assign(1.5 * variable)
    other = str(tmp_path / "other")
    model_directory.save(loaded, other)
    with pytest.raises(InputError, match="not made from the block tower"):
        _probe(world, *RIVER, model=other)
