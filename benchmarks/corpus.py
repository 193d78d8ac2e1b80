"""A corpus repeated with new ids, and `realm` in processes of its own."""

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


def start(*arguments: str, workers: int = 1) -> subprocess.Popen:
    """Starts `realm` in a process of its own.

    Args:
        *arguments: str. The command and its arguments.
        workers: int. Beam's, each a process if there is more than one.
    """
    command = [sys.executable, "-m", "realm_tf.cli", *arguments]
    if workers > 1:
        command += [
            f"--direct_num_workers={workers}",
            "--direct_running_mode=multi_processing",
        ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def seconds(*arguments: str, workers: int = 1) -> float:
    """Seconds that `realm` takes, from start to end of its process."""
    started = time.perf_counter()
    process = start(*arguments, workers=workers)
    if process.wait():
        raise SystemExit(
            f"realm {arguments[0]} failed with {process.returncode}"
        )
    return time.perf_counter() - started


def num_bytes(folder: str) -> int:
    """Bytes of all files in a folder."""
    return sum(entry.stat().st_size for entry in os.scandir(folder))
