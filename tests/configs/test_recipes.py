import dataclasses

import pytest

from realm_tf.configs import finetune
from realm_tf.configs.finetune import OpenQaRecipe
from realm_tf.configs.finetune import get_recipe
from realm_tf.errors import InputError


@pytest.mark.parametrize("name", sorted(finetune.RECIPES))
def test_every_recipe_can_be_had_by_name(name):
    recipe = get_recipe(name)
    assert recipe == finetune.RECIPES[name]
    for field in dataclasses.fields(recipe):
        assert type(getattr(recipe, field.name)) is field.type


def test_the_numbers_of_the_paper():
    # Guu et al., 2020, appendix A.
    recipe = get_recipe("orqa")
    assert recipe.num_epochs == 2
    assert recipe.learning_rate == 1e-5
    assert recipe.num_candidates == 5000
    assert recipe.num_reader_blocks == 5
    assert recipe.train_query_tower
    assert not recipe.read_an_answer
    small = get_recipe("orqa_small_set")
    assert small == dataclasses.replace(recipe, num_epochs=20)


@pytest.mark.parametrize(
    "override, name, value",
    [
        ("num_epochs=7", "num_epochs", 7),
        ("learning_rate=3e-4", "learning_rate", 3e-4),
        ("learning_rate=1", "learning_rate", 1.0),
        ("train_query_tower=false", "train_query_tower", False),
        ("train_query_tower=0", "train_query_tower", False),
        ("read_an_answer=True", "read_an_answer", True),
        ("read_an_answer=1", "read_an_answer", True),
        ("seed=-3", "seed", -3),
    ],
)
def test_an_override_changes_one_number(override, name, value):
    recipe = get_recipe("orqa", [override])
    assert recipe == dataclasses.replace(
        finetune.RECIPES["orqa"], **{name: value}
    )
    assert type(getattr(recipe, name)) is type(value)


def test_the_last_override_counts():
    recipe = get_recipe("tiny", ["seed=1", "num_epochs=3", "seed=2"])
    assert (recipe.seed, recipe.num_epochs) == (2, 3)
    assert get_recipe("tiny").seed == 0


@pytest.mark.parametrize(
    "override, reason",
    [
        ("epochs=3", "--set epochs=3: expected NAME=VALUE .*num_epochs"),
        ("num_epochs", "--set num_epochs: expected NAME=VALUE"),
        ("", "--set : expected NAME=VALUE"),
        ("__class__=3", "expected NAME=VALUE"),
        ("num_epochs=two", "--set num_epochs=two: expected type int"),
        ("num_epochs=1.5", "--set num_epochs=1.5: expected type int"),
        ("num_epochs=", "--set num_epochs=: expected type int"),
        ("learning_rate=high", "--set learning_rate=high: expected type float"),
        (
            "read_an_answer=maybe",
            "--set read_an_answer=maybe: expected type bool",
        ),
        ("num_epochs=0", "num_epochs of a recipe must be at least 1"),
        ("batch_size=-1", "batch_size of a recipe must be at least 1"),
    ],
)
def test_an_override_that_is_wrong_is_named(override, reason):
    with pytest.raises(InputError, match=reason):
        get_recipe("tiny", [override])


def test_an_unknown_recipe_is_named():
    with pytest.raises(InputError, match="orqa, .*tiny.* Received: huge"):
        get_recipe("huge")


def test_a_recipe_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        OpenQaRecipe().seed = 1
