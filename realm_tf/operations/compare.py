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
    """Compares evaluations of the same questions.

    Prints the metrics of each evaluation and its differences to the first, with 95 %
    intervals of the paired bootstrap. Writes comparison.json and comparison.md.
    """

    command = "compare"
    makes = Comparison

    evaluations: tyro.conf.Positional[tuple[Evaluation, ...]]
    """directories of `realm evaluate` over the same questions"""
    output: str
    """the directory to make"""

    def parameters(self) -> dict:
        """The name of each evaluation: its directory's, or the whole path.

        Raises:
            InputError: if there is no evaluation, or one occurs twice.
        """
        paths = [each.path for each in self.evaluations]
        names = [path.rpartition("/")[2] for path in paths]
        if len(set(names)) < len(names):
            names = paths
        if not paths or len(set(paths)) < len(paths):
            raise InputError(
                "compare: expected one evaluation or more, each once. "
                f"Received: {' '.join(paths) or 'none'}"
            )
        return {"names": names}

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
                other questions than the first, or is given twice.
        """
        from realm_tf.evaluation import comparison

        names = self.parameters()["names"]
        compared = comparison.compare(
            dict(zip(names, self.evaluations, strict=True))
        )
        with self.write() as stage:
            comparison.write(stage, compared)
        return self.result

    def report(self, result: Comparison) -> str:
        return result.markdown
