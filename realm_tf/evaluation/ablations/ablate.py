"""Trains and measures all systems of a comparison, as the paper's tables.

  realm ablate --suite table2 --model START --blocks DIR --corpus ANNOTATED \\
      --train F [F..] --dev F --test F [F..] --output DIR [--seeds 0 1 2] \\
      [--cells realm stale_30x] [--set-pretrain num_steps=1000] [--plan]

`table1` compares REALM with BM25, the start, ORQA, DPR and a hybrid, once with
the start's reader and once with REALM's after its masked-LM warm-up; `table2`
REALM with its ablations, all after that warm-up; --cells takes some of them.
Each stage is one of realm's commands and leaves its directory in OUTPUT; systems
share what they have in common. The masked-LM warm-up and the Inverse Cloze Task
are trained once, from the start; what follows with each seed. Stopped, the same
command goes on; more seeds or cells may be asked for later. --plan says what
would be made. `--set-ict num_steps=0` leaves the Inverse Cloze Task out.
Pre-training is exact (refresh=sync) unless --set-pretrain says otherwise.
Writes results.json, results.md and results.png, anew after each seed.
"""

import os

from realm_tf.artifacts.paths import is_remote
from realm_tf.configs import ablations as configs
from realm_tf.errors import InputError
from realm_tf.evaluation.ablations import given as ablation_inputs
from realm_tf.evaluation.ablations import results as ablation_results
from realm_tf.evaluation.ablations.stage_graph import StageGraph
from realm_tf.evaluation.ablations.systems import AblationStages

SEEDS = (0, 1, 2)


def add_arguments(parser):
    """Arguments of `realm ablate`."""
    parser.add_argument(
        "--suite", required=True, help=f"one of {', '.join(configs.SUITES)}"
    )
    for name, what in (
        ("model", "model directory that all systems start from"),
        ("blocks", "directory of `realm chunk`"),
        (
            "corpus",
            "what is masked: directory of `realm annotate`, or of `realm "
            "pack --annotated`",
        ),
        ("dev", "questions for fine-tuning to stop at its best"),
        ("output", "directory for all stages and the results"),
    ):
        parser.add_argument(f"--{name}", required=True, help=what)
    for name, what in (
        ("train", "questions to fine-tune on, as `realm finetune --questions`"),
        ("test", "questions to measure on, each file a table"),
    ):
        parser.add_argument(
            f"--{name}", required=True, nargs="+", metavar="FILE", help=what
        )
    parser.add_argument(
        "--seeds",
        nargs="+",
        type=int,
        default=list(SEEDS),
        help="of pre-training and fine-tuning (default: 0 1 2)",
    )
    parser.add_argument(
        "--cells", nargs="+", help="systems of the suite (default: all)"
    )
    for stage, default in ablation_inputs.DEFAULTS.items():
        names = ", ".join(ablation_inputs.CONFIGS[stage].RECIPES)
        parser.add_argument(
            f"--{stage}-recipe",
            default=default,
            help=f"one of {names} (default: {default})",
        )
        parser.add_argument(
            f"--set-{stage}",
            nargs="+",
            action="extend",
            default=[],
            metavar="NAME=VALUE",
            help="change numbers of that recipe",
        )
    parser.add_argument(
        "--begin",
        choices=configs.BEGINNINGS,
        default=configs.ICT,
        help="towers that REALM's pre-training begins with: after the Inverse "
        "Cloze Task, as in the paper, or the start's (default: ict)",
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="only say which stages there are and which are done",
    )


def run(args, extra):
    """`realm ablate`."""
    ablate(**vars(args))


