"""Runs of whole commands over copies of a corpus: two workers, and memory.

    python benchmarks/workers.py speed-up --data-dir DIR --vocab FILE
    python benchmarks/workers.py memory --data-dir DIR --vocab FILE

The corpus is DIR/corpus.jsonl.gz, 50,000 passages.
"""

import contextlib
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import tyro

# Copies of the corpus: `speed_up` and `memory`.
_COPIES = {"chunk": 16, "annotate": 12}
_FEW, _MANY = 1, 10
_TWO_WORKERS = (
    "--direct_num_workers=2",
    "--direct_running_mode=multi_processing",
)


def start(*arguments: str) -> subprocess.Popen:
    """Starts `realm` with these arguments in a process of its own."""
    command = [sys.executable, "-m", "realm_tf.cli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def run(*arguments: str) -> tuple[float, int]:
    """Seconds of `realm` from start to end, and its peak memory in bytes."""
    started = time.perf_counter()
    _, status, usage = os.wait4(start(*arguments).pid, 0)
    if status:
        raise SystemExit(f"realm {arguments[0]} failed.")
    return time.perf_counter() - started, 1024 * usage.ru_maxrss


@contextlib.contextmanager
def _copied(data_dir, copies, temporary_dir):
    """Yields a directory with copies of the passages, and their number.

    The directory `inputs` in it has one JSONL file for each copy; ids differ.
    """
    with gzip.open(f"{data_dir}/corpus.jsonl.gz", "rt", encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    with tempfile.TemporaryDirectory(dir=temporary_dir) as folder:
        inputs = pathlib.Path(folder, "inputs")
        inputs.mkdir()
        for copy in range(copies):
            with open(inputs / f"{copy:04d}.jsonl", "w") as file:
                for row in rows:
                    row = {**row, "id": f"{row['id']}-{copy}"}
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
        yield folder, copies * len(rows)


def _chunk(folder, vocab):
    return "chunk", "--input", f"{folder}/inputs/*.jsonl", "--vocab", vocab


def speed_up(*, data_dir: str, vocab: str, temporary_dir: str | None = None):
    """`realm chunk` and `realm annotate` with one and with two processes.

    There are enough copies that the 10 seconds which a second process takes to
    start do not matter. Chunking knows all words after the first copy.
    """
    result = {}
    for name, copies in _COPIES.items():
        with _copied(data_dir, copies, temporary_dir) as (folder, passages):
            command, blocks = _chunk(folder, vocab), f"{folder}/blocks"
            if name == "annotate":
                run(*command, "--output", blocks, *_TWO_WORKERS)
                command = "annotate", "--blocks", blocks, "--tagger", "rules"
            one, two = (
                run(*command, "--output", f"{folder}/{number}", *options)[0]
                for number, options in ((1, ()), (2, _TWO_WORKERS))
            )
            result[name] = {
                "passages": passages,
                "passages_per_second_1_worker": round(passages / one, 1),
                "speed_up": round(one / two, 3),
            }
    return result


def memory(*, data_dir: str, vocab: str, temporary_dir: str | None = None):
    """Peak of the resident memory of `realm chunk`, by the size of its input.

    Linux only. Growth is the difference of the peaks by that of the sizes.
    """
    runs = []
    for copies in (_FEW, _MANY):
        with _copied(data_dir, copies, temporary_dir) as (folder, passages):
            output = "--output", f"{folder}/blocks"
            _, peak = run(*_chunk(folder, vocab), *output)
            runs.append({"passages": passages, "peak_bytes": peak})
    small, large = runs
    growth = large["peak_bytes"] - small["peak_bytes"]
    passages = large["passages"] - small["passages"]
    return {
        "runs": runs,
        "growth_bytes_per_passage": round(growth / passages, 1),
    }


if __name__ == "__main__":
    commands = {"speed-up": speed_up, "memory": memory}
    found = tyro.extras.subcommand_cli_from_dict(commands, description=__doc__)
    print(json.dumps(found, indent=2))
