"""Exports from a process whose Keras does not run on TensorFlow.

A model directory belongs to no backend, so a SavedModel is always made of
TensorFlow's ops, by a process of its own. What it must answer is computed on
the backend of the process that asked for it.
"""

import json
import os
import subprocess
import sys

from realm_tf.artifacts.objects import SavedModel
from realm_tf.errors import InputError

_USAGE_ERROR = 2


def export(fields: dict, *, expected: dict | None = None) -> SavedModel:
    """Runs an `Export` where Keras runs on TensorFlow.

    Args:
        fields: dict. Of the operation.
        expected: dict. See `Export.write_version`. Defaults to `None`.

    Raises:
        InputError: as `Export.run`.
        RuntimeError: if the process fails; its own words are on stderr.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        # Directories as their paths.
        input=json.dumps([fields, expected], default=str),
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    answer = done.stdout.strip().rpartition("\n")[2]
    if done.returncode == _USAGE_ERROR:
        raise InputError(json.loads(answer))
    if done.returncode:
        raise RuntimeError(
            "The process that exports with TensorFlow ended with status "
            f"{done.returncode}."
        )
    return SavedModel(json.loads(answer))


def _main() -> int:
    from realm_tf.operations.export import Export

    fields, expected = json.load(sys.stdin)
    try:
        made = Export(**fields).write_version(expected=expected)
        answer, status = str(made), 0
    except InputError as error:
        answer, status = str(error), _USAGE_ERROR
    print(json.dumps(answer))
    return status


if __name__ == "__main__":
    sys.exit(_main())
