"""The operations of a comparison: what is shared, and what differs."""

import collections
import os

import pytest
from comparisons import make_ablate

from realm_tf.configs import pretrain as pretrain_configs
from realm_tf.errors import InputError
from realm_tf.evaluation.ablations.systems import list_operations

# A masked-LM warm-up and pre-training of two steps each.
SET_PRETRAIN = [
    "num_steps=2",
    "masked_lm_steps=2",
    "masked_lm_batch_size=2",
    "masked_lm_window=8",
]
WITHOUT_WARM_UP = {"set_pretrain": ["num_steps=2"]}
WITHOUT_ICT = {"set_ict": ["num_steps=0"]}


@pytest.fixture
def list_all(tmp_path):
    """A function that gives the operations of a comparison by name."""

    def list_all(**changes):
        given = {"seeds": [0], "set_pretrain": SET_PRETRAIN, **changes}
        graph, _ = list_operations(make_ablate(tmp_path, **given))
        return {step.title: step.operation for step in graph.steps}

    return list_all


def _read(operation, *names):
    """Names of the directories that an operation reads."""
    return [os.path.basename(getattr(operation, n).path) for n in names]


def test_the_steps_of_table_2_are_shared(list_all, tmp_path):
    found = list(list_all(seeds=[0, 1, 2]))
    assert collections.Counter(name.split("-")[0] for name in found) == {
        # Once for all.
        "packed": 2,
        "warm": 1,
        "ict": 1,
        # Four pre-trained models with three seeds, and the one after ICT.
        "pretrained": 12,
        "embeddings": 13,
        "index": 13,
        "zero": 13,
        # What pre-training begins with, and two systems with three seeds.
        "combined": 7,
        # Seven systems with three seeds.
        "finetuned": 21,
        # Their weights are fitted on dev.
        "calibration": 21,
        "evaluation": 21,
    }
    # The first seed of all comes before the second of any.
    assert found.index("evaluation-stale_30x-0-nq") < found.index(
        "pretrained-realm-1"
    )
    assert not os.path.exists(tmp_path / "output")


def test_the_steps_of_table_2_differ_in_what_their_names_say(list_all):
    found = list_all()
    recipe = (
        pretrain_configs.RECIPES["tiny"]
        .parse(SET_PRETRAIN)
        .replace(masked_lm_steps=0)
    )
    for name, change in (
        ("realm", {}),
        ("uniform_masks", {"mode": "uniform"}),
        ("span_masks", {"mode": "random_span"}),
        ("stale_30x", {"stale_factor": 30}),
    ):
        trained = found[f"pretrained-{name}-0"]
        assert trained.settings == recipe.replace(**change)
        assert _read(trained, "model", "blocks", "corpus", "index") == [
            *("combined-ict+warm-up", "packed-blocks"),
            *("packed-corpus", "index-ict"),
        ]
    warm_up = found["warm-up"]
    assert warm_up.settings.masked_lm.masked_lm_steps == 2
    assert warm_up.settings.num_steps == 0
    assert _read(warm_up, "model", "blocks") == ["start", "packed-blocks"]
    assert _read(found["ict"], "model", "blocks") == ["start", "packed-blocks"]
    for name, parts, towers, reader in (
        (
            "realm_retriever+baseline_encoder",
            "realm-0+warm-up",
            "pretrained-realm-0",
            "warm-up",
        ),
        (
            "baseline_retriever+realm_encoder",
            "ict+realm-0",
            "ict",
            "pretrained-realm-0",
        ),
        ("orqa", "ict+warm-up", "ict", "warm-up"),
    ):
        combined = found[f"combined-{parts}"]
        assert _read(combined, "towers", "reader") == [towers, reader]
        index = f"index-{towers.removeprefix('pretrained-')}"
        model = "orqa+warm_up" if name == "orqa" else name
        tuned = found[f"finetuned-{model}-0"]
        assert _read(tuned, "model", "index") == [f"combined-{parts}", index]
        evaluated = found[f"evaluation-{name}-0-nq"]
        assert _read(evaluated, "model", "index") == [
            f"finetuned-{model}-0",
            index,
        ]


def test_realm_begins_with_the_towers_that_are_named(list_all):
    found = list_all(suite="table1", begin="start")
    assert _read(found["pretrained-realm-0"], "model", "index") == [
        "warm-up",
        "index-start",
    ]
    # ORQA is as it was.
    assert _read(found["finetuned-orqa-0"], "model") == ["ict"]


@pytest.mark.parametrize(
    "changes, ict, warm_up",
    [(WITHOUT_WARM_UP, "ict", "start"), (WITHOUT_ICT, "start", "warm-up")],
)
def test_a_part_is_taken_from_what_trained_it(list_all, changes, ict, warm_up):
    """Also where one of the two trainings before REALM's is left out."""
    found = list_all(**changes)
    begin = ict if warm_up == "start" else warm_up
    for name in ("pretrained-realm-0", "finetuned-orqa+warm_up-0"):
        assert _read(found[name], "model") == [begin]
    for name, towers, reader in (
        ("realm_retriever+baseline_encoder", "pretrained-realm-0", warm_up),
        ("baseline_retriever+realm_encoder", ict, "pretrained-realm-0"),
    ):
        (model,) = _read(found[f"finetuned-{name}-0"], "model")
        assert _read(found[model], "towers", "reader") == [towers, reader]


