"""Exports of the tiny world.

Version 1 searches exactly, version 2 by ScaNN, version 3 in partitions and by
BM25.
"""

import dataclasses
import json

import pytest

from realm_tf.answering.calibration import Calibration
from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import write_text

# Titles that are blocks' and others; what has no answer is stored, too.
ASKED = [
    *("Where was Ada?", "What is the river of Rome?"),
    *("Who wrote organ music in the city of Leipzig in 1750?", ""),
    *("Café fire 🚀 in the city", "Was the Moon cold?"),
]
# Patterns that every answer matches, and answers that none is.
GOLD = [[".+"], ["["], [".+"], [".+"], [".+"], ["["]]
# So that some of the questions are answered.
CALIBRATION = Calibration(
    bias=-0.6,
    weight=0.2,
    least_confidence=0.3,
    lexical_weight=2.0,
    relevance_weight=1.5,
    questions=100,
)


@pytest.fixture(scope="session")
def asked():
    return ASKED


@pytest.fixture(scope="session")
def evaluation_dir(tmp_path_factory, model_dir):
    """An evaluation of what is asked, with a calibration."""
    path = tmp_path_factory.mktemp("evaluation") / "evaluated"
    lines = [
        json.dumps({"question": q, "answer": a, "answer_type": "regex"})
        for q, a in zip(ASKED, GOLD, strict=True)
    ]
    with artifact.write(
        str(path),
        kind="evaluation",
        parameters={"retriever": "hybrid"},
        parents={"model": Model(model_dir).fingerprint},
    ) as stage:
        stage.metadata["calibration"] = dataclasses.asdict(CALIBRATION)
        write_text(stage.path("predictions.jsonl"), "\n".join(lines))
    return str(path)


@pytest.fixture(scope="session")
def exported(
    tmp_path_factory,
    model_dir,
    blocks_dir,
    brute_force_index_dir,
    scann_index_dir,
    ivf_index_dir,
    evaluation_dir,
):
    """The base directory; version 1 reads more blocks than there are."""
    from realm_tf.operations.export import Export

    base = str(tmp_path_factory.mktemp("export") / "realm")
    for version, (index, arguments) in enumerate(
        (
            (brute_force_index_dir, {"num_reader_blocks": 15}),
            (scann_index_dir, {}),
            (
                ivf_index_dir,
                {
                    "quantize_embeddings": "bfloat16",
                    "retriever": "hybrid",
                    "calibration": evaluation_dir,
                    "evidence_license": "Our own, CC0 1.0",
                },
            ),
        ),
        start=1,
    ):
        made = Export(
            model=model_dir,
            blocks=blocks_dir,
            index=index,
            output=base,
            **arguments,
        ).run()
        assert made.path == f"{base}/{version}"
    return base
