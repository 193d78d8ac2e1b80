"""The notebook, executed from its first cell to its last at tiny size.

In a kernel of its own, on a CPU split into eight devices. What the cells made
is asked in one more cell and read from the directories they left. Nine
commands import TensorFlow and the kernel compiles with JAX: slow.
"""

import bz2
import json
import math
import os
import pathlib
import re
import sys

import pytest

from realm_tf import quickstart
from realm_tf.articles import readers
from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import Path
from realm_tf.text.tokenizer import CLS
from realm_tf.text.tokenizer import MASK
from realm_tf.text.tokenizer import PAD
from realm_tf.text.tokenizer import SEP
from realm_tf.text.tokenizer import UNK
from realm_tf.training.training_log import read_log

nbclient = pytest.importorskip("nbclient", reason="pip install .[notebook]")
nbformat = pytest.importorskip("nbformat", reason="pip install .[notebook]")
pytest.importorskip("ipykernel", reason="pip install .[notebook]")
pytest.importorskip("jax", reason="pip install .[jax]")

NOTEBOOK = pathlib.Path(__file__).parents[2] / "notebooks" / "realm_colab.ipynb"
NUM_DEVICES = 8
NUM_PAGES = 40
STEPS = {"ICT_STEPS": 4, "MASKED_LM_STEPS": 4, "PRETRAIN_STEPS": 120}
SIZES = {
    "BATCH_SIZE": 8,
    "LEARNING_RATE": 1e-2,
    "READING_RATE": 1e-2,
    "MAX_QUERY_LENGTH": 24,
    "MAX_BLOCK_LENGTH": 64,
    "MAX_JOINT_LENGTH": 80,
    "READING_WINDOW": 40,
    "NUM_RETRIEVED": 2,
    "NUM_FROZEN_LAYERS": 0,
    "REFRESH_EVERY": 4,
    "LOG_EVERY": 2,
    "RECIPE": "tiny",
    **STEPS,
}
FACTS = """
import json

import numpy as np

published = exchange.read_index(refresh.index_step)
found = np.asarray(realm.index.embeddings)[: len(blocks)]
print(json.dumps({
    "backend": keras.backend.backend(),
    "num_blocks": len(blocks),
    "shards": [
        [str(shard.device), *shard.data.shape]
        for shard in realm.index.embeddings.value.addressable_shards
    ],
    "swaps": refresh.swaps,
    "num_restarts": refresh.num_restarts,
    "is_the_builders": np.array_equal(found, published),
    "ict": ict_history.history,
    "masked_lm": masked_lm_history.history,
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


def _start_arguments(directory, corpus):
    """Of a random model that knows the corpus's words."""
    words = set()
    for page in readers.read_pages(corpus):
        words.update(re.findall(r"[a-z]+|\d", page.text.lower()))
    vocabulary = directory / "vocab.txt"
    vocabulary.write_text(
        "\n".join([PAD, UNK, CLS, SEP, MASK, *sorted(words)]), encoding="utf-8"
    )
    return (
        f"--from random --vocab {vocabulary} --num-layers 1 --num-heads 2 "
        "--hidden-dim 8 --intermediate-dim 16 --projection-dim 8"
    )


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
        cell.source, count = re.subn(
            rf"^{name} = .*$",
            lambda _, line=f"{name} = {value!r}": line,
            cell.source,
            flags=re.MULTILINE,
        )
        assert count == 1, name


def _output(notebook, cell_id):
    """What a cell printed."""
    (cell,) = (cell for cell in notebook.cells if cell.id == cell_id)
    return "".join(
        output.text
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stdout"
    )


