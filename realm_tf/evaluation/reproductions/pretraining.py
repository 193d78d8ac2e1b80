"""What is measured of pre-training.

Tolerances are ours: about two standard errors of the 480 or 320 sentences that
pre-training is measured on, and a few hundredths for the accuracies of the
masked-LM warm-up.
"""

from realm_tf.evaluation.reproductions.measurement import Cell
from realm_tf.evaluation.reproductions.measurement import Measurement
from realm_tf.evaluation.reproductions.measurement import grid
from realm_tf.evaluation.reproductions.measurement import listed
from realm_tf.evaluation.reproductions.pipelines import XEON

AMX = "two cores of an Intel Xeon with AMX, no GPU"

MEASURE = "python benchmarks/pretraining.py --wheel {wheel}"
_RUNS = f"{MEASURE} --output {{output}}/pretraining"
_HIDDEN = "masked_lm_history/-1/accuracy"
_FOUND = "pretraining/results.json:"


def _masked(kind, run, rows):
    """What masked words of a kind show before and after pre-training."""
    for label, metric, form, tolerance in rows:
        for when, model in (("before", "start"), ("after", "refreshed")):
            yield Cell(
                label,
                f"{kind}: {when}",
                f"{_FOUND}{run}/means/{model}/{kind.split()[0]}/{metric}/0",
                form,
                tolerance,
            )


_LOSS = ("masked-LM loss, nats a wordpiece", "loss", "{:.2f}", "0.15")
_UTILITY = (
    "retrieval utility, nats a wordpiece",
    "retrieval_utility",
    "{:+.2f}",
)
_ACCURACY = ("masked-LM accuracy", "mlm_accuracy", "{:.3f}")
_ARTICLE = (
    "another block of the article among the 7",
    "article_recall",
    "{:.3f}",
)
_ANSWER = (
    "a block with the masked span among the 7",
    "answer_recall",
    "{:.3f}",
)
_NULL = ("p(null block)", "null_probability", "{:.5f}")

_MINILM_SALIENT = (
    _LOSS,
    (*_ACCURACY, "0.02"),
    (*_UTILITY, "0.15"),
    (*_ARTICLE, "0.04"),
    (*_ANSWER, "0.03"),
    (*_NULL, "25 %"),
)
_MINILM_UNIFORM = (
    _LOSS,
    (*_ACCURACY, "0.02"),
    (*_UTILITY, "0.3"),
    (*_ARTICLE, "0.04"),
    (*_ANSWER, "0.01"),
    (*_NULL, "25 %"),
)
_WARM = "pretraining/minilm-warm/metadata.json:"
_REFRESHED = "pretraining/minilm-refreshed-0/metadata.json:"
_MINILM_RUN = listed(
    (
        "right with the own block",
        f"{_WARM}{_HIDDEN}_own_block",
        "{:.2f}",
        "0.05",
    ),
    (
        "right with a block that holds the answer",
        f"{_WARM}{_HIDDEN}_answer_block",
        "{:.2f}",
        "0.05",
    ),
    ("right without a block", f"{_WARM}{_HIDDEN}_null_block", "{:.2f}", "0.02"),
    ("seconds of the warm-up", f"{_WARM}seconds"),
    ("seconds of pre-training", f"{_REFRESHED}seconds"),
    ("steps of pre-training", f"{_REFRESHED}counts/steps", "{:.0f}", "0"),
    (
        "spans that another block holds",
        f"{_FOUND}findable/in_the_corpus / findable/spans",
        "{:.0%}",
        "0.005",
    ),
    (
        "spans that another block of the article holds",
        f"{_FOUND}findable/in_the_article / findable/spans",
        "{:.0%}",
        "0.005",
    ),
    (
        "articles, blocks",
        "pretraining/blocks/metadata.json:counts/articles_kept num_blocks",
        "{:.0f}, {:,.0f}",
        "0",
    ),
)

