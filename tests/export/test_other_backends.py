"""An export from another Keras backend is the same op-free graph."""

import os
import subprocess
import sys

import pytest
from graph_ops import op_names

from realm_tf.errors import InputError
from realm_tf.operations.export import Export
from realm_tf.operations.verify import Verify


@pytest.mark.slow
def test_what_is_wrong_is_said_as_if_it_were_here(tmp_path):
    with pytest.raises(InputError, match="none does not exist"):
        Export(
            precision="float32",
            **{
                name: str(tmp_path / "none")
                for name in ("model", "blocks", "index", "output")
            },
        )._export_with_tensorflow(None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["brute_force", "ivf", "scann"])
def test_jax_answers_what_its_export_answers(
    kind, tmp_path, model_dir, blocks_dir, request
):
    base = str(tmp_path / "base")
    index = request.getfixturevalue(f"{kind}_index_dir")
    subprocess.run(
        [
            *(sys.executable, "-m", "realm_tf.cli", "export"),
            *("--model", model_dir, "--blocks", blocks_dir),
            *("--index", index, "--output", base),
        ],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        check=True,
    )
    report = Verify(saved_model=base).run()
    assert report["ok"], [c for c in report["checks"] if not c["ok"]]
    # What JAX would put into a SavedModel.
    assert "XlaCallModule" not in op_names(f"{base}/1")
