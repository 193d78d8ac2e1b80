"""Costs that depend on the number of blocks: to serve a corpus, and to open it.

    python benchmarks/scale.py serving --model DIR --blocks DIR --output DIR
    python benchmarks/scale.py opening --model DIR --blocks DIR --output DIR

The blocks of a directory are repeated to the given number, with random
embeddings: the results of a search are meaningless, its cost is not. Blocks,
indices and exports stay in OUTPUT, and later runs use them.
"""

import concurrent.futures
import json
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import drawn
import pairs
import tyro
import workers

from realm_tf.artifacts import artifact

_KINDS = ("brute_force", "ivf", "scann")
_SECONDS = 8.0


def serving(
    *,
    model: str,
    blocks: str,
    output: str,
    num_blocks: tuple[int, ...] = (10_000, 50_000, 1_000_000),
):
    """Export, server and memory of each number of blocks and kind of index.

    `realm index`, `realm export` and `realm serve` run in processes of their
    own. One client sends one question after the other.
    """
    for number in num_blocks:
        for kind in _KINDS:
            folder = os.path.join(output, str(number))
            made, index = drawn.make_corpus(model, blocks, folder, number, kind)
            found = _serve(model, made, index, f"{folder}/export-{kind}")
            found = {"num_blocks": number, "kind": kind, **found}
            print(json.dumps(found), flush=True)


def _serve(model, blocks, index, base):
    """Seconds, megabytes and latencies of one kind of index."""
    import load

    version = os.path.join(base, "1")
    if not artifact.is_complete(version):
        workers.run(
            *("export", "--model", model, "--blocks", blocks),
            *("--index", index, "--output", base),
        )
    files = [each.stat().st_size for each in pathlib.Path(base).rglob("*")]
    questions = load.questions_of(version)
    started = time.perf_counter()
    with load.serve(base, "--rest-port", "0") as server:
        ready_seconds = time.perf_counter() - started
        found = {
            signature: load.closed_loop(
                server.target,
                questions,
                signature=signature,
                num_clients=1,
                seconds=_SECONDS,
            )
            for signature in load.SIGNATURES
        }
        megabytes = load.own_megabytes(server.process.pid)
    return {
        "export_megabytes": round(sum(files) / 1e6),
        "ready_seconds": round(ready_seconds, 1),
        "server_megabytes": round(megabytes),
        **found,
    }


def opening(*, model: str, blocks: str, output: str, num_blocks: int = 50_000):
    """Seconds and memory to load a corpus and answer its first question.

    Another process makes the corpus first. Seconds include the compilation of the
    model, but not the imports. The peak is of resident memory, with the pages of
    mapped files, which the system can drop.
    """
    import tensorflow_text  # noqa: F401

    from realm_tf.answering.corpus import Corpus
    from realm_tf.answering.predict import Predictor

    folder = os.path.join(output, str(num_blocks))
    arguments = model, blocks, folder, num_blocks, "brute_force"
    with concurrent.futures.ProcessPoolExecutor(1) as process:
        made, index = process.submit(drawn.make_corpus, *arguments).result()
    started = time.perf_counter()
    Predictor(Corpus.load(model, made, index)).predict(["who found uranus"])
    seconds = round(time.perf_counter() - started, 2)
    found = {"seconds": seconds, "gigabytes": pairs.peak_gigabytes()}
    print(json.dumps(found))


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict(
        {"serving": serving, "opening": opening}, description=__doc__
    )
