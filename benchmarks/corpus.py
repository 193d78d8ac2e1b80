"""A corpus repeated with new ids, and `realm` in processes of its own."""

import contextlib
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time


@contextlib.contextmanager
def copied(data_dir: str, copies: int, temporary_dir: str | None):
    """The passages of a data directory so many times, with ids of their own.

    Args:
        data_dir: str. Holds corpus.jsonl.gz, with "id" in each row.
        copies: int.
        temporary_dir: str. Where to write; `None` for /tmp.

    Yields:
        A temporary directory, that of the JSONL files in it (one a copy), and
        the number of all passages.
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
        yield folder, str(inputs), copies * len(rows)


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
