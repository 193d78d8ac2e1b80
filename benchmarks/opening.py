"""What it costs to open a corpus, the first time and then again.

    python benchmarks/opening.py --model DIR --blocks DIR --output DIR

As many blocks as asked for are those of a directory over and over, with random
embeddings, as in `scale.py`; they stay in OUTPUT. Each opening is a process of
its own, and its seconds do not count what is imported:

- `records`: the blocks and the text of the last one;
- `answer`: model, blocks and index, and the answer to one question, which
  compiles the model;
- `export`: model, blocks and index, and all that a SavedModel holds, up to
  where it would be written.

Peaks are of resident memory, with the pages of files that are mapped; these
the system can drop, `anonymous_megabytes`, what a process holds at its end, it
cannot. Linux only.
"""

import argparse
import glob
import importlib
import json
import os
import pathlib
import subprocess
import sys
import time

STEPS = ("records", "answer", "export")
_IMPORTED = (
    "keras",
    "tensorflow",
    "tensorflow_text",
    "realm_tf.answering.predict",
    "realm_tf.export.realm_module",
    "realm_tf.retrieval.index",
)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--blocks", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--num-blocks", nargs="+", type=int, default=[50_000])
    parser.add_argument("--kind", default="brute_force")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    # Only what this script gives itself.
    parser.add_argument("--step", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        index = os.path.join(args.output, args.kind)
        print(json.dumps(open_once(args.step, args.model, args.blocks, index)))
        return
    for num_blocks in args.num_blocks:
        folder = make(args, num_blocks)
        for step in args.steps:
            found = {"num_blocks": num_blocks, "step": step}
            _forget(folder)
            for name in ("first", "again"):
                found[name] = _open_in_a_process(args, folder, step)
            print(json.dumps(found), flush=True)


def make(args, num_blocks: int) -> str:
    """The folder of blocks, embeddings and index, made where it is missing."""
    import drawn
    import scale
    import workers

    from realm_tf.artifacts import artifact

    folder = os.path.join(args.output, str(num_blocks))
    blocks, embeddings, index = (
        os.path.join(folder, name)
        for name in ("blocks", "embeddings", args.kind)
    )
    if not artifact.is_complete(blocks):
        scale.repeat_blocks(args.blocks, blocks, num_blocks)
    if not artifact.is_complete(embeddings):
        drawn.draw_embeddings(args.model, blocks, embeddings, args.seed)
    if not artifact.is_complete(index):
        workers.seconds(
            *("index", "--embeddings", embeddings, "--output", index),
            *("--kind", args.kind),
        )
    return folder


def _forget(folder):
    """Removes what the first opening keeps beside the blocks."""
    for path in glob.glob(f"{folder}/blocks/.columns-*"):
        for each in pathlib.Path(path).iterdir():
            each.unlink()
        os.rmdir(path)


def _open_in_a_process(args, folder, step):
    done = subprocess.run(
        [
            *(sys.executable, __file__, "--step", step),
            *("--model", args.model, "--blocks", f"{folder}/blocks"),
            *("--output", folder, "--kind", args.kind),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def open_once(step: str, model: str, blocks: str, index: str) -> dict:
    """Seconds and megabytes of one opening, in this process."""
    for name in _IMPORTED:
        importlib.import_module(name)
    from realm_tf.answering.corpus import Corpus
    from realm_tf.answering.predict import Predictor
    from realm_tf.artifacts.objects import Blocks
    from realm_tf.export.realm_module import RealmModule

    found = {"imported_megabytes": _memory()["VmHWM"]}
    started = time.perf_counter()
    if step == "records":
        kept = Blocks(blocks).records
        kept.texts[-1]
    else:
        kept = [Corpus.load(model, blocks, index)]
        found["load_seconds"] = round(time.perf_counter() - started, 2)
        if step == "answer":
            kept.append(Predictor(kept[0]))
            kept.append(kept[1].predict(["when was uranus discovered"]))
        else:
            kept.append(RealmModule(kept[0], num_reader_blocks=5))
            kept.append(kept[1].parts())
    found["seconds"] = round(time.perf_counter() - started, 2)
    memory = _memory()
    return {
        **found,
        "peak_megabytes": memory["VmHWM"],
        "anonymous_megabytes": memory["RssAnon"],
    }


def _memory():
    """Megabytes of this process, by the names of /proc/self/status."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return {
        name: round(1024 * int(value.split()[0]) / 1e6)
        for name, _, value in (line.partition(":") for line in lines)
        if name in ("VmHWM", "RssAnon")
    }


if __name__ == "__main__":
    main()
