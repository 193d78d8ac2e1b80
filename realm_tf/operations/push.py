"""`realm push`."""

import dataclasses
import os
import shutil
import tempfile
from typing import Literal

from realm_tf.artifacts import hubs
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Push(Operation):
    """Writes a model to the Hugging Face Hub, or for another library.

      hf auth login
      realm push --model MODEL --to hf://OWNER/NAME
      realm push --model MODEL --format sentence-transformers --to DIR

    The repository is made if it does not exist. Every command reads a model
    from there: --model hf://OWNER/NAME. The card, README.md, states the origin
    of the weights and their licence.

    sentence-transformers: the embedder, as `SentenceTransformer("OWNER/NAME")`
    loads it. keras-hub: the embedder as a `TextEmbedder` where Keras Hub has its
    pooling, else as a `Backbone`, and the reader's BERT in the folder reader.
    Towers of different weights go to the folders query_embedder and
    block_embedder.
    """

    command = "push"

    model: Model
    """model directory"""
    to: str
    """hf://OWNER/NAME, or hf://OWNER/NAME@BRANCH; with --format also a directory
    to make"""
    format: Literal["realm", "sentence-transformers", "keras-hub"] = "realm"
    """library to write for; realm: the model directory as it is"""

    def run(self) -> str:
        """Writes it.

        Returns:
            str, the commit's URL or the directory.

        Raises:
            InputError: if the model is not complete, the format has no place
                for it, or `to` cannot be written.
        """
        message = f"realm push: {self.model.fingerprint}"
        is_remote = hubs.is_address(self.to)
        if self.format == "realm":
            if not is_remote:
                raise InputError(
                    f"--to {self.to}: {self.model} is a directory already. Name "
                    "a repository, hf://OWNER/NAME, or another --format."
                )
            return hubs.push(self.model.directory, self.to, message=message)
        if os.path.exists(self.to):
            raise InputError(f"--to {self.to} exists already.")
        from realm_tf.checkpoints import export

        with tempfile.TemporaryDirectory() as directory:
            files = os.path.join(directory, "files")
            export.write(self.model, files, self.format)
            shutil.copy(self.model.file("README.md"), files)
            if is_remote:
                return hubs.push(files, self.to, message=message)
            shutil.move(files, self.to)
        return self.to

    def report(self, result: str) -> str:
        return f"{self.model}: written to {result}"
