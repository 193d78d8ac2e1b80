"""The checks of a SavedModel: its files, then a fresh process that asks it."""

import json
import pathlib
import subprocess
import sys

from realm_tf.export import card

FILES = "every file is as it was exported"
_WORKER = pathlib.Path(__file__).with_name("verify_worker.py")


def check(directory: str) -> dict:
    """Whether a SavedModel answers as the Python code that exported it.

    Args:
        directory: str. Version directory.

    Returns:
        dict, the report of `operations.verify.Verify`.
    """
    problems = card.check_files(directory)
    return _failed(FILES, problems) if problems else _run_worker(directory)


def _failed(check, problems):
    return {
        "ok": False,
        "checks": [{"name": check, "ok": False}],
        "error": " ".join(problems),
    }


def _run_worker(directory):
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
            [f"It ended with status {done.returncode}:\n{done.stderr[-2000:]}"],
        )
    # TensorFlow may print before us.
    report = json.loads(done.stdout.strip().splitlines()[-1])
    alone = not report["modules_of_realm"]
    report["checks"] += [
        {"name": FILES, "ok": True},
        {"name": "nothing of realm's was imported", "ok": alone},
    ]
    report["ok"] = report["ok"] and alone
    return report
