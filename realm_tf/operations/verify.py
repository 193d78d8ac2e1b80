"""`realm verify`."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys

from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import SavedModel
from realm_tf.artifacts.objects import Verification
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import local_directory
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verify(Operation):
    """Checks a SavedModel in a fresh process.

    Compares the checksums of all files with the model's card. Then a process
    without this package asks the questions stored in the export, and compares
    answers, spans, scores and candidates with those of the Python code. It also
    asks the same questions alone and in one batch of 64, and strings that are
    no questions: an empty one, 10,000 characters, emoji, invalid UTF-8.
    """

    command = "verify"
    makes = Verification

    saved_model: str
    """base directory, for its highest version, or version directory"""
    output: str | None = None
    """directory to make for the report, if every check passes"""

    def parents(self) -> dict:
        return {"saved_model": self._version().parents["model"]}

    def run(self) -> dict:
        """Loads the SavedModel in a fresh process and compares.

        Returns:
            dict with `ok`, `checks`, `load_seconds` and
            `milliseconds_per_question`; `error` instead of these, if files are
            not those of the export or the fresh process itself failed.
            `output`, if given, holds it as report.json where all is well, and
            is not made otherwise.

        Raises:
            InputError: if there is no SavedModel that `realm export` wrote, or
                it holds no expected answers.
        """
        from realm_tf.export import expected

        version = self._version()
        if not Path(version.file(expected.FILE)).exists():
            raise InputError(
                f"{version} holds no expected answers: expected what `realm "
                "export` wrote."
            )
        report = _check(version.path)
        if self.output and report["ok"]:
            with self.write() as stage:
                text = json.dumps(report, indent=1)
                write_text(stage.path("report.json"), text)
        return report

    def report(self, result: dict) -> str:
        lines = [
            f"{'ok    ' if check['ok'] else 'FAILED'}  {check['name']}"
            for check in result["checks"]
        ]
        if "error" in result:
            print(result["error"], file=sys.stderr)
        else:
            lines.append(
                f"loaded in {result['load_seconds']} s, "
                f"{result['milliseconds_per_question']} ms a question"
            )
        return "\n".join(lines)

    def status(self, result: dict) -> int:
        return 0 if result["ok"] else 1

    def _version(self) -> SavedModel:
        from realm_tf.artifacts.saved_models import find_version
        from realm_tf.export import card

        directory = find_version(self.saved_model)
        if not artifact.is_complete(directory):
            raise InputError(
                f"{directory} was not written by `realm export` to its end."
            )
        if not Path(os.path.join(directory, card.FILE)).exists():
            raise InputError(
                f"{directory} was exported by an earlier version of realm: run "
                "`realm export` again."
            )
        return SavedModel(local_directory(directory))


def _check(directory: str) -> dict:
    """The report on a version directory."""
    from realm_tf.export import card

    files = "every file is as it was exported"
    try:
        card.read(directory)
    except InputError as error:
        return _failed(files, str(error))
    report = ask_in_a_fresh_process(directory)
    report["checks"].insert(0, {"name": files, "ok": True})
    return report


def ask_in_a_fresh_process(directory: str) -> dict:
    """The report of `export.verify`, run by its path."""
    spec = importlib.util.find_spec("realm_tf.export.verify")
    done = subprocess.run(
        [sys.executable, spec.origin, directory],
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
