"""`realm export-checkpoint`."""

import dataclasses
from typing import Literal

from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import ForeignModel
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportCheckpoint(Operation):
    """Writes a model as directories that another library loads.

      realm export-checkpoint --to hf --model MODEL --output DIR
      realm export-checkpoint --to hf --model MODEL --output DIR \\
          --blocks BLOCKS --index INDEX
      realm export-checkpoint --to keras-hub --model MODEL --output DIR

    hf: transformers has had REALM up to 4.40.2. DIR gets one directory for each of
    its classes: embedder (RealmEmbedder; scorer, RealmScorer, if questions and
    blocks have towers of their own), reader (RealmReader), encoder
    (RealmKnowledgeAugEncoder, if there is a masked-LM head) and, with blocks
    and index, openqa (RealmForOpenQA with block_records.npy, whose texts are
    in memory while it is written; it has no titles).

    It knows REALM's own towers only: [CLS] with a projection, inner products.

    keras-hub: one preset for each tower, embedder or query_embedder and
    block_embedder, and one for the reader's BERT. A tower that pools without
    projection and prompt is a BertTextEmbedder, others are a BertBackbone, whose
    projection and span scorer Keras Hub has no place for.
    """

    command = "export-checkpoint"
    makes = ForeignModel

    to: Literal["hf", "keras-hub"]
    """whose format"""
    model: Model
    """model directory"""
    output: str
    """the directory to make"""
    blocks: Blocks | None = None
    """hf: blocks directory, for openqa"""
    index: Index | None = None
    """hf: index directory of these blocks"""

    def parameters(self) -> dict:
        return {"to": self.to, "with_blocks": bool(self.blocks)}

    def run(self) -> ForeignModel:
        """Writes the directories.

        Returns:
            `ForeignModel`; its metadata hold `classes`, by directory.

        Raises:
            InputError: if the model has something that the library does not,
                or model, blocks and index do not match.
        """
        from realm_tf.checkpoints import export_hugging_face
        from realm_tf.checkpoints import export_keras_hub

        if (self.blocks is None) != (self.index is None):
            raise InputError(
                "--index is the index of --blocks: give both or none."
            )
        if self.blocks and self.to != "hf":
            raise InputError(
                f"--to {self.to} has no place for blocks: leave --blocks and "
                "--index out."
            )
        with self.write() as stage:
            if self.to == "hf":
                classes = export_hugging_face.write(
                    self.model, stage.directory, self.blocks, self.index
                )
            else:
                classes = export_keras_hub.write(self.model, stage.directory)
            stage.metadata["classes"] = classes
        return self.result

    def report(self, result: ForeignModel) -> str:
        return "\n".join(
            f"{result.file(name)}: {architecture}"
            for name, architecture in result.metadata["classes"].items()
        )
