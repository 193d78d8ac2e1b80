"""Processes that do the same work in turns.

Each process starts once and stays loaded, so that starts and compilations are not
timed. Only one computes at a time, and another one begins each round.
"""

import json
import pathlib
import resource
import statistics
import subprocess
import sys
import time

TORCH_WORKER = str(pathlib.Path(__file__).with_name("torch_worker.py"))
_NUM_ROUNDS = 3


class Worker:
    """A process that runs `serve`.

    Args:
        command: list of str.
    """

    def __init__(self, command: list[str]):
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        # Returns when the process is warm.
        self.run()

    def run(self) -> dict:
        """Runs the work once; returns what `serve` prints."""
        print("run", file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(
            f"{' '.join(self._process.args)} ended with status "
            f"{self._process.wait()}: run it by hand to see why."
        )

    def stop(self):
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()


def peak_gigabytes() -> float:
    """The peak of this process's memory."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round(usage.ru_maxrss * 1024 / 1e9, 2)


def serve(work, gigabytes=peak_gigabytes) -> None:
    """Runs the work for each line of the standard input.

    Prints `seconds` and `gigabytes` as JSON.

    Args:
        work: function without arguments.
        gigabytes: function that returns the peak of memory.
    """
    for _ in sys.stdin:
        started = time.perf_counter()
        work()
        seconds = time.perf_counter() - started
        found = {"seconds": seconds, "gigabytes": gigabytes()}
        print(json.dumps(found), flush=True)


def torch_workers(python: str, work: str, inputs: str) -> dict[str, list[str]]:
    """Name to the command of each peer of `torch_worker.py`.

    Args:
        python: str. The interpreter of their environment.
        work: str. Of `torch_worker.py`.
        inputs: str. Path of the inputs of both sides.
    """
    return {
        f"torch, {precision}": [
            *(python, TORCH_WORKER, work),
            *("--inputs", inputs, "--precision", precision),
        ]
        for precision in ("float32", "bfloat16")
    }


def measure(commands: dict[str, list[str]]) -> dict:
    """Median seconds of each worker, and their ratio to those of the first.

    Args:
        commands: dict. Name to the command of a worker; ours is the first.

    Returns:
        dict of name to `seconds`, `gigabytes` and, except for ours, `ratio`:
        median, least and highest over the rounds.
    """
    workers = {name: Worker(command) for name, command in commands.items()}
    runs = {name: [] for name in workers}
    names = [*workers]
    for first in range(_NUM_ROUNDS):
        for place in range(len(names)):
            name = names[(first + place) % len(names)]
            runs[name].append(workers[name].run())
    for worker in workers.values():
        worker.stop()
    ours = [run["seconds"] for run in runs[names[0]]]
    summary = {}
    for name, found in runs.items():
        seconds = [run["seconds"] for run in found]
        ratios = [
            theirs / own for theirs, own in zip(seconds, ours, strict=True)
        ]
        summary[name] = {
            **found[-1],
            "seconds": statistics.median(seconds),
            "ratio": [statistics.median(ratios), min(ratios), max(ratios)],
        }
    return summary
