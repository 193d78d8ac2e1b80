"""`realm export`."""

import dataclasses
import functools
import os
import shlex
import subprocess
import sys
from typing import Literal

from realm_tf.answering import calibration
from realm_tf.answering.predict import NUM_READER_BLOCKS
from realm_tf.artifacts import artifact
from realm_tf.artifacts import question_files
from realm_tf.artifacts.objects import Blocks
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.objects import Index
from realm_tf.artifacts.objects import Model
from realm_tf.artifacts.objects import SavedModel
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import list_files
from realm_tf.errors import InputError
from realm_tf.operations.computing import Computing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export(Computing):
    """Exports a SavedModel: question in, answer with its evidence out.

    It contains tokenizer, query tower, index, block texts and reader, and needs
    no Python. It searches as the index does: scann needs ScaNN's op wherever it
    is served, brute_force and ivf only ops of TensorFlow and tensorflow_text,
    which the stock TF Serving has. Each export adds a version, OUTPUT/1,
    OUTPUT/2 and so on, as TF Serving expects. Check it with `realm verify`.
    """

    command = "export"
    makes = SavedModel
    # What was fitted is a parameter.
    manner = ("calibration",)

    model: Model
    """model directory"""
    blocks: Blocks
    """blocks directory"""
    index: Index
    """index directory; its kind is the kind of search"""
    output: str
    """base directory, to which a version is added"""
    num_reader_blocks: int = NUM_READER_BLOCKS
    """blocks read for a question, fixed in the export"""
    quantize_embeddings: Literal["none", "bfloat16", "int8"] = "none"
    """brute_force and ivf: keep the embeddings in half (bfloat16) or a quarter
    (int8) of the memory, with some loss of recall; for scann see `realm index
    --reordering`"""
    retriever: Literal["realm", "hybrid"] = "realm"
    """realm: the model's own towers; hybrid: a weighted sum of their scores and
    BM25 of wordpieces"""
    calibration: Evaluation | None = None
    """evaluation of this model on dev questions, with the same --retriever and
    --calibrate: sets confidences, the threshold of `answered` and the weight of
    BM25; `realm verify` asks its first questions (if not given: the model's
    calibration, else shares and a weight of 0.25; titles are asked)"""
    evidence_license: str | None = None
    """line to show with the evidence, such as 'Wikipedia, CC BY-SA 4.0'"""

    @property
    def result(self) -> SavedModel:
        """The highest version, or the first one before there is any."""
        version = max(self._versions(), default=1)
        return SavedModel(os.path.join(self.output, str(version)))

    def parameters(self) -> dict:
        parameters = {
            "num_reader_blocks": self.num_reader_blocks,
            "quantize": self.quantize_embeddings,
            "precision": self.computes_in,
        }
        fitted = self._fitted
        if fitted is not None:
            parameters["calibration"] = dataclasses.asdict(fitted)
        if self.retriever == "hybrid":
            parameters["lexical_weight"] = calibration.lexical_weight_of(fitted)
        return parameters

    @functools.cached_property
    def _fitted(self):
        """`Calibration`, or `None`."""
        return calibration.for_model(
            self.calibration, self.model, self.retriever
        )

    def run(self) -> SavedModel:
        """Writes a new version of the SavedModel.

        Returns:
            `SavedModel`, the version directory.

        Raises:
            InputError: if the inputs do not match, or the disk is too full
                for it.
        """
        import keras

        if artifact.is_complete(self.output):
            raise InputError(
                f"--output {self.output} is itself a finished directory of "
                "realm's; expected a base directory for versions."
            )
        if keras.backend.backend() != "tensorflow":
            return self._export_with_tensorflow()
        for each in (self.model, self.blocks, self.index):
            each.check_files()
        from realm_tf.answering.corpus import Corpus
        from realm_tf.export import saved_model

        corpus = Corpus.load(
            self.model,
            self.blocks,
            self.index,
            quantize=self.quantize_embeddings,
            precision=self.computes_in,
        )
        if not corpus.loaded.model.reader.is_trained:
            print(
                f"warning: {saved_model.UNTRAINED_READER} ({self.model})",
                file=sys.stderr,
            )
        path = os.path.join(
            self.output, str(max(self._versions(), default=0) + 1)
        )
        with self.write(path) as stage:
            saved_model.write(
                stage,
                corpus,
                self.index.search,
                asked=self._asked(),
                parents=self.parents(),
                evidence_license=self.evidence_license,
            )
        return SavedModel(path)

    def _export_with_tensorflow(self) -> SavedModel:
        """Runs the same command where Keras runs on TensorFlow.

        A model directory belongs to no backend, so a SavedModel always consists
        of TensorFlow's ops.
        """
        # Encoders may multiply bfloat16 there only.
        same = dataclasses.replace(self, precision=self.computes_in)
        _, *arguments = shlex.split(same.command_line())
        done = subprocess.run(
            [sys.executable, "-m", "realm_tf.cli", *arguments],
            env={**os.environ, "KERAS_BACKEND": "tensorflow"},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            raise InputError(
                "The process that exports with TensorFlow ended with status "
                f"{done.returncode}: its message is above."
            )
        return self.result

    def report(self, result: SavedModel) -> str:
        size = sum(
            Path(result.file(name)).size for name in list_files(result.path)
        )
        return f"{result}: {size / 1e6:.0f} MB"

    def _versions(self) -> list[int]:
        """Versions that are there, whole or not."""
        if not Path(self.output).exists():
            return []
        names = (each.name for each in Path(self.output).iterdir())
        return [int(name) for name in names if name.isdigit()]

    def _asked(self) -> list[question_files.Question]:
        """What `realm verify` will ask."""
        if self.calibration is not None:
            asked = question_files.read_questions(
                self.calibration.file("predictions.jsonl")
            )
            return asked[: question_files.NUM_ABOUT]
        blocks = self.blocks.read()
        return question_files.about((each.title, each.text) for each in blocks)
