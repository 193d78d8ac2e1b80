"""`realm export-checkpoint`."""

import dataclasses
from typing import Literal

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import HuggingFaceModel
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportCheckpoint(Operation):
    """Writes a model as directories that Hugging Face's transformers loads.

      realm export-checkpoint --to hf --model MODEL --output DIR
      realm export-checkpoint --to hf --model MODEL --output DIR \\
          --blocks BLOCKS --index INDEX

    transformers has had REALM up to 4.40.2. DIR gets one directory for each of
    its classes: embedder (RealmEmbedder; scorer, RealmScorer, if questions and
    blocks have towers of their own), reader (RealmReader), encoder
    (RealmKnowledgeAugEncoder, if there is a masked-LM head) and, with blocks
    and index, openqa (RealmForOpenQA with block_records.npy, whose texts are
    in memory while it is written; it has no titles).

    It knows REALM's own towers only: [CLS] with a projection, inner products.
    """

    command = "export-checkpoint"
    makes = HuggingFaceModel

    to: Literal["hf"]
    """whose format"""
    model: Model
    """model directory"""
    output: str
    """the directory to make"""
    blocks: Blocks | None = None
    """blocks directory, for openqa"""
    index: Index | None = None
    """index directory of these blocks"""

    def parameters(self) -> dict:
        return {"with_blocks": bool(self.blocks)}

    def run(self) -> HuggingFaceModel:
        """Writes the directories.

        Returns:
            `HuggingFaceModel`; its metadata hold `classes`, by directory.

        Raises:
            InputError: if the model has something that transformers' REALM
                does not, or model, blocks and index do not match.
        """
        from realm_tf.checkpoints import export_hugging_face

        if (self.blocks is None) != (self.index is None):
            raise InputError(
                "--index is the index of --blocks: give both or none."
            )
        with self.write() as stage:
            stage.metadata["classes"] = export_hugging_face.write(
                self.model, stage.directory, self.blocks, self.index
            )
        return self.result

    def report(self, result: HuggingFaceModel) -> str:
        return "\n".join(
            f"{result.file(name)}: {architecture}"
            for name, architecture in result.metadata["classes"].items()
        )
