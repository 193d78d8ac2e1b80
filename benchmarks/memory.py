"""Peak memory of `realm chunk` over corpora of two sizes.

    python benchmarks/memory.py --data-dir DIR --vocab FILE

DIR/corpus.jsonl.gz, 50,000 passages, once and ten times with new ids. Peak is
that of the resident memory of all processes of the run together, read every
0.1 s (pages that processes share count once in each); growth is the difference
of the peaks by the difference of the sizes. Linux only.
"""

import json
import os
import pathlib
import time

import corpus
import tyro

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SECONDS_BETWEEN_READINGS = 0.1


def main(
    *,
    data_dir: str,
    vocab: str,
    workers: int = 1,
    copies: tuple[int, int] = (1, 10),
    temporary_dir: str | None = None,
):
    """Measures `realm chunk` over so many copies of the passages."""
    small, large = runs = [
        _measure(data_dir, vocab, number, workers, temporary_dir)
        for number in copies
    ]
    growth = large["peak_bytes"] - small["peak_bytes"]
    difference = large["passages"] - small["passages"]
    return {
        "workers": workers,
        "runs": runs,
        "growth_bytes_per_passage": round(growth / difference, 1),
    }


def _measure(data_dir, vocab, copies, workers, temporary_dir):
    """Peak of one run, in bytes."""
    with corpus.copied(data_dir, copies, temporary_dir) as copied:
        folder, inputs, num_passages = copied
        process = corpus.start(
            *("chunk", "--input", f"{inputs}/*.jsonl", "--vocab", vocab),
            *("--output", f"{folder}/blocks"),
            workers=workers,
        )
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(map(_resident, _tree(process.pid))))
            time.sleep(SECONDS_BETWEEN_READINGS)
        if process.returncode:
            raise SystemExit(f"realm chunk failed with {process.returncode}")
        return {
            "passages": num_passages,
            "input_bytes": corpus.num_bytes(inputs),
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
    found = tyro.cli(main, description=__doc__)
    print(json.dumps(found, indent=2))