def test_the_steps_of_table_1(list_all):
    found = list_all(suite="table1", test=["nq.test.jsonl", "nq.dev.jsonl.gz"])
    # No towers are measured before fine-tuning; REALM's model serves two.
    assert not [name for name in found if name.startswith("zero-shot")]
    baselines = ("bm25", "start", "orqa", "dpr")
    assert [name for name in found if name.startswith("finetuned")] == [
        f"finetuned-{name}-0"
        for name in (
            *baselines[:2],
            "start+query_tower",
            *baselines[2:],
            "realm_retriever",
            "realm",
            *(f"{name}+warm_up" for name in baselines),
        )
    ]
    for name, model, retriever in (
        ("bm25", "bm25", "bm25"),
        ("bm25+warm_up", "bm25+warm_up", "bm25"),
        ("start", "start", "realm"),
        ("realm", "realm", "realm"),
        ("hybrid", "realm", "hybrid"),
        ("start+bm25", "start", "hybrid"),
        ("realm_retriever+bm25", "realm_retriever", "hybrid"),
    ):
        for test in ("nq.test", "nq.dev"):
            evaluated = found[f"evaluation-{name}-0-{test}"]
            assert _read(evaluated, "model") == [f"finetuned-{model}-0"]
            assert evaluated.retriever == retriever
    # Weights are fitted on dev, once for all tests.
    for name, trained in (("hybrid", "realm"), ("bm25", "bm25")):
        fitted = found[f"calibration-{name}-0"]
        assert str(fitted.questions.path) == str(
            found[f"finetuned-{trained}-0"].dev.path
        )
        for test in ("nq.test", "nq.dev"):
            known = found[f"evaluation-{name}-0-{test}"].calibration
            assert known.path == fitted.result.path
    # With the start's encoder, and with that of the warm-up.
    for name, before, index in (
        ("bm25", "start", "start"),
        ("start", "start", "start"),
        ("start+query_tower", "start", "start"),
        ("orqa", "ict", "ict"),
        ("dpr", "dpr-0", "dpr-0"),
        ("bm25+warm_up", "warm-up", "start"),
        ("start+warm_up", "warm-up", "start"),
        ("orqa+warm_up", "combined-ict+warm-up", "ict"),
        ("dpr+warm_up", "combined-dpr-0+warm-up", "dpr-0"),
        ("realm_retriever", "combined-realm-0+start", "realm-0"),
    ):
        tuned = found[f"finetuned-{name}-0"]
        assert _read(tuned, "model", "index") == [before, f"index-{index}"]
        learns = name.startswith(("orqa", "start+query_tower", "realm"))
        assert tuned.settings.train_query_tower == learns
        retriever = "bm25" if "bm25" in name else "realm"
        assert tuned.settings.candidates.retriever == retriever


def test_retrievers_are_compared_with_one_reader(list_all):
    """Nothing is trained of what does not learn, nor measured twice."""
    cells = ["bm25", "start", "start+query_tower", "start+bm25", "dpr", "orqa"]
    changes = {"suite": "table1", "set_finetune": ["train_reader=false"]}
    found = list_all(seeds=[0, 1], cells=cells, **changes)
    assert [name for name in found if name.startswith("finetuned")] == [
        f"finetuned-{name}-{seed}"
        for seed in (0, 1)
        for name in ("start+query_tower", "orqa")
    ]
    assert [name for name in found if name.startswith("evaluation")] == [
        *(f"evaluation-{name}-nq" for name in ("bm25", "start")),
        "evaluation-start+query_tower-0-nq",
        "evaluation-start+bm25-nq",
        *(f"evaluation-{name}-0-nq" for name in ("orqa", "dpr")),
        *(
            f"evaluation-{name}-1-nq"
            for name in ("start+query_tower", "orqa", "dpr")
        ),
    ]
    for name, model in (("bm25", "start"), ("dpr-1", "dpr-1")):
        assert _read(found[f"evaluation-{name}-nq"], "model") == [model]
    with pytest.raises(
        InputError,
        match=r"leave realm, bm25\+warm_up out of --cells. Others: bm25\.",
    ):
        list_all(cells=["bm25", "realm", "bm25+warm_up"], **changes)


def test_without_a_warm_up_no_system_of_table_1_is_there_twice(list_all):
    changes = {"suite": "table1", **WITHOUT_WARM_UP}
    assert not [name for name in list_all(**changes) if "warm" in name]
    with pytest.raises(
        InputError,
        match=r"with masked_lm_steps=0 must be of bm25, .*: dpr\+warm_up$",
    ):
        list_all(cells=["dpr+warm_up"], **changes)
