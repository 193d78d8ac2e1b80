"""The comparisons of `realm ablate`: which systems, and how they differ.

A system is a fine-tuned model and a retriever. Before fine-tuning, a model has
the towers of one source and the encoder (the reader's) of another:

- `"start"`: the given model;
- `"warm_up"`: its encoder, after the masked-LM warm-up, with which REALM's
  pre-training begins;
- `"ict"`: its towers, after the Inverse Cloze Task;
- `"dpr"`: its towers, trained on questions as DPR's;
- a key of `PRETRAININGS`: towers of one of `BEGINNINGS` and encoder of
  `"warm_up"`, after REALM's pre-training.

In table 1 all systems but REALM read with the given encoder, as in the paper;
`realm_retriever` reads with it, too, and the rows named `+warm_up` with REALM's
encoder after its masked-LM warm-up: either shows the difference that the
retriever alone makes. In table 2
all systems begin with that encoder.
`"start"` keeps its towers; in `"start+query_tower"` fine-tuning moves one of
them, as it does REALM's and ORQA's: what REALM adds to that is pre-training's.
"""

import dataclasses

from realm_tf.errors import InputError

START = "start"
WARM_UP = "warm_up"
ICT = "ict"
DPR = "dpr"
STALE = "stale_30x"
# Sources of towers that hold the initial model's encoder besides.
ENCODER_KEPT = (START, ICT, DPR)
# Sources of the towers that REALM's pre-training begins with. The first is the
# paper's; towers that were trained as a retriever's before may need no other
# beginning.
BEGINNINGS = (ICT, START)

# Name to what it changes of the `PretrainRecipe`.
# Guu et al., 2020, section 4.5 and table 2.
PRETRAININGS = {
    "realm": {},
    "uniform_masks": {"mode": "uniform"},
    "span_masks": {"mode": "random_span"},
    STALE: {"stale_factor": 30},
}


# What a table shows beside a mean: the lowest and the highest of the seeds, or
# the 95 % bootstrap interval over questions.
RANGE, INTERVAL = "range", "interval"
# Rows of the baselines whose reader was warmed up; without a warm-up they are
# those without.
_WARMED_UP = "+warm_up"
# REALM's retriever with a reader that it was not trained with.
_RETRIEVER = "realm_retriever"
# How metrics before fine-tuning begin.
ZERO_SHOT = "zero_shot_"


@dataclasses.dataclass(frozen=True)
class System:
    """One row of a table.

    Args:
        name: str.
        title: str. As the table shows it.
        towers: str. Source of the towers: `START`, `ICT`, `DPR` or a key of
            `PRETRAININGS`.
        encoder: str. Source of the reader's encoder: `START`, `WARM_UP` or a
            key of `PRETRAININGS`.
        finetune: tuple of (name, value). Changes of the `OpenQaRecipe`.
            Defaults to none.
        model: str. Name of what is fine-tuned; several systems may share one.
            Defaults to that of the system.
        retriever: str. As `Evaluate`. Defaults to
            `"realm"`, the model's own.
        paper: dict. Metric of the table to the paper's number, in percent.
            Defaults to none.
    """

    name: str
    title: str
    towers: str
    encoder: str
    finetune: tuple[tuple[str, object], ...] = ()
    model: str = ""
    retriever: str = "realm"
    paper: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Suite:
    """A table.

    Args:
        title: str.
        systems: tuple of `System`, in the order of the rows.
        metrics: dict. Metric to its title, in the order of the columns; those
            that begin with `zero_shot_` are the towers' before fine-tuning.
        spread: str. `RANGE` or `INTERVAL`.
    """

    title: str
    systems: tuple[System, ...]
    metrics: dict[str, str]
    spread: str

    @property
    def reference(self) -> str:
        """Name of the system that others are compared with.

        It is REALM or, if that was left out, its retriever, or the first one.
        """
        names = [system.name for system in self.systems]
        of_realm = [each for each in ("realm", _RETRIEVER) if each in names]
        return (of_realm or names)[0]

    @property
    def has_paper(self) -> bool:
        """Whether the table has the paper's numbers, or training minutes."""
        return any(system.paper for system in self.systems)

    @property
    def is_zero_shot(self) -> bool:
        """Whether towers are measured before fine-tuning."""
        return any(name.startswith(ZERO_SHOT) for name in self.metrics)


EXACT_MATCH = "exact_match"
ZERO_SHOT_RECALL = f"{ZERO_SHOT}answer_recall@5"


def _paper(exact_match, recall):
    return {EXACT_MATCH: exact_match, ZERO_SHOT_RECALL: recall}


