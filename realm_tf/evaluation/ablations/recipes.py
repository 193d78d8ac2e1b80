"""How the systems of a comparison are trained."""

import dataclasses

from realm_tf.configs import dpr
from realm_tf.configs import finetune
from realm_tf.configs import ict
from realm_tf.configs import pretrain
from realm_tf.errors import InputError

# No result may depend on how fast the machine is.
_EXACT = "refresh=sync"
_NO_STEPS = "num_steps=0"


@dataclasses.dataclass(frozen=True)
class Recipes:
    """A recipe for each kind of training.

    Args:
        ict: `IctRecipe`, or `None` to leave that out.
        pretrain: `PretrainRecipe`.
        dpr: `DprRecipe`.
        finetune: `OpenQaRecipe`.
        warm_up: `PretrainRecipe`. The masked-LM steps alone, whatever the
            pre-training after them is.
    """

    ict: ict.IctRecipe | None
    pretrain: pretrain.PretrainRecipe
    dpr: dpr.DprRecipe
    finetune: finetune.OpenQaRecipe
    warm_up: pretrain.PretrainRecipe

    @classmethod
    def of(cls, given):
        """The recipes of an operation.

        Args:
            given: `Ablate`.

        Raises:
            InputError: if a value is wrong, or the recipes give nothing that
                can be compared.
        """
        found = {
            name: _get(name, configs, given)
            for name, configs in (
                ("ict", ict),
                ("pretrain", pretrain),
                ("dpr", dpr),
                ("finetune", finetune),
            )
        }
        if not found["pretrain"].num_steps:
            raise InputError(
                "--set-pretrain num_steps=0 leaves nothing to compare: "
                "expected 1 or more."
            )
        refresh_every = found["finetune"].candidates.refresh_every
        if refresh_every:
            raise InputError(
                "--set-finetune refresh_every moves the block tower away from "
                "the index that evaluation searches: expected 0. Received: "
                f"refresh_every={refresh_every}"
            )
        warm_up = pretrain.masked_lm_alone(
            found["pretrain"], pretrain.RECIPES[given.pretrain_recipe]
        )
        return cls(**found, warm_up=warm_up)

    def to_json(self) -> dict:
        """Name to each recipe as results.json has it."""
        return {
            name: recipe and recipe.flat()
            for name, recipe in vars(self).items()
            if name != "warm_up"
        }


def _get(name, configs, given):
    changes = list(getattr(given, f"set_{name}"))
    if name == "pretrain":
        changes = [_EXACT, *changes]
    if name == "ict":
        steps = [each for each in changes if each.startswith("num_steps=")]
        if steps[-1:] == [_NO_STEPS]:
            return None
        # No recipe has so few.
        changes = [each for each in changes if each != _NO_STEPS]
    try:
        return configs.get_recipe(getattr(given, f"{name}_recipe"), changes)
    except InputError as error:
        # It names the options of another command.
        raise InputError(f"--{name}-recipe, --set-{name}: {error}") from error