_RANDOM_SALIENT = (
    _LOSS,
    (*_ACCURACY, "0.01"),
    (*_UTILITY, "0.09"),
    (*_ARTICLE, "0.03"),
    (*_ANSWER, "0.015"),
)
_WARM_UPS = grid(
    {
        "to copy, 2,000 steps": "copy",
        "to expect answers in blocks, 2,000 steps": "answer",
        "not to copy from any block, 1,000 steps": "judge",
        "to lose little by blocks that do not help, 1,000 steps": "warm",
    },
    *(
        (
            label,
            f"pretraining/random-{{row}}/metadata.json:{_HIDDEN}_{block}_block",
            "{:.2f}",
            "0.05",
        )
        for label, block in (
            ("own block", "own"),
            ("block with the answer", "answer"),
            ("null block", "null"),
        )
    ),
)
_MEANS = f"{_FOUND}random/means/"
_DIFFERENCE = (
    f"{_FOUND}random/differences/random-{{0}}-0/salient/answer_recall/difference "
    "random/differences/random-{0}-0/salient/answer_recall/interval/0 "
    "random/differences/random-{0}-0/salient/answer_recall/interval/1"
)
_WITH_SIGN = "{:+.4f} ({:.4f} to {:.4f})"
_RANDOM_RUNS = listed(
    (
        "masked spans found more often, salient spans masked",
        _DIFFERENCE.format("refreshed"),
        _WITH_SIGN,
        "0.006",
    ),
    (
        "masked spans found more often, uniform masks",
        _DIFFERENCE.format("uniform"),
        _WITH_SIGN,
        "0.008",
    ),
    (
        "masked spans found after uniform masks",
        f"{_MEANS}uniform/salient/answer_recall/0",
        "{:.3f}",
        "0.008",
    ),
    (
        "masked-LM accuracy of salient spans after uniform masks",
        f"{_MEANS}uniform/salient/mlm_accuracy/0",
        "{:.3f}",
        "0.01",
    ),
    (
        "masked spans found after 1,000 steps",
        "pretraining/random-1000.json:salient/answer_recall",
        "{:.3f}",
        "0.02",
    ),
    (
        "retrieval utility after 1,000 steps",
        "pretraining/random-1000.json:salient/retrieval_utility",
        "{:+.2f}",
        "0.02",
    ),
    (
        "p(null block) for salient spans: before, after salient spans",
        f"{_MEANS}start/salient/null_probability/0 "
        "random/means/refreshed/salient/null_probability/0",
        "{:.4f}, {:.4f}",
        "0.004",
    ),
    (
        "p(null block) for uniform masks: before, after uniform masks",
        f"{_MEANS}start/uniform/null_probability/0 "
        "random/means/uniform/uniform/null_probability/0",
        "{:.4f}, {:.4f}",
        "0.01",
    ),
)

PRETRAINING = (
    Measurement(
        "pretraining-minilm",
        (
            f"{_RUNS} --experiments minilm --seeds 1 --kinds refreshed "
            "--num-batches 60 --set masked_lm_learning_rate=4e-4",
        ),
        50,
        XEON,
        {
            "480 sentences": (
                *_masked("salient spans", "minilm", _MINILM_SALIENT),
                *_masked("uniform masks", "minilm", _MINILM_UNIFORM),
            ),
            "the run": _MINILM_RUN,
        },
    ),
    Measurement(
        "pretraining-random",
        (
            f"{_RUNS} --experiments random --seeds 1 "
            "--kinds refreshed uniform --num-batches 100 "
            "--text {data_dir}/corpus.jsonl.gz",
            "realm pretrain --recipe small --set num_steps=1000 "
            "--set masked_lm_steps=0 --set refresh=sync "
            "--model {output}/pretraining/random-warm "
            "--blocks {output}/pretraining/packed-blocks "
            "--corpus {output}/pretraining/packed-passages "
            "--output {output}/pretraining/random-1000",
            f"{_RUNS} --num-batches 100 "
            "--measure {output}/pretraining/random-warm "
            "{output}/pretraining/random-1000",
        ),
        200,
        AMX,
        {
            "warm-up": _WARM_UPS,
            "3,200 masks": tuple(
                _masked("salient spans", "random", _RANDOM_SALIENT)
            ),
            "other runs": _RANDOM_RUNS,
        },
    ),
)
