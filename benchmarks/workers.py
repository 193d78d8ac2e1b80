"""`realm chunk` and `realm annotate` with one and with two processes.

    python benchmarks/workers.py --data-dir DIR --vocab FILE

The corpus is copies of DIR/corpus.jsonl.gz, 50,000 passages: enough that the 10
seconds which a second process takes to start do not matter. Chunking knows all
words after the first copy.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import runs
import tyro

_COPIES = {"chunk": 16, "annotate": 12}
_TWO_WORKERS = (
    "--direct_num_workers=2",
    "--direct_running_mode=multi_processing",
)


def start(*arguments: str) -> subprocess.Popen:
    """Starts `realm` with these arguments in a process of its own."""
    command = [sys.executable, "-m", "realm_tf.cli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def run(*arguments: str) -> float:
    """Seconds of `realm` from start to end."""
    started = time.perf_counter()
    if start(*arguments).wait():
        raise SystemExit(f"realm {arguments[0]} failed.")
    return time.perf_counter() - started


def main(*, data_dir: str, vocab: str, temporary_dir: str | None = None):
    """Measures both commands; `vocab` is the model's vocab.txt."""
    rows = runs.read_rows(f"{data_dir}/corpus.jsonl.gz")
    result = {}
    for name, copies in _COPIES.items():
        with tempfile.TemporaryDirectory(dir=temporary_dir) as folder:
            for copy in range(copies):
                # The ids of all articles must differ.
                lines = [
                    json.dumps({**row, "id": f"{row['id']}-{copy}"}) + "\n"
                    for row in rows
                ]
                path = pathlib.Path(folder, f"{copy:04d}.jsonl")
                path.write_text("".join(lines))
            command = "chunk", "--input", f"{folder}/*.jsonl", "--vocab", vocab
            if name == "annotate":
                blocks = f"{folder}/blocks"
                run(*command, "--output", blocks, *_TWO_WORKERS)
                command = "annotate", "--blocks", blocks, "--tagger", "rules"
            one, two = (
                run(*command, "--output", f"{folder}/{number}", *options)
                for number, options in ((1, ()), (2, _TWO_WORKERS))
            )
            passages = copies * len(rows)
            result[name] = {
                "passages": passages,
                "passages_per_second_1_worker": round(passages / one, 1),
                "speed_up": round(one / two, 3),
            }
    return result


if __name__ == "__main__":
    print(json.dumps(tyro.cli(main, description=__doc__), indent=2))
