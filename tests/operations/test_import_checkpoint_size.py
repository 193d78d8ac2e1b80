"""`realm import` at the sizes of the published checkpoints."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.numpy

from realm_tf.artifacts import model_directory
from realm_tf.checkpoints.hugging_face_names import mapping
from realm_tf.checkpoints.source import BlockEmbeddings
from realm_tf.checkpoints.tensor_files import open_safetensors

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "hf_realm"
CONFIG = {
    "vocab_size": 30522,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "hidden_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu_new",
    "span_hidden_size": 256,
}
# Of a RealmForOpenQA: PyTorch's shapes, by the end of the name.
SHAPES = {
    "word_embeddings.weight": (30522, 768),
    "position_embeddings.weight": (512, 768),
    "token_type_embeddings.weight": (2, 768),
    "intermediate.dense.weight": (3072, 768),
    "intermediate.dense.bias": (3072,),
    "attention.output.dense.weight": (768, 768),
    "output.dense.weight": (768, 3072),
    "cls.dense.weight": (128, 768),
    "cls.dense.bias": (128,),
    "cls.LayerNorm.weight": (128,),
    "cls.LayerNorm.bias": (128,),
    "dense_intermediate.weight": (512, 768),
    "dense_intermediate.bias": (512,),
    "layer_normalization.weight": (256,),
    "layer_normalization.bias": (256,),
    "dense_output.weight": (1, 256),
    "dense_output.bias": (1,),
}
NUM_ROWS = 13_353_718


def _shape(name):
    ending = next((e for e in SHAPES if name.endswith(e)), None)
    if ending:
        return SHAPES[ending]
    is_square = name.endswith(".weight") and "LayerNorm" not in name
    return (768, 768) if is_square else (768,)


def _write(directory):
    names = {
        **{f"embedder.{n}": n for n in mapping("embedder", 12)},
        **{f"reader.{n}": n for n in mapping("reader", 12)},
    }
    tensors = {
        name: np.full(_shape(name), number / 1000, "float32")
        for number, name in enumerate(names)
    }
    directory.mkdir()
    safetensors.numpy.save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(CONFIG))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *(f"w{n}" for n in range(30522 - len(special)))]
    (directory / "vocab.txt").write_text("\n".join(words))
    return {name: number / 1000 for number, name in enumerate(names)}


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
def test_two_berts_are_imported_in_time_and_memory(tmp_path):
    values = _write(tmp_path / "source")
    command = ["import", "hf", "--source", str(tmp_path / "source")]
    start = time.monotonic()
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
    seconds = time.monotonic() - start
    peak = 1024 * int(re.search(r"peak (\d+)", done.stdout)[1])
    print(f"{seconds:.1f} s, {peak / 1e9:.2f} GB")
    assert "219,457,665 parameters" in done.stdout
    assert seconds < 60 and peak < 3e9
    model = model_directory.load(str(tmp_path / "model")).model
    for name, part in (
        ("embedder", model.block_embedder),
        ("reader", model.reader),
    ):
        layer = "realm.encoder.layer.7.output.dense.weight"
        found = part.encoder.get_layer("transformer_layer_7")
        kernel = np.asarray(found._feedforward_output_dense.kernel)
        assert kernel.shape == (3072, 768)
        assert (kernel == np.float32(values[f"{name}.{layer}"])).all()


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
