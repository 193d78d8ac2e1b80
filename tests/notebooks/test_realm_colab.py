"""The notebook, executed from its first cell to its last at tiny size.

In a kernel of its own, on a CPU split into eight devices: JAX compiles for all
of them, which is slow.
"""

import bz2
import json
import math
import os
import pathlib
import re

import pytest
from corpus_words import write_vocabulary

from realm_tf import quickstart
from realm_tf.articles import readers
from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import Path
from realm_tf.training.training_log import read_log

nbclient = pytest.importorskip("nbclient", reason="pip install .[notebook]")
nbformat = pytest.importorskip("nbformat", reason="pip install .[notebook]")
pytest.importorskip("ipykernel", reason="pip install .[notebook]")
pytest.importorskip("jax", reason="pip install .[jax]")

NOTEBOOK = pathlib.Path(__file__).parents[2] / "notebooks" / "realm_colab.ipynb"
NUM_DEVICES = 8
NUM_PAGES = 40
NUM_STEPS = 200
SIZES = {
    "RECIPE": "tiny",
    "CHANGES": ["batch_size=8"],
    # Long enough for a thread that embeds all blocks meanwhile.
    "PRETRAIN_CHANGES": [
        *("refresh=thread", "refresh_every=4", f"num_steps={NUM_STEPS}")
    ],
    "BLOCK_LENGTH": 24,
    "FINETUNE_RECIPE": "tiny",
    # Of no word that every vocabulary has.
    "PROBE_ANSWER": [],
}
FACTS = """
print(json.dumps({
    "backend": keras.backend.backend(),
    "devices": len(jax.devices()),
    "swaps": pretrained.metadata["index_swaps"],
    "own": own_history,
    "answer": answer.answer,
    "block_id": answer.block_id,
}))
"""


def _read():
    return nbformat.read(NOTEBOOK, as_version=4)


def _corpus(directory):
    """A slice of the embedded dump: its first pages."""
    header, *pages = (
        bz2.decompress(pathlib.Path(quickstart.CORPUS).read_bytes())
        .decode("utf-8")
        .split("<page>")
    )
    path = directory / "slice.xml.bz2"
    text = "<page>".join([header, *pages[:NUM_PAGES]]) + "</mediawiki>"
    path.write_bytes(bz2.compress(text.encode("utf-8")))
    return str(path)


def _initial(directory, corpus):
    """Of a random model that knows the corpus's words."""
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8}
    return {
        "from_": "random",
        "vocab": write_vocabulary(directory, corpus),
        "intermediate_dim": 16,
        "projection_dim": 8,
        **sizes,
    }


def _questions(directory, corpus):
    """A few of the embedded ones, about articles of the corpus."""
    titles = {page.title for page in readers.read_pages(corpus)}
    lines = [
        line
        for line in Path(quickstart.questions("train")).read_text().split("\n")
        if line and json.loads(line)["evidence"]["title"] in titles
    ]
    path = directory / "questions.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines[:8]))
    return str(path)


def _set_parameters(notebook, values):
    (cell,) = (
        cell
        for cell in notebook.cells
        if "parameters" in cell.metadata.get("tags", [])
    )
    for name, value in values.items():
        assert f"\n{name} = " in cell.source
        cell.source += f"\n{name} = {value!r}"


def _output(notebook, cell_id):
    """What a cell printed."""
    (cell,) = (cell for cell in notebook.cells if cell.id == cell_id)
    return "".join(
        output.text
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stdout"
    )


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """(notebook with its outputs, facts, directory of the run)."""
    directory = tmp_path_factory.mktemp("notebook")
    notebook = _read()
    corpus = _corpus(directory)
    _set_parameters(
        notebook,
        {
            **SIZES,
            "CORPUS": corpus,
            "START": _initial(directory, corpus),
            "QUESTIONS": _questions(directory, corpus),
        },
    )
    notebook.cells.append(nbformat.v4.new_code_cell(FACTS, id="facts"))
    client = nbclient.NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(directory)}},
    )
    client.execute(
        env={
            **os.environ,
            "KERAS_BACKEND": "jax",
            # Compiled sooner, to run slower.
            "XLA_FLAGS": "--xla_force_host_platform_device_count="
            f"{NUM_DEVICES} --xla_backend_optimization_level=0",
        }
    )
    facts = json.loads(_output(notebook, "facts"))
    return notebook, facts, directory / "realm-run"


def test_it_is_committed_without_outputs():
    for cell in _read().cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None, cell.id


def test_it_imports_the_package_and_no_module_of_it():
    code = "\n".join(c.source for c in _read().cells if c.cell_type == "code")
    assert set(
        re.findall(r"^.*import.*realm_tf.*|^from realm_tf.*", code, re.M)
    ) == {
        "import realm_tf as realm",
        # The embedded corpus.
        "from realm_tf import quickstart",
    }


@pytest.mark.slow
def test_every_directory_was_made(executed):
    _, facts, run = executed
    assert (facts["backend"], facts["devices"]) == ("jax", NUM_DEVICES)
    for name in (
        *("initial", "blocks", "annotated", "retriever", "pretrained"),
        *("embeddings", "index", "model", "saved_model/1"),
    ):
        assert artifact.is_complete(str(run / name)), name


@pytest.mark.slow
def test_losses_are_finite_and_the_encoder_learns(executed):
    _, facts, run = executed
    lines = read_log(str(run / "pretrained"))
    assert lines[-1]["step"] == NUM_STEPS
    assert {"retrieval_utility", "index_age"} <= set(lines[-1])
    retriever = artifact.read(str(run / "retriever"), kind="model")
    losses = [line["loss"] for line in (*lines, *retriever["history"])]
    assert all(map(math.isfinite, losses)), losses
    # The index was exchanged for one of an earlier step.
    assert facts["swaps"]
    for step, index_step in facts["swaps"]:
        assert 0 < index_step < step
    assert facts["own"][-1] < 0.5 * facts["own"][0]


@pytest.mark.slow
def test_the_question_is_answered_as_the_export_answers(executed):
    notebook, facts, run = executed
    assert facts["answer"] and facts["block_id"] >= 0
    assert f"{facts['answer']}   (confidence " in _output(notebook, "ask")
    assert "| null |" in _output(notebook, "probe")
    # A model that hardly learned gives blocks of one score, in any order.
    checks = re.fullmatch(
        r"realm-run/saved_model/1: (\d+) of (\d+) checks are ok\n",
        _output(notebook, "export"),
    )
    assert checks and int(checks[1]) > 15
    (cell,) = (cell for cell in notebook.cells if cell.id == "pretrain-plot")
    assert len(cell.outputs[-1].data["image/png"]) > 10_000
