"""What a comparison of systems is given, checked before anything is made."""

import dataclasses
import os
import re

from realm_tf.artifacts import artifact
from realm_tf.artifacts import packed_passages
from realm_tf.artifacts import question_files as data
from realm_tf.artifacts import schema
from realm_tf.configs import dpr as dpr_configs
from realm_tf.configs import finetune as open_qa_configs
from realm_tf.configs import ict as ict_configs
from realm_tf.configs import pretrain as pretrain_configs
from realm_tf.errors import InputError

# The stages that have recipes.
CONFIGS = {
    "pretrain": pretrain_configs,
    "ict": ict_configs,
    "dpr": dpr_configs,
    "finetune": open_qa_configs,
}
DEFAULTS = {
    "pretrain": "wiki-small",
    "ict": "wiki-small",
    "dpr": "laptop",
    "finetune": "laptop",
}
# No result may depend on how fast the machine is, and no training minute may
# go into measuring.
PRETRAIN_OVERRIDES = ("refresh=sync", "measure_duty_cycle=false")
_SUFFIX = re.compile(r"(\.jsonl?)?(\.gz|\.bz2)?$")


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Directories and files.

    Args:
        model: str. Model directory.
        blocks: str. Blocks directory.
        corpus: str. Annotated directory, packed or not.
        train: tuple of str. JSONL files.
        dev: str. JSONL file.
        tests: dict. Name to JSONL file.
    """

    model: str
    blocks: str
    corpus: str
    train: tuple[str, ...]
    dev: str
    tests: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Recipes:
    """How a comparison trains.

    Args:
        pretrain: `PretrainRecipe`.
        ict: `IctRecipe`, or `None` to leave that out.
        dpr: `DprRecipe`.
        finetune: `OpenQaRecipe`.
        names: dict. Each of these four to the name of the recipe that it was
            made from.
    """

    pretrain: pretrain_configs.PretrainRecipe
    ict: ict_configs.IctRecipe | None
    dpr: dpr_configs.DprRecipe
    finetune: open_qa_configs.OpenQaRecipe
    names: dict[str, str]

    @property
    def warm_up(self) -> pretrain_configs.PretrainRecipe:
        """The masked-LM steps, whatever the pre-training after them is."""
        return pretrain_configs.masked_lm_alone(
            self.pretrain,
            pretrain_configs.RECIPES[self.names["pretrain"]],
        )

    def options(self, stage: str, recipe) -> dict:
        """`--recipe` and the `--set` that make a recipe of the named one.

        Args:
            stage: str. A key of `CONFIGS`.
            recipe: a recipe of that stage.
        """
        name = self.names[stage]
        changed = recipe.overrides(CONFIGS[stage].RECIPES[name])
        return {"recipe": name, "set": changed}


def get_recipes(names: dict[str, str], overrides: dict[str, list[str]]):
    """The recipes of all stages.

    Args:
        names: dict. Each key of `CONFIGS` to the name of a recipe.
        overrides: dict. The same to lists of `name=value`; `num_steps=0` of
            the Inverse Cloze Task leaves that out.

    Returns:
        `Recipes`.

    Raises:
        InputError: if a name is unknown, a value is of the wrong type, or
            the recipes give nothing that can be compared.
    """
    changes = {
        **overrides,
        "pretrain": [*PRETRAIN_OVERRIDES, *overrides["pretrain"]],
        # No recipe has so few.
        "ict": [o for o in overrides["ict"] if o != "num_steps=0"],
    }
    found = {}
    for stage, configs in CONFIGS.items():
        try:
            found[stage] = configs.get_recipe(names[stage], changes[stage])
        except InputError as error:
            # It names the options of another command.
            raise InputError(
                f"--{stage}-recipe, --set-{stage}: {error}"
            ) from error
    steps = [o for o in overrides["ict"] if o.startswith("num_steps=")]
    if steps and steps[-1] == "num_steps=0":
        found["ict"] = None
    if not found["pretrain"].num_steps:
        raise InputError(
            "--set-pretrain num_steps=0 leaves nothing to compare: expected "
            "1 or more."
        )
    if found["finetune"].candidates.refresh_every:
        raise InputError(
            "--set-finetune refresh_every moves the block tower away from "
            "the index that evaluation searches: expected 0. Received: "
            f"refresh_every={found['finetune'].refresh_every}"
        )
    return Recipes(**found, names=dict(names))


def get_inputs(
    model: str,
    blocks: str,
    corpus: str,
    train: list[str],
    dev: str,
    test: list[str],
) -> Inputs:
    """What was given, if it is there and can be read.

    Args:
        model: str. Model directory.
        blocks: str. Blocks directory.
        corpus: str. Annotated directory, packed or not.
        train: list of str. JSONL files.
        dev: str. JSONL file.
        test: list of str. JSONL files, named by what they are called less
            `.jsonl`.

    Raises:
        InputError: if something is missing or damaged, or two tests have one
            name.
    """
    artifact.read(model, kind=schema.MODEL)
    artifact.read(blocks, kind=schema.BLOCKS)
    packed_passages.read_metadata(corpus)
    for path in (*train, dev, *test):
        data.read_questions(path)
    tests = {}
    for path in test:
        name = _SUFFIX.sub("", os.path.basename(path))
        if name in tests:
            raise InputError(
                f"--test {tests[name]} and {path} have one name, by which "
                "results are told apart: rename one."
            )
        tests[name] = path
    return Inputs(model, blocks, corpus, tuple(train), dev, tests)
