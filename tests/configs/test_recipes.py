import typing

import pytest

from realm_tf import losses
from realm_tf.configs import dpr
from realm_tf.configs import finetune
from realm_tf.configs import ict
from realm_tf.configs import pretrain
from realm_tf.configs import tagger
from realm_tf.configs.recipes import Optimizer
from realm_tf.configs.recipes import nearest
from realm_tf.data import masked_queries
from realm_tf.errors import InputError
from realm_tf.retrieval import retrievers

CONFIGS = (dpr, finetune, ict, pretrain, tagger)
RECIPES = [
    pytest.param(configs, name, id=f"{configs.__name__}-{name}")
    for configs in CONFIGS
    for name in configs.RECIPES
]


@pytest.mark.parametrize("configs, name", RECIPES)
def test_a_recipe_is_had_by_name_and_written_flat(configs, name):
    recipe = configs.RECIPES[name]
    flat = recipe.flat()
    # JSON values, as metadata.json holds them.
    assert {type(value) for value in flat.values()} <= {int, float, bool, str}
    assert type(recipe)().replace(**flat) == recipe
    # Through the words of a command line, from any other.
    for other in configs.RECIPES.values():
        near, words = nearest({"other": other}, recipe)
        assert near == "other" and other.parse(words) == recipe
    assert nearest(configs.RECIPES, recipe) == (name, ())


def test_the_papers_pre_training():
    # Guu et al., 2020, section 4.3 and appendix A.
    paper = pretrain.RECIPES["paper"]
    assert (paper.num_steps, paper.batch_size) == (200_000, 512)
    assert paper.optimizer == Optimizer(learning_rate=3e-5)
    # And the null block.
    assert paper.num_retrieved == 7
    assert paper.index.refresh_every == 500
    assert (paper.masking.mode, paper.masking.mask_numbers) == (
        "salient",
        False,
    )
    assert paper.masked_lm.masked_lm_steps == 0
    # The original's launcher.
    assert paper.masking.max_masked == 10
    lengths = paper.lengths
    assert (
        lengths.max_query_length,
        lengths.max_block_length,
        lengths.max_joint_length,
    ) == (96, 288, 384)


@pytest.mark.parametrize(
    "name, num_questions, num_updates",
    [
        # NQ-open's 79,168 training questions, twice; the 3,417 that ORQA's
        # split leaves of WebQuestions', 20 times: each changes the weights.
        ("orqa", 79_168, 158_336),
        ("orqa_small_set", 3_417, 68_340),
    ],
)
def test_the_originals_fine_tuning(name, num_questions, num_updates):
    recipe = finetune.RECIPES[name]
    batches = num_questions // recipe.batch_size
    optimizer = recipe.optimizer
    updates = batches // optimizer.gradient_accumulation_steps
    assert recipe.num_epochs * updates == num_updates
    assert optimizer == Optimizer(learning_rate=1e-5)
    assert recipe.candidates == finetune.Candidates(
        num_candidates=5000, num_reader_blocks=5, max_joint_length=320
    )
    assert recipe.train_query_tower


@pytest.mark.parametrize(
    "override, name, value",
    [
        ("num_epochs=7", "num_epochs", 7),
        ("learning_rate=3e-4", "learning_rate", 3e-4),
        ("learning_rate=1", "learning_rate", 1.0),
        ("train_query_tower=false", "train_query_tower", False),
        ("read_an_answer=True", "read_an_answer", True),
        ("retriever=bm25", "retriever", "bm25"),
    ],
)
def test_an_override_changes_one_number(override, name, value):
    recipe = finetune.RECIPES["orqa"].parse([override])
    assert recipe == finetune.RECIPES["orqa"].replace(**{name: value})
    assert type(recipe.flat()[name]) is type(value)


@pytest.mark.parametrize(
    "configs, overrides, reason",
    [
        (finetune, "epochs=3", "--set epochs=3: expected NAME=VALUE .*num_ep"),
        (finetune, "__class__=3", "expected NAME=VALUE"),
        (finetune, "num_epochs=1.5", "num_epochs=1.5: expected type int"),
        (finetune, "learning_rate=high", "=high: expected type float"),
        (finetune, "read_an_answer=maybe", "=maybe: expected type bool"),
        (finetune, "num_epochs=0", "num_epochs of a recipe must be from 1"),
        (finetune, "learning_rate=nan", "must be from 0 to 1. .*=nan"),
        (finetune, "retriever=bm26", "one of realm, bm25, hybrid. .*=bm26"),
        (ict, "batch_size=1", "batch_size of a recipe must be from 2"),
        (dpr, "num_hard_negatives=4", "cannot be more than .*=4"),
        (pretrain, "max_joint_length=16", "must be at least 17"),
        (
            pretrain,
            "masked_lm_own_block=1 masked_lm_window=16",
            "must fit into max_joint_length",
        ),
        (
            pretrain,
            "masked_lm_window=15 masked_lm_own_block=0.6 "
            "masked_lm_answer_block=0.5",
            "together at most 1",
        ),
    ],
)
def test_an_override_that_is_wrong_is_named(configs, overrides, reason):
    with pytest.raises(InputError, match=reason):
        name = "dpr_tiny" if configs is dpr else "tiny"
        configs.RECIPES[name].parse(overrides.split(" "))


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"num_epoch": 2}, "num_epoch is no number .*one of num_epochs, batch"),
        ({"batch_size": 8.0}, "batch_size .* must be of type int.*=8.0"),
        ({"num_epochs": True}, "num_epochs .* must be of type int.*=True"),
        ({"learning_rate": "1e-4"}, "must be of type float.*='1e-4'"),
        ({"train_reader": 1}, "train_reader .* must be of type bool.*=1"),
    ],
)
def test_a_wrong_value_from_python_is_named(changes, reason):
    with pytest.raises(InputError, match=reason):
        finetune.RECIPES["tiny"].replace(**changes)


def test_a_recipe_is_named_by_what_it_is_nearest_to():
    recipe = ict.RECIPES["wiki-small"].parse(
        ["num_steps=7", "learning_rate=0.1"]
    )
    assert nearest(ict.RECIPES, recipe) == (
        "wiki-small",
        ("num_steps=7", "learning_rate=0.1"),
    )
    assert recipe.optimizer == Optimizer(learning_rate=0.1)


def test_the_choices_are_those_of_the_code():
    """Whose modules need Keras, which a command line does not wait for."""

    def choices(group, name):
        return typing.get_args(typing.get_type_hints(group)[name])

    assert choices(pretrain.Masking, "mode") == masked_queries.MODES
    names = (*retrievers.NAMES, "file")
    assert choices(finetune.Candidates, "retriever") == names
    marginalizations = choices(pretrain.PretrainRecipe, "marginalization")
    assert marginalizations == losses.MARGINALIZATIONS
