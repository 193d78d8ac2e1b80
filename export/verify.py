"""Checks a SavedModel in a fresh process.

  realm verify --saved-model DIR

The process loads TensorFlow, tensorflow_text and ScaNN's op, nothing of
realm's. It answers the questions stored in the export, and compares answers,
spans, scores and candidates with what the Python code had computed; then it
asks the same questions alone and in one batch of 64, and asks what users
should not: an empty string, 10,000 characters, emoji, invalid UTF-8.
"""

import json
import subprocess
import sys

from realm_tf import stages
from realm_tf.data import schema
from realm_tf.errors import InputError


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
    return 0 if report["ok"] else 1


def verify(saved_model: str, *, output: str | None = None) -> dict:
    """Loads a SavedModel in a fresh process and compares.

    Args:
        saved_model: str. Base or version directory.
        output: str. Directory to make with report.json; only a report
            without failures makes it complete. Defaults to `None`.

    Returns:
        dict with `ok`, `checks` and `seconds` of loading and answering.

    Raises:
        InputError: if there is no SavedModel that `realm export` wrote.
        RuntimeError: if the fresh process fails, or a check does while
            `output` is given.
    """
    from serving.locate import find_version

    directory, _ = find_version(saved_model)
    if not stages.is_complete(directory):
        raise InputError(
            f"{directory} was not written by `realm export` to its end."
        )
    done = subprocess.run(
        [sys.executable, "-m", "export.verify_worker", directory],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"The process that loads {directory} failed:\n{done.stderr[-2000:]}"
        )
    # TensorFlow may print before us.
    report = json.loads(done.stdout.strip().splitlines()[-1])
    if output:
        with stages.write(
            output,
            kind="verification",
            parents={
                "saved_model": stages.read(directory, kind=schema.SAVED_MODEL)[
                    "parents"
                ]["model"]
            },
        ) as stage:
            stages.write_text(
                stage.path("report.json"), json.dumps(report, indent=1)
            )
            if not report["ok"]:
                failed = [c["name"] for c in report["checks"] if not c["ok"]]
                raise RuntimeError(
                    f"{directory} does not answer as the model it was made "
                    f"from: {'; '.join(failed)}."
                )
    return report
