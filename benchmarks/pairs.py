"""Two or more processes that do the same work in turn.

Each is started once and stays loaded, so that starts and compilations are not
timed; only one computes at a time, and every round begins with another one.
"""

import json
import pathlib
import resource
import statistics
import subprocess
import sys
import time

ROUNDS = 3


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
        # When it is warm.
        self.run()

    def run(self) -> dict:
        """Has the work done once; gives `seconds` and what `serve` adds."""
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


def serve(work, **more) -> None:
    """Does some work for each line of the standard input, and says how long.

    Args:
        work: function without arguments.
        **more: functions whose values are told, too.
    """
    for _ in sys.stdin:
        started = time.perf_counter()
        work()
        found = {"seconds": time.perf_counter() - started}
        found.update({name: each() for name, each in more.items()})
        print(json.dumps(found), flush=True)


def torch_workers(python: str, work: str, inputs: str) -> dict[str, list[str]]:
    """Name to the command of each of the peers of `torch_worker.py`.

    Args:
        python: str. The interpreter of their environment.
        work: str. Of `torch_worker.py`.
        inputs: str. Path of what both sides read.
    """
    script = str(pathlib.Path(__file__).with_name("torch_worker.py"))
    return {
        f"torch, {precision}": [
            *(python, script, work),
            *("--inputs", inputs, "--precision", precision),
        ]
        for precision in ("float32", "bfloat16")
    }


def measure(commands: dict[str, list[str]]) -> dict:
    """Seconds of each worker, and those of the others to the first's.

    Args:
        commands: dict. Name to the command of a worker; ours is the first.

    Returns:
        dict of name to `seconds` (median), what else the last run told, and,
        of the others, `ratio`: median, least and highest over the rounds.
    """
    workers = {name: Worker(command) for name, command in commands.items()}
    runs = {name: [] for name in workers}
    for number in range(ROUNDS):
        names = [*workers]
        first = number % len(names)
        for name in names[first:] + names[:first]:
            runs[name].append(workers[name].run())
    for worker in workers.values():
        worker.stop()
    ours, *_ = runs.values()
    summary = {}
    for name, found in runs.items():
        seconds = [run["seconds"] for run in found]
        summary[name] = {
            **found[-1],
            "seconds": round(statistics.median(seconds), 3),
        }
        if found is not ours:
            ratios = [
                theirs / run["seconds"]
                for theirs, run in zip(seconds, ours, strict=True)
            ]
            summary[name]["ratio"] = spread(ratios)
    return summary


def spread(ratios: list[float]) -> list[float]:
    """Median, least and highest."""
    found = statistics.median(ratios), min(ratios), max(ratios)
    return [round(value, 2) for value in found]


def peak_gigabytes() -> float:
    """The most memory that this process has had."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round(usage.ru_maxrss * 1024 / 1e9, 2)


def cpu_flags() -> list[str]:
    """What this processor multiplies in hardware."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        words = set(file.read().split())
    names = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
    return [name for name in names if name in words]