def ablate(
    suite: str,
    model: str,
    blocks: str,
    corpus: str,
    train: list[str],
    dev: str,
    test: list[str],
    output: str,
    *,
    seeds: list[int] = SEEDS,
    cells: list[str] | None = None,
    pretrain_recipe: str = "wiki-small",
    ict_recipe: str = "wiki-small",
    dpr_recipe: str = "laptop",
    finetune_recipe: str = "laptop",
    set_pretrain: list[str] = (),
    set_ict: list[str] = (),
    set_dpr: list[str] = (),
    set_finetune: list[str] = (),
    begin: str = configs.ICT,
    plan: bool = False,
) -> dict | None:
    """Makes all stages of a suite and writes its tables.

    Args:
        suite: str. A key of `configs.ablations.SUITES`.
        model: str. Model directory that all systems start from.
        blocks: str. Blocks directory.
        corpus: str. Annotated directory, or one that `realm pack` made of it.
        train: list of str. JSONL files to fine-tune on.
        dev: str. JSONL file; see `training.finetune.finetune`.
        test: list of str. JSONL files to measure on.
        output: str. Directory of all stages, on a local disk; made, or gone
            on in.
        seeds: list of int. Defaults to 0, 1 and 2.
        cells: list of str. Systems of the suite. Defaults to `None`: all.
        pretrain_recipe: str. Defaults to `"wiki-small"`.
        ict_recipe: str. Defaults to `"wiki-small"`.
        dpr_recipe: str. Defaults to `"laptop"`.
        finetune_recipe: str. Defaults to `"laptop"`.
        set_pretrain: list of str, `name=value`. They follow
            `refresh=sync measure_duty_cycle=false`.
        set_ict: list of str. `num_steps=0` leaves the Inverse Cloze Task
            out.
        set_dpr: list of str.
        set_finetune: list of str.
        begin: str. One of `configs.ablations.BEGINNINGS`: the towers that
            REALM's pre-training begins with. Defaults to `"ict"`.
        plan: bool. Print the stages and stop. Defaults to `False`.

    Returns:
        dict, what results.json holds; `None` with `plan`.

    Raises:
        InputError: if something is missing, does not belong together, or was
            made in `output` of other things.
    """
    recipes = ablation_inputs.get_recipes(
        {
            "pretrain": pretrain_recipe,
            "ict": ict_recipe,
            "dpr": dpr_recipe,
            "finetune": finetune_recipe,
        },
        {
            "pretrain": set_pretrain,
            "ict": set_ict,
            "dpr": set_dpr,
            "finetune": set_finetune,
        },
    )
    chosen = configs.get_suite(
        suite, cells, warm_up=recipes.pretrain.masked_lm_steps > 0
    )
    inputs = ablation_inputs.get_inputs(model, blocks, corpus, train, dev, test)
    _check(output, seeds)
    graph = StageGraph(output)
    builder = AblationStages(graph, inputs, recipes, begin=begin)
    cells_made = [
        builder.cell(system, seed, zero_shot=_needs_zero_shot(chosen))
        # Every system once, before any a second time.
        for seed in seeds
        for system in chosen.systems
    ]
    if plan:
        _print_plan(graph)
        return None
    results, done = {}, set()
    unmeasured = list(seeds)

    def write_results(stage):
        """After the last stage of a seed: hours before those of all."""
        done.add(stage)
        while unmeasured and all(
            cell.measured <= done
            for cell in cells_made
            if cell.seed == unmeasured[0]
        ):
            unmeasured.pop(0)
            measured = seeds[: len(seeds) - len(unmeasured)]
            results.update(
                ablation_results.collect(
                    suite,
                    chosen,
                    graph,
                    [cell for cell in cells_made if cell.seed in measured],
                    recipes,
                    notes=_notes(chosen, recipes, measured, begin=begin),
                )
            )
            ablation_results.write(results, chosen, output)

    graph.run(write_results)
    print(f"\n{ablation_results.markdown(results, chosen)}")
    return results


def _check(output, seeds):
    if is_remote(output):
        raise InputError(
            f"--output {output} is not on a local disk, where training keeps "
            "its state. Choose a local directory and copy it after."
        )
    if os.path.isfile(output):
        raise InputError(
            f"--output {output} is a file: expected a directory, new or of "
            "an earlier run."
        )
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise InputError(
            "--seeds must be different numbers, 0 or more. Received: "
            f"{' '.join(map(str, seeds)) or 'none'}"
        )


def _needs_zero_shot(suite):
    return any(name.startswith(configs.ZERO_SHOT) for name in suite.metrics)


def _notes(suite, recipes, seeds, *, begin=configs.ICT):
    """What a reader of the table must know."""
    models = [configs.MODELS[system.model] for system in suite.systems]
    encoders = {model.encoder for model in models}
    sources = encoders | {model.towers for model in models}
    is_pretrained = not sources.isdisjoint(configs.PRETRAININGS)
    if is_pretrained and begin == configs.ICT:
        sources.add(configs.ICT)
    pretrain = recipes.pretrain
    notes = []
    if pretrain.masked_lm_steps and encoders != {configs.START}:
        others = (
            ", the other rows' with the start's"
            if configs.START in encoders
            else ""
        )
        whose = "REALM's and warmed-up readers" if others else "All readers"
        notes.append(
            f"{whose} begin with one encoder, after a masked-LM warm-up of "
            f"{pretrain.masked_lm_steps} steps, trained once{others}."
        )
    if is_pretrained and begin == configs.START and recipes.ict:
        notes.append(
            "REALM's pre-training begins with the start's towers, without the "
            "Inverse Cloze Task."
        )
    if configs.ICT in sources:
        notes.append(
            "No Inverse Cloze Task was trained (num_steps=0): the start "
            "stands for the model that it gives."
            if recipes.ict is None
            else f"The Inverse Cloze Task ({recipes.ict.num_steps} steps) was "
            "trained once: what its towers find is the same for all seeds."
        )
    factor = configs.PRETRAININGS[configs.STALE]["stale_factor"]
    every = factor * pretrain.refresh_every
    if configs.STALE in sources and not 0 < every < pretrain.num_steps:
        notes.append(
            f"In {pretrain.num_steps} steps, an index that is {factor} times "
            "staler is never refreshed."
        )
    if len(seeds) == 1:
        notes.append("One seed: how much another would change is not known.")
    return notes


def _print_plan(graph):
    total = len(graph.stages)
    plan = graph.plan()
    for number, (stage, is_done) in enumerate(plan, start=1):
        state = "done" if is_done else "to do"
        print(f"[{number}/{total}] {stage.name}: {state}")
        print(f"      $ {stage.command}")
    print(f"{sum(done for _, done in plan)} of {total} stages are done.")
