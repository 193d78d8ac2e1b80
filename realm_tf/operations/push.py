"""`realm push`."""

import dataclasses

from realm_tf.artifacts import hubs
from realm_tf.artifacts.objects import Model
from realm_tf.operations.operation import Operation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Push(Operation):
    """Writes a model, with its card, to the Hugging Face Hub.

      hf auth login
      realm push --model MODEL --to hf://OWNER/NAME

    The repository is made if it is not there. Everything that reads a model
    reads it from there: --model hf://OWNER/NAME. The card, README.md, says
    where the weights come from and under which licence.
    """

    command = "push"

    model: Model
    """model directory"""
    to: str
    """address of the repository: hf://OWNER/NAME, or hf://OWNER/NAME@BRANCH"""

    def run(self) -> str:
        """Writes it.

        Returns:
            str, the commit's URL.

        Raises:
            InputError: if the model is not complete, the address is wrong or
                may not be written, or the transfer fails.
        """
        fingerprint = self.model.fingerprint
        return hubs.push(
            self.model.directory,
            self.to,
            message=f"realm push: {fingerprint}",
        )

    def report(self, result: str) -> str:
        return f"{self.model} is on the hub: {result}"
