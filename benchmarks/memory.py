"""Peak memory of `realm chunk` over corpora of two sizes.

    python benchmarks/memory.py --data-dir DIR --vocab FILE

DIR/corpus.jsonl.gz, 50,000 passages, once and ten times with new ids. Peak is
that of the resident memory of all processes of the run together, read every
0.1 s (pages that processes share count once in each); growth is the difference
of the peaks by the difference of the sizes. Linux only.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

import corpus

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SECONDS_BETWEEN_READINGS = 0.1


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--vocab", required=True, help="vocab.txt of the model")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--copies", nargs=2, type=int, default=(1, 10))
    parser.add_argument(
        "--temporary-dir", help="where to write (default: /tmp)"
    )
    args = parser.parse_args()
    passages = str(pathlib.Path(args.data_dir, "corpus.jsonl.gz"))
    runs = [
        measure(passages, args.vocab, copies, args.workers, args.temporary_dir)
        for copies in args.copies
    ]
    small, large = runs
    growth = large["peak_bytes"] - small["peak_bytes"]
    difference = large["passages"] - small["passages"]
    result = {
        "workers": args.workers,
        "runs": runs,
        "growth_bytes_per_passage": round(growth / difference, 1),
    }
    print(json.dumps(result, indent=2))


def measure(passages, vocab, copies, workers, temporary_dir):
    """Peak of one run, in bytes."""
    with tempfile.TemporaryDirectory(dir=temporary_dir) as folder:
        inputs = pathlib.Path(folder, "inputs")
        inputs.mkdir()
        num_passages = corpus.write_copies(passages, str(inputs), copies)
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
            "input_bytes": corpus.num_bytes(str(inputs)),
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
    main()
