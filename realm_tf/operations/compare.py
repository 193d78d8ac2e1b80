"""`realm compare`."""

import dataclasses

import tyro

from realm_tf.artifacts import fingerprints
from realm_tf.artifacts.objects import Comparison
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compare(Operation):
    """Sets evaluations of the same questions side by side.

    Prints the metrics of all of them and how far each is from the first:
    differences with 95 % paired-bootstrap intervals. Writes comparison.json,
    comparison.md and comparison.html (with recall curves).
    """

    command = "compare"
    makes = Comparison

    evaluations: tyro.conf.Positional[tuple[Evaluation, ...]]
    """what `realm evaluate` wrote, all on one questions file; the others are
    compared with the first"""
    output: str
    """the directory to make"""
    names: tuple[str, ...] | None = None
    """what to call them (if not given: their directories' names, or whole paths
    where these are the same)"""

    def parameters(self) -> dict:
        """The name of each evaluation.

        Raises:
            InputError: if names are missing or the same.
        """
        given = [each.path for each in self.evaluations]
        names = self.names
        if names is None:
            names = [path.rpartition("/")[2] for path in given]
            if len(set(names)) < len(names):
                names = given
        if not given or len(names) != len(given):
            raise InputError(
                f"--names: expected {len(given)}, one for each of one "
                f"evaluation or more. Received {len(names)}: {' '.join(names)}"
            )
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise InputError(
                f"{twice[0]!r} is the name of two evaluations: give each "
                "directory once and each of --names a value of its own."
            )
        return {"names": list(names)}

    def parents(self) -> dict:
        return {
            "questions": self.evaluations[0].parents["questions"],
            "evaluations": [
                fingerprints.fingerprint(
                    Path(each.file("predictions.jsonl")).read_bytes()
                )
                for each in self.evaluations
            ],
        }

    def run(self) -> Comparison:
        """Compares, and writes the comparison.

        Returns:
            `Comparison`; its `content` is what `comparison.compare` returns.

        Raises:
            InputError: if a directory is no evaluation, is damaged or is of
                other questions than the first, or if names are missing or the
                same.
        """
        from realm_tf.evaluation.reports import comparison

        names = self.parameters()["names"]
        compared = comparison.compare(
            dict(zip(names, self.evaluations, strict=True))
        )
        with self.write() as stage:
            comparison.write(stage, compared)
        return self.result

    def report(self, result: Comparison) -> str:
        return result.markdown
