"""`realm ablate`."""

import dataclasses
import functools
import os
import re
from typing import Literal

from realm_tf.artifacts import matching
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.objects import Passages
from realm_tf.artifacts.paths import is_remote
from realm_tf.artifacts.question_files import Questions
from realm_tf.configs import ablations
from realm_tf.configs import dpr
from realm_tf.configs import finetune
from realm_tf.configs import ict
from realm_tf.configs import pretrain
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation
from realm_tf.operations.operation import RepeatedWords

_SUFFIX = re.compile(r"(\.jsonl?)?(\.gz|\.bz2)?$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ablate(Operation):
    """Trains and measures all systems of a comparison, as the paper's tables.

      realm ablate --suite table2 --model DIR --blocks DIR --corpus ANNOTATED
          --train F [F..] --dev F --test F [F..] --output DIR [--seeds 0 1 2]
          [--cells realm stale_30x] [--set-pretrain num_steps=1000] [--plan]

    `table1` compares REALM with BM25, the initial model, ORQA, DPR and a
    hybrid, once with the initial model's reader and once with REALM's after
    its masked-LM warm-up; `table2` REALM with its ablations, all after that
    warm-up; --cells takes some of them. Each step is one of realm's commands
    and leaves its directory in OUTPUT; systems share what they have in common.
    The masked-LM warm-up and the Inverse Cloze Task are trained once, from the
    initial model; what follows with each seed. Stopped, the same command goes
    on; more seeds or cells may be asked for later. --plan says what would be
    made. `--set-ict num_steps=0` leaves the Inverse Cloze Task out;
    `--set-finetune train_reader=false` leaves the reader as it is in all
    systems, which then differ in their retrievers alone.
    Pre-training is exact (refresh=sync) unless --set-pretrain says otherwise.
    Writes results.json, results.md and results.png, again after each seed.
    """

    command = "ablate"

    suite: Literal[*ablations.SUITES]
    """which systems are compared"""
    model: Model
    """model directory that all systems start from"""
    blocks: Blocks
    """directory of `realm chunk`"""
    corpus: Passages
    """what is masked: directory of `realm annotate`, or of `realm pack
    --annotated`"""
    train: tuple[Questions, ...]
    """questions to fine-tune on, as `realm finetune --questions`"""
    dev: Questions
    """questions for fine-tuning to stop at its best"""
    test: tuple[Questions, ...]
    """questions to measure on, each file a table"""
    output: str
    """directory for all steps and the results, on a local disk"""
    seeds: tuple[int, ...] = (0, 1, 2)
    """of pre-training and fine-tuning"""
    cells: tuple[str, ...] = ()
    """systems of the suite (if not given: all)"""
    pretrain_recipe: Literal[*pretrain.RECIPES] = "wiki-small"
    """recipe of `realm pretrain`"""
    set_pretrain: RepeatedWords = ()
    """NAME=VALUE: change numbers of that recipe, which has refresh=sync
    here"""
    ict_recipe: Literal[*ict.RECIPES] = "wiki-small"
    """recipe of `realm ict`"""
    set_ict: RepeatedWords = ()
    """NAME=VALUE: change numbers of that recipe; num_steps=0 leaves the
    Inverse Cloze Task out"""
    dpr_recipe: Literal[*dpr.RECIPES] = "laptop"
    """recipe of `realm finetune --retriever-loss dpr`"""
    set_dpr: RepeatedWords = ()
    """NAME=VALUE: change numbers of that recipe"""
    finetune_recipe: Literal[*finetune.RECIPES] = "laptop"
    """recipe of `realm finetune`"""
    set_finetune: RepeatedWords = ()
    """NAME=VALUE: change numbers of that recipe"""
    begin: Literal[ablations.BEGINNINGS] = ablations.ICT
    """towers that REALM's pre-training begins with: after the Inverse Cloze
    Task, as in the paper, or those of the initial model"""
    plan: bool = False
    """only say which steps there are and which are done"""

    @functools.cached_property
    def recipes(self) -> dict:
        """Name of a training to its recipe; `None` is what is left out.

        Raises:
            InputError: if a value is wrong, or the recipes give nothing that
                can be compared.
        """
        found = {
            "ict": self._recipe("ict", ict),
            # No result may depend on how fast the machine is.
            "pretrain": self._recipe("pretrain", pretrain, "refresh=sync"),
            "dpr": self._recipe("dpr", dpr),
            "finetune": self._recipe("finetune", finetune),
        }
        if not found["pretrain"].num_steps:
            raise InputError(
                "--set-pretrain num_steps=0 leaves nothing to compare: "
                "expected 1 or more."
            )
        refresh_every = found["finetune"].index.refresh_every
        if refresh_every:
            raise InputError(
                "--set-finetune refresh_every moves the block tower away from "
                "the index that evaluation searches: expected 0. Received: "
                f"refresh_every={refresh_every}"
            )
        return found

    def _recipe(self, name, configs, *changes):
        changes += getattr(self, f"set_{name}")
        # No recipe has so few steps.
        if name == "ict" and "num_steps=0" in changes:
            return None
        try:
            recipe = configs.RECIPES[getattr(self, f"{name}_recipe")]
            return recipe.parse(changes)
        except InputError as error:
            # It names the option of another command.
            raise InputError(f"--set-{name}: {error}") from error

    @property
    def warm_up_steps(self) -> int:
        """Masked-LM steps before all pre-training; 0: none."""
        return self.recipes["pretrain"].masked_lm.masked_lm_steps

    @functools.cached_property
    def chosen(self) -> ablations.Suite:
        """The suite, with the systems that `cells` names.

        Raises:
            InputError: if one is unknown, or answers with a reader that never
                learned to.
        """
        suite = ablations.get_suite(
            self.suite, self.cells, warm_up=self.warm_up_steps > 0
        )
        if not self.recipes["finetune"].train_reader:
            names = {
                is_given: [
                    system.name
                    for system in suite.systems
                    if (system.encoder == ablations.START) == is_given
                ]
                for is_given in (True, False)
            }
            if names[False]:
                raise InputError(
                    "--set-finetune train_reader=false leaves readers as they "
                    "begin, and those of some systems begin with pre-training: "
                    f"leave {', '.join(names[False])} out of --cells. Others: "
                    f"{', '.join(names[True]) or 'none'}."
                )
        return suite

    @functools.cached_property
    def tests(self) -> dict[str, Questions]:
        """Name, that of the file without its suffix, to questions."""
        found = {}
        for each in self.test:
            name = _SUFFIX.sub("", os.path.basename(each.path))
            if name in found:
                raise InputError(
                    f"--test {found[name]} and {each} have one name, by which "
                    "results are told apart: rename one."
                )
            found[name] = each
        return found

    def run(self) -> dict | None:
        """Does all steps of the suite and writes its tables.

        Returns:
            dict, what results.json holds; `None` with `plan`.

        Raises:
            InputError: if something is missing, does not match, or was made
                in `output` from something else.
        """
        from realm_tf.evaluation.ablations import results
        from realm_tf.evaluation.ablations import tables
        from realm_tf.evaluation.ablations.systems import list_operations

        self._check()
        graph, cells = list_operations(self)
        if self.plan:
            graph.print_plan()
            return None
        found, done, known = {}, set(), []

        def write_results(step):
            """After the last step of a seed: hours before those of all."""
            done.add(step.operation.result)
            waiting = {c.seed for c in cells if not c.measured <= done}
            measured = [c for c in cells if c.seed not in waiting]
            if measured != known:
                known[:] = measured
                found.update(results.collect(self, graph, measured))
                tables.write(found, self.chosen, self.output)

        graph.run(write_results)
        return found

    def _check(self):
        if is_remote(self.output):
            raise InputError(
                f"--output {self.output} is not on a local disk, where "
                "training keeps its state. Choose a local directory and copy "
                "it after."
            )
        if os.path.isfile(self.output):
            raise InputError(
                f"--output {self.output} is a file: expected a directory, new "
                "or of an earlier run."
            )
        seeds = self.seeds
        if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise InputError(
                "--seeds must be different numbers, 0 or more. Received: "
                f"{' '.join(map(str, seeds)) or 'none'}"
            )
        # What is missing or damaged must not show after hours.
        matching.check_has_texts(self.blocks)
        matching.check_vocabulary(self.blocks, self.model)
        self.corpus.metadata  # noqa: B018
        for each in (*self.train, self.dev, *self.tests.values()):
            each.questions  # noqa: B018
        for recipe in filter(None, self.recipes.values()):
            matching.check_lengths(self.model, recipe.flat())
        for system in self.chosen.systems:
            recipe = self.recipes["finetune"].replace(**dict(system.finetune))
            if recipe.learns:
                recipe.check()

    def report(self, result) -> str:
        from realm_tf.evaluation.ablations import tables

        return f"\n{tables.markdown(result, self.chosen)}" if result else ""
