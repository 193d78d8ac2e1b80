"""Checks a SavedModel in a fresh process.

  realm verify --saved-model DIR

Every file must have the checksum that the model's card says. Then a process
loads TensorFlow and tensorflow_text, ScaNN's op where the index is ScaNN's,
and nothing of realm's. It answers the questions stored in the export, and
compares answers, spans, scores, candidates and neighbours with what the Python
code had computed, and how long both take; then it asks the same questions alone
and in one batch of 64, and asks what users should not: an empty string, 10,000
characters, emoji, invalid UTF-8.
"""

import json
import os
import pathlib
import subprocess
import sys

from realm_tf.artifacts import artifact
from realm_tf.artifacts import schema
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.export import card

FILES = "every file is as it was exported"
_WORKER = pathlib.Path(__file__).with_name("verify_worker.py")


def add_arguments(parser):
    """Arguments of `realm verify`."""
    parser.add_argument(
        "--saved-model",
        required=True,
        help="base directory (its highest version) or version directory",
    )
    parser.add_argument("--output", help="directory for the report, if wanted")


def run(args, extra):
    """`realm verify`."""
    report = verify(args.saved_model, output=args.output)
    for check in report["checks"]:
        print(f"{'ok    ' if check['ok'] else 'FAILED'}  {check['name']}")
    if "error" in report:
        print(report["error"], file=sys.stderr)
    else:
        print(
            f"loaded in {report['load_seconds']} s, "
            f"{report['milliseconds_per_question']} ms a question (the Python "
            f"code: {report['milliseconds_in_python']} ms)"
        )
    return 0 if report["ok"] else 1


def verify(saved_model: str, *, output: str | None = None) -> dict:
    """Loads a SavedModel in a fresh process and compares.

    Args:
        saved_model: str. Base or version directory.
        output: str. Directory to make with report.json; only a report
            without failures makes it complete. Defaults to `None`.

    Returns:
        dict with `ok`, `checks`, `load_seconds`,
        `milliseconds_per_question`, `milliseconds_in_python` and
        `neighbors_found` (of an exact search's, the share); `error` instead
        of these, if files are not those of the export or the fresh process
        itself failed.

    Raises:
        InputError: if there is no SavedModel that `realm export` wrote.
        RuntimeError: if a check fails while `output` is given.
    """
    from realm_tf.serving.locate import find_version

    directory, _ = find_version(saved_model)
    if not artifact.is_complete(directory):
        raise InputError(
            f"{directory} was not written by `realm export` to its end."
        )
    if not Path(os.path.join(directory, card.FILE)).exists():
        raise InputError(
            f"{directory} was exported by an earlier version of realm: run "
            "`realm export` again."
        )
    problems = card.check_files(directory)
    report = _failed(FILES, problems) if problems else _run_worker(directory)
    if output:
        with artifact.write(
            output,
            kind="verification",
            parents={
                "saved_model": artifact.read(
                    directory, kind=schema.SAVED_MODEL
                )["parents"]["model"]
            },
        ) as stage:
            write_text(stage.path("report.json"), json.dumps(report, indent=1))
            if not report["ok"]:
                failed = [c["name"] for c in report["checks"] if not c["ok"]]
                raise RuntimeError(
                    f"{directory} does not answer as the model it was made "
                    f"from: {'; '.join(failed)}. {report.get('error', '')}"
                )
    return report


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
