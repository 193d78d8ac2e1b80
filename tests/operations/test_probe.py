"""Probes against a slow recomputation, one block at a time, in float64."""

import keras
import numpy as np
import probe_oracle
import pytest
from probe_oracle import NUM_RETRIEVED

from realm_tf import cli
from realm_tf.artifacts.objects import Blocks
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
def world(make_model, blocks_dir, brute_force_index_dir):
    model = make_model()
    return {
        "model": model,
        "blocks": blocks_dir,
        "index": brute_force_index_dir,
        "loaded": model_directory.load(model),
        "records": list(Blocks(blocks_dir).read()),
    }


def _probe(world, text, answer=(), **changes):
    given = {name: world[name] for name in ("model", "blocks", "index")}
    given |= {"num_retrieved": NUM_RETRIEVED, **changes}
    return Probe(text=text, answer=answer, **given).run()


def _assert_readings(found, block_ids, priors, of_gold):
    """Rows of a probe, with their order."""
    together, *others = found
    marginal = np.exp(priors + of_gold).sum()
    assert together.likelihood == pytest.approx(marginal, rel=1e-4)
    assert [each.block and each.block.block_id for each in others] == block_ids
    for each, prior, log_prob in zip(others, priors, of_gold, strict=True):
        assert each.prior == pytest.approx(np.exp(prior), rel=2e-5)
        assert each.likelihood == pytest.approx(np.exp(log_prob), rel=1e-4)
        # Guu et al., 2020, section 3.3.
        gradient = (np.exp(log_prob) / marginal - 1) * np.exp(prior)
        assert each.gradient == pytest.approx(gradient, abs=1e-5)


def _of_gold(log_probs, gold):
    return log_probs[:, np.arange(len(gold)), gold].sum(1)


@pytest.mark.parametrize(("text", "answers"), CASES)
def test_probabilities(world, text, answers):
    found = _probe(world, text, answers)
    block_ids = [None, *probe_oracle.search(world, text, answers)]
    priors, log_probs, gold = probe_oracle.read(world, text, answers, block_ids)
    _assert_readings(found, block_ids, priors, _of_gold(log_probs, gold))


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

    def block_ids(answer):
        found = _probe(world, RIVER[0], [answer], num_retrieved=11)
        return [each.block.block_id for each in found[2:]]

    assert own not in block_ids("river")
    # A sentence that it does not hold may be read with it.
    assert own in block_ids("city")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "num_masks"),
    [("Ada wrote [MASK].", 1), ("[MASK] wrote music in [MASK].", 2)],
)
def test_predictions_without_an_answer(world, text, num_masks):
    together, *others = _probe(world, text)
    block_ids = [None, *probe_oracle.search(world, text, [])]
    priors, log_probs, _ = probe_oracle.read(world, text, [], block_ids)
    probs = np.exp(log_probs)
    vocabulary = np.array(world["loaded"].tokenizer.vocabulary)
    expected = [np.einsum("k,kmv->mv", np.exp(priors), probs), *probs]
    for each, rows in zip([together, *others], expected, strict=True):
        words, numbers = zip(*each.predictions, strict=True)
        assert len(words) == num_masks
        assert list(words) == vocabulary[rows.argmax(axis=-1)].tolist()
        np.testing.assert_allclose(numbers, rows.max(axis=-1), atol=1e-5)


@pytest.mark.slow
def test_bodies_are_cut_as_in_pre_training(world, make_model):
    text, answers = "Italy flow [MASK].", ["waters"]
    short = make_model(max_block_length=7)
    found = _probe(world, text, answers, model=short)
    block_ids = [each.block and each.block.block_id for each in found[1:]]
    lengths = [len(world["records"][i].token_ids) for i in block_ids[1:]]
    assert max(lengths) > 7
    _, log_probs, gold = probe_oracle.read(
        world, text, answers, block_ids, max_body=7
    )
    np.testing.assert_allclose(
        [each.likelihood for each in found[1:]],
        np.exp(_of_gold(log_probs, gold)),
        rtol=1e-4,
    )


def test_the_command(world, capsys):
    arguments = [
        *("--model", world["model"], "--blocks", world["blocks"]),
        *("--index", world["index"], "--num-retrieved", str(NUM_RETRIEVED)),
    ]
    text, answers = RIVER
    assert cli.main(["probe", text, "--answer", *answers, *arguments]) == 0
    header, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in capsys.readouterr().out.splitlines()
    )
    assert header[:4] == ["z", "p(z", "x)", "p(y"]
    found = _probe(world, text, answers)
    assert [row[0] for row in rows] == [
        *("all", "null"),
        *(str(each.block.block_id) for each in found[2:]),
    ]
    for row, each in zip(rows, found, strict=True):
        assert row[1:4] == [
            f"{each.prior:.4f}",
            f"{each.likelihood:.4g}",
            f"{each.gradient:+.4f}",
        ]
        assert row[4].startswith(f"{each.predictions[0][0]} ")
        title = each.block.title if each.block else ""
        assert row[5].startswith(title)
    # Without an answer only predictions are shown.
    assert cli.main(["probe", text, *arguments]) == 0
    row = capsys.readouterr().out.splitlines()[2].split("|")
    assert [cell.strip() for cell in row[3:5]] == ["", ""]
    ((best, _),) = _probe(world, text)[0].predictions
    assert row[5].strip().startswith(best)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("The Nile is a river.", {}, "holds 0 \\[MASK\\]"),
        ("A [MASK] in [MASK].", {"answer": ["city"]}, "2 \\[MASK\\]: .* 1"),
        ("A [MASK].", {"answer": ["zebra"]}, "'zebra' is not of"),
        ("A [MASK].", {"answer": ["  "]}, "'  ' is not of"),
        ("A [MASK].", {"num_retrieved": 0}, "--num-retrieved 0"),
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