def _data(notebook, cell_id, kind):
    """What a cell shows, in one form."""
    (cell,) = (cell for cell in notebook.cells if cell.id == cell_id)
    return cell.outputs[-1].data[kind]


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
            "START": _start_arguments(directory, corpus),
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
    # `realm` is beside the interpreter.
    scripts = os.path.dirname(sys.executable)
    client.execute(
        env={
            **os.environ,
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
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


def test_a_cell_of_words_stands_before_each_short_cell_of_code():
    cells = _read().cells
    for before, cell in zip(cells, cells[1:], strict=False):
        if cell.cell_type == "code":
            assert before.cell_type == "markdown", cell.id
            # The parameters are the longest.
            assert len(cell.source.splitlines()) <= 32, cell.id
    assert "A TPU was not available" in cells[0].source


@pytest.mark.slow
def test_every_stage_was_made(executed):
    _, facts, run = executed
    assert facts["backend"] == "jax"
    for name in (
        *("start", "blocks", "annotated", "packed_blocks", "packed_passages"),
        *("pretrained", "embeddings", "index", "model", "saved_model/1"),
    ):
        assert artifact.is_complete(str(run / name)), name
    metadata = artifact.read(str(run / "blocks"), kind="blocks")
    assert facts["num_blocks"] == metadata["num_blocks"] > 100


@pytest.mark.slow
def test_losses_are_finite_and_the_encoder_learns(executed):
    _, facts, run = executed
    for name in ("ict", "masked_lm"):
        losses = facts[name]["loss"]
        assert len(losses) == 2 and all(map(math.isfinite, losses)), losses
    lines = read_log(str(run / "pretrain.jsonl"))
    assert lines[-1]["step"] == STEPS["PRETRAIN_STEPS"]
    losses = [line["loss"] for line in lines]
    assert None not in losses
    assert sum(losses[-5:]) < sum(losses[:5])
    assert {"retrieval_utility", "index_age"} <= set(lines[-1])


@pytest.mark.slow
def test_the_index_lies_on_all_devices(executed):
    notebook, facts, _ = executed
    shards = facts["shards"]
    assert len({device for device, _, _ in shards}) == NUM_DEVICES
    rows = -(-facts["num_blocks"] // NUM_DEVICES)
    assert [shape for _, *shape in shards] == [[rows, 8]] * NUM_DEVICES
    shown = _output(notebook, "realm")
    assert shown.count(f": {rows} rows") == NUM_DEVICES


@pytest.mark.slow
def test_the_index_was_swapped_for_what_the_builder_made(executed):
    _, facts, _ = executed
    assert facts["swaps"]
    assert facts["num_restarts"] == 0
    assert facts["is_the_builders"]
    for step, index_step in facts["swaps"]:
        assert 0 < index_step < step


@pytest.mark.slow
def test_curves_and_sample_are_shown(executed):
    notebook, _, _ = executed
    for cell_id in ("ict-plot", "pretrain-plot"):
        assert len(_data(notebook, cell_id, "image/png")) > 10_000
    table = _data(notebook, "samples", "text/markdown")
    assert "| null |" in table
    # The null block, the two that were retrieved, and two lines of heads.
    assert table.count("\n|") == 5


@pytest.mark.slow
def test_search_gives_blocks_by_falling_score(executed):
    notebook, _, _ = executed
    scores = [
        float(line.split()[0])
        for line in _output(notebook, "search").splitlines()
    ]
    assert len(scores) == 5 and scores == sorted(scores, reverse=True)


@pytest.mark.slow
def test_the_question_is_answered_with_evidence(executed):
    notebook, _, run = executed
    # Jupyter tells programs that they may print bold.
    shown = re.sub(r"\x1b\[\d*m", "", _output(notebook, "ask"))
    answer = re.search(r"^A: (\S.*?)   \(score ", shown, re.MULTILINE)
    block_id = re.search(r"^   .* \(block (\d+)\)", shown, re.MULTILINE)
    assert answer and block_id, shown
    blocks = artifact.read(str(run / "blocks"), kind="blocks")["num_blocks"]
    assert int(block_id[1]) < blocks
    assert "https://quickstart.example/wiki/" in shown
