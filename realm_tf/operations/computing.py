"""What the operations that compute with a model have in common."""

import dataclasses
import functools

from realm_tf.artifacts import artifact
from realm_tf.models.precision import Precision
from realm_tf.models.precision import resolve
from realm_tf.operations.operation import Operation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Computing(Operation):
    """An operation whose result depends on how encoders compute."""

    precision: Precision = "auto"
    """in which encoders compute: bfloat16 takes half of the memory and, where
    the processor multiplies it, half of the time; auto takes it there, and
    float32 elsewhere. Losses and scores are float32 in any case, and so are
    the weights in training"""

    @functools.cached_property
    def computes_in(self) -> str:
        """`"float32"` or `"bfloat16"`.

        On this machine, or, by `"auto"`, as the interrupted run that this one
        goes on with.
        """
        if self.precision == "auto":
            begun = artifact.interrupted_job(artifact.unfinished(self.output))
            if begun and "precision" in begun["parameters"]:
                return begun["parameters"]["precision"]
        return resolve(self.precision)

    def parameters(self) -> dict:
        return {**super().parameters(), "precision": self.computes_in}
