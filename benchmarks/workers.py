"""Pipelines over copies of a corpus: speed with two workers, and memory.

    python benchmarks/workers.py speed-up --data-dir DIR --vocab FILE
    python benchmarks/workers.py memory --data-dir DIR --vocab FILE

Both run whole commands over DIR/corpus.jsonl.gz, 50,000 passages.
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

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SECONDS_BETWEEN_READINGS = 0.1
# Of the corpus: those of `speed_up`, and those of `memory`.
_COPIES = {"chunk": 16, "annotate": 12}
_FEW, _MANY = 1, 10


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


def speed_up(
    *,
    data_dir: str,
    vocab: str,
    temporary_dir: str | None = None,
):
    """`realm chunk` and `realm annotate` with 1 and with 2 workers (processes).

    The passages are repeated with new ids in a file each, so many times that
    the 10 seconds which a second process takes to start count for little. After
    the first copy chunking knows all words: its rate is that of a corpus with
    few new ones.
    """
    result = {"cpus": os.cpu_count()}
    for name, copies in _COPIES.items():
        with copied(data_dir, copies, temporary_dir) as found:
            folder, inputs, num_passages = found
            chunk = ["chunk", "--input", f"{inputs}/*.jsonl"]
            chunk += ["--vocab", vocab, "--output"]
            command = [*chunk, f"{folder}/chunk"]
            if name == "annotate":
                seconds(*chunk, f"{folder}/blocks", workers=2)
                command = ["annotate", "--blocks", f"{folder}/blocks"]
                command += ["--tagger", "rules", "--output", f"{folder}/spans"]
            result[name] = _speed_up(command, num_passages, inputs)
    return result


def _speed_up(command, num_passages, inputs):
    """Seconds with one and with two workers; the last argument is a path."""
    took = {
        workers: seconds(
            *command[:-1], f"{command[-1]}-{workers}", workers=workers
        )
        for workers in (1, 2)
    }
    return {
        "passages": num_passages,
        "megabytes": round(num_bytes(inputs) / 1e6, 1),
        "seconds_1_worker": round(took[1], 1),
        "seconds_2_workers": round(took[2], 1),
        "passages_per_second_1_worker": round(num_passages / took[1], 1),
        "speed_up": round(took[1] / took[2], 3),
    }


def memory(
    *,
    data_dir: str,
    vocab: str,
    temporary_dir: str | None = None,
):
    """Peak memory of `realm chunk` by the size of its input. Linux only.

    The passages once and ten times with new ids. Peak is that of the resident
    memory of all processes of the run together, read every 0.1 s (pages that
    processes share count once in each); growth is the difference of the peaks by
    the difference of the sizes.
    """
    small, large = runs = [
        _measure(data_dir, vocab, copies, temporary_dir)
        for copies in (_FEW, _MANY)
    ]
    growth = large["peak_bytes"] - small["peak_bytes"]
    difference = large["passages"] - small["passages"]
    return {
        "runs": runs,
        "growth_bytes_per_passage": round(growth / difference, 1),
    }


def _measure(data_dir, vocab, copies, temporary_dir):
    """Peak of one run, in bytes."""
    with copied(data_dir, copies, temporary_dir) as found:
        folder, inputs, num_passages = found
        process = start(
            *("chunk", "--input", f"{inputs}/*.jsonl", "--vocab", vocab),
            *("--output", f"{folder}/blocks"),
        )
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(map(_resident, _tree(process.pid))))
            time.sleep(SECONDS_BETWEEN_READINGS)
        if process.returncode:
            raise SystemExit(f"realm chunk failed with {process.returncode}")
        return {
            "passages": num_passages,
            "input_bytes": num_bytes(inputs),
            "peak_bytes": peak,
        }


def _tree(root):
    """A process and all that come from it."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            status = pathlib.Path("/proc", name, "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            # It has ended since.
            continue
        # The name, in brackets, may hold anything.
        parent = int(status.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def _resident(process):
    try:
        fields = pathlib.Path(f"/proc/{process}/statm").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[1]) * PAGE_BYTES


if __name__ == "__main__":
    commands = {"speed-up": speed_up, "memory": memory}
    found = tyro.extras.subcommand_cli_from_dict(commands, description=__doc__)
    print(json.dumps(found, indent=2))
