"""Exports of the tiny world: version 1 searches exactly, version 2 by ScaNN."""

import json

import pytest

# Titles that are blocks' and others; what has no answer is stored, too.
ASKED = [
    "Where was Ada?",
    "What is the river of Rome?",
    "Who wrote organ music in the city of Leipzig in 1750?",
    "",
    "Café fire 🚀 in the city",
]


@pytest.fixture(scope="session")
def asked():
    return ASKED


@pytest.fixture(scope="session")
def exported(
    tmp_path_factory,
    model_dir,
    blocks_dir,
    brute_force_index_dir,
    scann_index_dir,
):
    """The base directory; version 1 reads more blocks than there are."""
    from export.saved_model import export

    root = tmp_path_factory.mktemp("export")
    questions = root / "questions.jsonl"
    questions.write_text(
        "".join(f"{json.dumps({'question': q})}\n" for q in ASKED)
    )
    base = str(root / "realm")
    for version, (index, arguments) in enumerate(
        (
            (brute_force_index_dir, {"num_reader_blocks": 15}),
            (scann_index_dir, {"questions": str(questions)}),
        ),
        start=1,
    ):
        path = export(model_dir, blocks_dir, index, base, **arguments)
        assert path == f"{base}/{version}"
    return base
