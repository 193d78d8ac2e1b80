"""A corpus repeated with new ids, and `realm chunk` over it."""

import gzip
import json
import os
import pathlib
import subprocess
import sys
import time


def write_copies(corpus: str, folder: str, copies: int) -> int:
    """Writes a JSONL file for each copy; returns the number of rows of all.

    Args:
        corpus: str. A .jsonl.gz with "id" in each row.
        folder: str. Where the files go.
        copies: int.
    """
    with gzip.open(corpus, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    for copy in range(copies):
        with open(pathlib.Path(folder, f"{copy:04d}.jsonl"), "w") as file:
            for row in rows:
                row = {**row, "id": f"{row['id']}-{copy}"}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return copies * len(rows)


def start_chunk(
    inputs: str, output: str, vocab: str, *, workers: int
) -> subprocess.Popen:
    """Starts `realm chunk` in a process of its own.

    Args:
        inputs: str. A glob.
        output: str. The directory to make.
        vocab: str.
        workers: int. Beam's, each a process if there is more than one.
    """
    command = [sys.executable, "-m", "realm_tf.cli", "chunk", "--input"]
    command += [inputs, "--output", output, "--vocab", vocab]
    if workers > 1:
        command += [
            f"--direct_num_workers={workers}",
            "--direct_running_mode=multi_processing",
        ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def time_chunk(inputs: str, output: str, vocab: str, *, workers: int) -> float:
    """Seconds that `realm chunk` takes, from start to end of its process."""
    started = time.perf_counter()
    process = start_chunk(inputs, output, vocab, workers=workers)
    if process.wait():
        raise SystemExit(f"realm chunk failed with {process.returncode}")
    return time.perf_counter() - started


def num_bytes(folder: str) -> int:
    """Bytes of all files in a folder."""
    return sum(entry.stat().st_size for entry in os.scandir(folder))
