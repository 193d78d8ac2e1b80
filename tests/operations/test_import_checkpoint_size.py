"""`realm import` at the sizes of the published checkpoints."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy

from realm_tf.checkpoints import assignment
from realm_tf.checkpoints import hugging_face
from realm_tf.checkpoints import random_weights
from realm_tf.checkpoints.source import EMBEDDER
from realm_tf.checkpoints.source import READER
from realm_tf.checkpoints.source import BlockEmbeddings
from realm_tf.checkpoints.tensor_files import open_safetensors
from realm_tf.models import model_directory

NAMES = hugging_face.NAMES
NUM_ROWS = 13_353_718


def _write(directory):
    """A model of BERT-base's size, for transformers."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *(f"w{n}" for n in range(30522 - len(special)))]
    vocab = directory / "vocab.txt"
    vocab.write_text("\n".join(words))
    loaded = random_weights.random(
        vocab=str(vocab),
        num_layers=12,
        num_heads=12,
        hidden_dim=768,
        intermediate_dim=3072,
    )
    model = loaded.model
    parts = ((EMBEDDER, model.query_embedder), (READER, model.reader))
    for part, made in parts:
        folder = directory / part
        folder.mkdir()
        layout = next(x for x in NAMES.layouts if x.part == part)
        table = NAMES.mapping(layout, 12)
        tensors = assignment.extract(made, table)
        safetensors.numpy.save_file(
            {k: np.ascontiguousarray(v) for k, v in tensors.items()},
            folder / "model.safetensors",
        )
        config = hugging_face.from_encoder_config(made.encoder.get_config())
        config["model_type"] = "realm"
        (folder / "config.json").write_text(json.dumps(config))
        shutil.copy(vocab, folder)
    return model, [str(directory / part) for part, _ in parts]


# In a process of its own, whose peak is measured: VmHWM, as getrusage would
# count the process that started it.
MEASURE = """
import re, sys
from realm_tf import cli
status = cli.main(sys.argv[1:])
with open("/proc/self/status") as file:
    print("peak", re.search(r"VmHWM:\\s*(\\d+) kB", file.read())[1])
sys.exit(status)
"""


@pytest.mark.slow
def test_two_berts_are_imported_in_little_memory(tmp_path):
    expected, sources = _write(tmp_path)
    command = ["import", "hf", "--source", *sources]
    done = subprocess.run(
        [
            *(sys.executable, "-c", MEASURE, *command),
            *("--output", str(tmp_path / "model")),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    peak = 1024 * int(re.search(r"peak (\d+)", done.stdout)[1])
    print(f"{peak / 1e9:.2f} GB")
    assert "219,457,665 parameters" in done.stdout
    assert peak < 3e9
    model = model_directory.load(str(tmp_path / "model")).model
    for ours, theirs in zip(
        model.get_weights(), expected.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_rows_of_all_blocks_are_read_in_pieces(tmp_path):
    """A file as long as the published one, most of it a hole."""
    size = NUM_ROWS * 128 * 4
    header = json.dumps(
        {
            "block_emb": {
                "dtype": "F32",
                "shape": [NUM_ROWS, 128],
                "data_offsets": [0, size],
            }
        }
    ).encode()
    path = tmp_path / "model.safetensors"
    row = np.arange(128, dtype="float32")
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        start = file.tell()
        file.truncate(start + size)
        file.seek(start + 9_000_001 * 512)
        file.write(row.tobytes())
    rows = BlockEmbeddings(open_safetensors(str(path)), "block_emb")
    assert rows.num_rows == NUM_ROWS
    piece = rows.read(9_000_000, 9_000_003)
    assert piece.shape == (3, 128)
    np.testing.assert_array_equal(piece[1], row)
    assert not piece[0].any() and not piece[2].any()
