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
    """number format of the encoders. bfloat16 takes half of the memory and, on
    processors that multiply it, half of the time; auto is bfloat16 there, else
    float32. Losses, scores and the weights in training stay float32"""

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
