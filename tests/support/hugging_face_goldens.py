"""Checkpoints of REALM that transformers 4.40.2 wrote; see golden/README.md."""

import pathlib
import shutil

from realm_tf.operations.import_checkpoint import ImportCheckpoint

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "hf_realm"
TOLERANCE = {"atol": 2e-5, "rtol": 1e-4}


def import_hf(sources, output, **options):
    """What `realm import hf` prints."""
    operation = ImportCheckpoint(
        kind="hf",
        source=[str(GOLDEN / source) for source in sources],
        output=str(output),
        **options,
    )
    return operation.run()


def copy_golden(name, tmp_path):
    copied = tmp_path / name
    shutil.copytree(GOLDEN / name, copied)
    return copied
