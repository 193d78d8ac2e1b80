"""The checks of a SavedModel: its files, then a fresh process that asks it."""

import json
import pathlib
import subprocess
import sys

from realm_tf.errors import InputError
from realm_tf.export import card

_WORKER = pathlib.Path(__file__).with_name("verify_worker.py")


def check(directory: str) -> dict:
    """Whether a SavedModel answers as the Python code that exported it.

    Args:
        directory: str. Version directory.

    Returns:
        dict, the report of `operations.verify.Verify`.
    """
    files = "every file is as it was exported"
    try:
        card.read(directory)
    except InputError as error:
        return _failed(files, str(error))
    report = ask_in_a_fresh_process(directory)
    report["checks"].insert(0, {"name": files, "ok": True})
    return report


def ask_in_a_fresh_process(directory: str) -> dict:
    """The report of `verify_worker`."""
    done = subprocess.run(
        # Without this directory, nor the current one, in the search path.
        [sys.executable, "-P", str(_WORKER), directory],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return _failed(
            "a fresh process loads and asks",
            f"It ended with status {done.returncode}:\n{done.stderr[-2000:]}",
        )
    # TensorFlow may print before us.
    return json.loads(done.stdout.strip().splitlines()[-1])


def _failed(name, error):
    checks = [{"name": name, "ok": False}]
    return {"ok": False, "checks": checks, "error": error}
