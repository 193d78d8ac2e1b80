"""What a corpus costs by its number of blocks: to serve it, and to open it.

    python benchmarks/scale.py serving --model DIR --blocks DIR --output DIR
    python benchmarks/scale.py opening --model DIR --blocks DIR --output DIR

The blocks are those of a directory, repeated to the given number, with random
embeddings: the results of a search mean nothing, its cost does. Blocks, indices
and exports stay in OUTPUT, and later runs use them.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import drawn
import load
import tyro
import workers

from realm_tf.artifacts import artifact

_SECONDS = 8.0


def serving(
    *,
    model: str,
    blocks: str,
    output: str,
    num_blocks: tuple[int, ...] = (10_000, 50_000, 1_000_000),
    kinds: tuple[str, ...] = ("brute_force", "ivf", "scann"),
):
    """Export, server and memory, of each number of blocks and kind of index.

    Runs `realm index`, `realm export` and `realm serve`, each a process of its
    own, and one client that sends one question after the other.
    """
    for number in num_blocks:
        for kind in kinds:
            folder = os.path.join(output, str(number))
            made, index = drawn.make_corpus(model, blocks, folder, number, kind)
            found = _serve(model, made, index, f"{folder}/export-{kind}")
            found = {"num_blocks": number, "kind": kind, **found}
            print(json.dumps(found), flush=True)


def _serve(model, blocks, index, base):
    """Seconds, megabytes and latencies of one kind of index."""
    found = {}
    version = os.path.join(base, "1")
    if not artifact.is_complete(version):
        found["export_seconds"] = workers.seconds(
            *("export", "--model", model, "--blocks", blocks),
            *("--index", index, "--output", base),
        )
    found["export_megabytes"] = (
        sum(f.stat().st_size for f in pathlib.Path(base).rglob("*")) / 1e6
    )
    questions = load.questions_of(version)
    started = time.perf_counter()
    with load.serve(base, "--rest-port", "none") as server:
        found["ready_seconds"] = time.perf_counter() - started
        for signature in load.SIGNATURES:
            found[signature] = load.closed_loop(
                server.target,
                questions,
                signature=signature,
                num_clients=1,
                seconds=_SECONDS,
            )
        found["server_megabytes"] = load.resident_megabytes(server.process.pid)
    return {
        name: round(value, 1) if isinstance(value, float) else value
        for name, value in found.items()
    }


def opening(*, model: str, blocks: str, output: str, num_blocks: int = 50_000):
    """Seconds and memory to load a corpus and answer its first question.

    Each of two openings is a process of its own. Seconds do not include the
    imports, and include the compilation of the model. The peak is of resident
    memory, with the pages of mapped files. The system can drop these pages, but
    not those of `anonymous_megabytes`, the memory at the end. Linux only.
    """
    folder = os.path.join(output, str(num_blocks))
    made, index = drawn.make_corpus(
        model, blocks, folder, num_blocks, "brute_force"
    )
    command = [sys.executable, __file__, "open-once", "--model", model]
    command += ["--blocks", made, "--index", index]
    for _ in range(2):
        subprocess.run(command, check=True)


def open_once(*, model: str, blocks: str, index: str):
    """One opening, in this process."""
    import keras  # noqa: F401
    import tensorflow_text  # noqa: F401

    from realm_tf.answering.corpus import Corpus
    from realm_tf.answering.predict import Predictor

    found = {"imported_megabytes": _memory()["VmHWM"]}
    started = time.perf_counter()
    corpus = Corpus.load(model, blocks, index)
    found["load_seconds"] = round(time.perf_counter() - started, 2)
    Predictor(corpus).predict(["when was uranus discovered"])
    found["seconds"] = round(time.perf_counter() - started, 2)
    memory = _memory()
    found["peak_megabytes"] = memory["VmHWM"]
    found["anonymous_megabytes"] = memory["RssAnon"]
    print(json.dumps(found), flush=True)


def _memory():
    """Megabytes of this process, by the names of /proc/self/status."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return {
        name: round(1024 * int(value.split()[0]) / 1e6)
        for name, _, value in (line.partition(":") for line in lines)
        if name in ("VmHWM", "RssAnon")
    }


if __name__ == "__main__":
    commands = {
        "serving": serving,
        "opening": opening,
        "open-once": open_once,
    }
    tyro.extras.subcommand_cli_from_dict(commands, description=__doc__)
