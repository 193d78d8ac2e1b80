"""`realm pack`."""

import dataclasses

from realm_tf.artifacts import packed_blocks
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.objects import Passages
from realm_tf.data import packed_passages
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pack(Operation):
    """Packs wordpieces into memory-mapped arrays, for training.

      realm pack --blocks DIR --output DIR
      realm pack --annotated DIR --model DIR --output DIR
      realm pack --annotated DIR --vocab FILE --output DIR

    Training reads them in any order without TensorFlow: pack where `realm
    chunk` and `realm annotate` ran, then copy the directory to the machine
    that trains.
    """

    command = "pack"

    blocks: Blocks | None = None
    """directory of `realm chunk`; either this or --annotated"""
    annotated: Passages | None = None
    """directory of `realm annotate`"""
    output: str
    """directory to make, on a local disk"""
    model: Model | None = None
    """with --annotated: model directory whose vocabulary is taken"""
    vocab: str | None = None
    """with --annotated: the vocab.txt of the model"""
    lowercase: bool = True
    """with --vocab: lower-case and strip accents, as uncased BERT"""

    @property
    def result(self) -> Blocks | Passages:
        kind = Blocks if self.annotated is None else Passages
        return kind(self.output)

    def parameters(self) -> dict:
        if self.annotated is None:
            return {"tokenizer": self.blocks.tokenizer}
        return {"tokenizer": self._tokenizer().fingerprint()}

    def parents(self) -> dict:
        if self.annotated is None:
            return {"blocks": self.blocks.fingerprint}
        return packed_passages.parents(self.annotated)

    def run(self) -> Blocks | Passages:
        """Packs all blocks or passages; `counts` says how many.

        Raises:
            InputError: if an argument is missing or too many, or a directory
                is not complete.
        """
        if (self.blocks is None) == (self.annotated is None):
            raise InputError("One of --blocks and --annotated must be given.")
        if self.annotated is None:
            of_texts = ("model", "vocab", "lowercase")
            self.refuse_given(of_texts, "--blocks, which have their wordpieces")
            return packed_blocks.pack_blocks(self.blocks, self.output)
        if (self.model is None) == (self.vocab is None):
            raise InputError("--annotated takes one of --model and --vocab.")
        if self.model:
            self.refuse_given(("lowercase",), "--model, which says it itself")
        return packed_passages.pack_passages(
            self.annotated, self._tokenizer(), self.output
        )

    def _tokenizer(self):
        from realm_tf.text.tokenizer import Tokenizer

        if self.model is None:
            return Tokenizer.from_file(self.vocab, lowercase=self.lowercase)
        lowercase = self.model.config["lowercase"]
        return Tokenizer.from_file(self.model.vocabulary, lowercase=lowercase)

    def report(self, result) -> str:
        shown = ", ".join(f"{k} {v:,}" for k, v in result.counts.items())
        return f"{self.output}: {shown}"