# Rows and numbers of Guu et al., 2020, table 2: NaturalQuestions (dev), over
# 13 million blocks.
_TABLE_2 = (
    System("realm", "REALM", "realm", "realm", paper=_paper(38.2, 38.5)),
    System(
        "realm_retriever+baseline_encoder",
        "REALM retriever + baseline encoder",
        "realm",
        WARM_UP,
        paper=_paper(37.4, 38.5),
    ),
    System(
        "baseline_retriever+realm_encoder",
        "Baseline retriever + REALM encoder",
        ICT,
        "realm",
        paper=_paper(35.3, 13.9),
    ),
    System(
        "orqa",
        "Baseline (ORQA)",
        ICT,
        WARM_UP,
        model="orqa+warm_up",
        paper=_paper(31.3, 13.9),
    ),
    System(
        "uniform_masks",
        "REALM with random uniform masks",
        "uniform_masks",
        "uniform_masks",
        paper=_paper(32.3, 24.2),
    ),
    System(
        "span_masks",
        "REALM with random span masks",
        "span_masks",
        "span_masks",
        paper=_paper(35.3, 26.1),
    ),
    System(STALE, "30x stale index", STALE, STALE, paper=_paper(28.7, 15.1)),
)

_READER_ONLY = (("train_query_tower", False),)
_BASELINES = (
    System(
        "bm25",
        "BM25 + reader",
        START,
        START,
        finetune=(*_READER_ONLY, ("retriever", "bm25")),
        retriever="bm25",
    ),
    System(START, "Start, retriever not trained", START, START, _READER_ONLY),
    System("orqa", "ORQA", ICT, START),
    System("dpr", "DPR", DPR, START, _READER_ONLY),
)
_TABLE_1 = (
    *_BASELINES[:2],
    System("start+query_tower", "Start, query tower fine-tuned", START, START),
    System(
        "start+bm25",
        "Start and BM25",
        START,
        START,
        finetune=_READER_ONLY,
        model=START,
        retriever="hybrid",
    ),
    *_BASELINES[2:],
    System(_RETRIEVER, "REALM retriever + start's reader", "realm", START),
    System(
        f"{_RETRIEVER}+bm25",
        "REALM retriever and BM25 + start's reader",
        "realm",
        START,
        model=_RETRIEVER,
        retriever="hybrid",
    ),
    System("realm", "REALM", "realm", "realm"),
    System(
        "hybrid",
        "REALM and BM25",
        "realm",
        "realm",
        model="realm",
        retriever="hybrid",
    ),
    *(
        dataclasses.replace(
            each,
            name=each.name + _WARMED_UP,
            title=f"{each.title}, warmed up",
            encoder=WARM_UP,
        )
        for each in _BASELINES
    ),
)

SUITES = {
    "table1": Suite(
        title="Open-domain question answering",
        systems=_TABLE_1,
        metrics={
            EXACT_MATCH: "exact match",
            "answer_recall@1": "answer recall@1",
            "answer_recall@5": "answer recall@5",
            "answer_recall@20": "answer recall@20",
            "answer_recall@100": "answer recall@100",
        },
        spread=INTERVAL,
    ),
    "table2": Suite(
        title="Ablations",
        systems=_TABLE_2,
        metrics={
            EXACT_MATCH: "exact match",
            ZERO_SHOT_RECALL: "zero-shot answer recall@5",
        },
        spread=RANGE,
    ),
}


def get_suite(
    name: str, cells: tuple[str, ...] = (), *, warm_up: bool = True
) -> Suite:
    """A suite by name, or some systems of it.

    Args:
        name: str. A key of `SUITES`.
        cells: sequence of str. Names of its systems, in any order. Defaults
            to none, which means all.
        warm_up: bool. Whether a warm-up is trained; without, no two systems
            may be the same. Defaults to `True`.

    Raises:
        InputError: if a system is unknown, or needs a warm-up.
    """
    suite = SUITES[name]
    systems = {
        system.name: system
        for system in suite.systems
        if warm_up or not system.name.endswith(_WARMED_UP)
    }
    unknown = [cell for cell in cells if cell not in systems]
    if unknown:
        without = "" if warm_up else " with masked_lm_steps=0"
        raise InputError(
            f"--cells of {name}{without} must be of {', '.join(systems)}. "
            f"Received: {' '.join(unknown)}"
        )
    return dataclasses.replace(
        suite,
        systems=tuple(
            system
            for system in systems.values()
            if not cells or system.name in cells
        ),
    )
