"""Stages that depend on each other: each made once, in order, resumably.

Beside each directory NAME stands NAME.stage.json: what the stage was given and
how long it took. What is complete and was made of what it would be made of
now, is kept; anything else is refused, neither used nor removed.
"""

import dataclasses
import json
import os
import statistics
import time
from collections.abc import Callable

from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError

_RECORD = ".stage.json"


@dataclasses.dataclass(frozen=True)
class Stage:
    """A directory to make.

    Args:
        name: str. Of the directory.
        kind: str. Stages of one kind take about the same time.
        make: function of the directory's path that makes it, through
            `artifact.write`.
        inputs: dict. Name to the path of a directory that it reads: another
            stage's, or one that was given.
        parameters: dict. JSON values that determine the content besides.
        command: str. What does the same, for display.
    """

    name: str
    kind: str
    make: Callable[[str], object]
    inputs: dict[str, str] = dataclasses.field(default_factory=dict)
    parameters: dict = dataclasses.field(default_factory=dict)
    command: str = ""


class StageGraph:
    """Stages under one directory, in the order in which they are added.

    Args:
        output: str. The directory; local. Made by `run`.
    """

    def __init__(self, output: str):
        self._output = str(output).rstrip("/")
        self._stages: dict[str, Stage] = {}

    def path(self, name: str) -> str:
        """The directory of a stage."""
        return os.path.join(self._output, name)

    def add(self, stage: Stage) -> str:
        """Adds a stage, after those that it reads.

        The same stage may be added again, which changes nothing.

        Returns:
            str, its path.

        Raises:
            ValueError: if another stage of this name is there.
        """
        there = self._stages.setdefault(stage.name, stage)
        if (there.inputs, there.parameters) != (stage.inputs, stage.parameters):
            raise ValueError(
                "Stages of one name must be the same. Received: "
                f"stage={stage.name} twice, of different inputs or parameters"
            )
        return self.path(stage.name)

    def plan(self) -> list[tuple[Stage, bool]]:
        """Each stage, and whether it is done.

        Raises:
            InputError: if something is there that was made of other things.
        """
        return [(stage, self._is_done(stage)) for stage in self.stages]

    @property
    def stages(self) -> list[Stage]:
        """All stages, in order."""
        return list(self._stages.values())

    def run(self, on_done: Callable[[str], None] | None = None) -> None:
        """Makes what is not done yet, and prints how far it is.

        Args:
            on_done: function of a stage's name, called when it is done, also
                if it was before. Defaults to `None`.

        Raises:
            InputError: if something is there that was made of other things:
                before anything is made, where that shows at once.
        """
        # What was changed must not show after hours.
        self.plan()
        os.makedirs(self._output, exist_ok=True)
        total = len(self._stages)
        for number, stage in enumerate(self.stages, start=1):
            label = f"[{number}/{total}] {stage.name}"
            if self._is_done(stage):
                print(f"{label}: done before", flush=True)
            else:
                print(f"{label}\n      $ {stage.command}", flush=True)
                self._make(stage)
                left = self._estimate(self.stages[number:])
                seconds = self.seconds(stage.name)
                print(f"      {seconds:.0f} s{left}", flush=True)
            if on_done:
                on_done(stage.name)

    def ancestors(self, name: str) -> list[Stage]:
        """A stage and all that it is made of, each once."""
        by_path = {self.path(stage.name): stage for stage in self.stages}
        found, left = {}, [self._stages[name]]
        while left:
            stage = left.pop()
            found[stage.name] = stage
            left += [
                by_path[path]
                for path in stage.inputs.values()
                if path in by_path
            ]
        return list(found.values())

    def seconds(self, name: str) -> float:
        """How long a complete stage took, of all runs that made it."""
        record = self._read_record(name)
        if record.get("seconds") is not None:
            return record["seconds"]
        # Killed in the moment between the stage's end and its record's.
        metadata = artifact.read_metadata(self.path(name))
        return round(record["seconds_before"] + metadata["seconds"], 1)

    def _make(self, stage):
        record = {
            **self._job(stage),
            "seconds_before": self._seconds_before(stage.name),
            # The clock of the file system's times, see `_seconds_before`.
            "started": time.time(),
        }
        self._write_record(stage.name, record)
        started = time.monotonic()
        stage.make(self.path(stage.name))
        seconds = record["seconds_before"] + time.monotonic() - started
        self._write_record(stage.name, {**record, "seconds": round(seconds, 1)})

    def _seconds_before(self, name):
        """What went into the rest of a run that was stopped.

        It counts up to the last file that the run left: what it did after is
        lost and done again.
        """
        rest = f"{self.path(name)}.partial"
        record = self._read_record(name)
        if not record or not os.path.isdir(rest):
            return 0.0
        newest = max(
            os.stat(os.path.join(directory, file)).st_mtime
            for directory, _, files in os.walk(rest)
            for file in (".", *files)
        )
        seconds = max(0.0, newest - record["started"])
        return round(record["seconds_before"] + seconds, 1)

    def _is_done(self, stage):
        path = self.path(stage.name)
        is_complete = artifact.is_complete(path)
        if not is_complete and not Path(f"{path}.partial").exists():
            return False
        record = self._read_record(stage.name)
        mend = (
            "Choose another --output, or remove it and what was made from it."
        )
        if not record:
            raise InputError(
                f"{path} is there, but `realm ablate` did not make it (there "
                f"is no {stage.name}{_RECORD} beside it). {mend}"
            )
        differences = list(_differences(record, self._job(stage)))
        if differences:
            raise InputError(
                f"{path} was {'made' if is_complete else 'begun'} with "
                f"{', '.join(differences)}. {mend}"
            )
        return is_complete

    def _job(self, stage):
        """What decides a stage's content, as JSON has it.

        An input that is not there yet is left out.
        """
        job = {
            "kind": stage.kind,
            "parameters": stage.parameters,
            "inputs": {
                name: artifact.read_metadata(path)["fingerprint"]
                for name, path in stage.inputs.items()
                if artifact.is_complete(path)
            },
        }
        return json.loads(json.dumps(job))

    def _read_record(self, name):
        path = self.path(f"{name}{_RECORD}")
        if not Path(path).exists():
            return {}
        try:
            record = json.loads(Path(path).read_text())
            record["parameters"], record["inputs"]
            record["seconds_before"], record["started"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path} is damaged ({error!r}): remove it and "
                f"{self.path(name)}."
            ) from error
        return record

    def _write_record(self, name, record):
        write_text(
            self.path(f"{name}{_RECORD}"),
            json.dumps(record, indent=1, sort_keys=True),
        )

    def _estimate(self, rest):
        """What is left, from stages of the same kind that are done."""
        rest = [stage for stage in rest if not self._is_done(stage)]
        if not rest:
            return ""
        timed = {}
        for stage in self.stages:
            if artifact.is_complete(self.path(stage.name)):
                timed.setdefault(stage.kind, []).append(
                    self.seconds(stage.name)
                )
        known = [stage for stage in rest if stage.kind in timed]
        text = f"; {len(rest)} stage{'s' * (len(rest) > 1)} left"
        if known:
            seconds = sum(statistics.mean(timed[stage.kind]) for stage in known)
            text += f": about {_duration(seconds)}"
        if known and len(known) < len(rest):
            text += f" for {len(known)} of them, the others not timed yet"
        return text


def _differences(record, job):
    """`name=value, now value` of each parameter, and the inputs."""
    made, now = record["parameters"], job["parameters"]
    for name in sorted({*made, *now}):
        if made.get(name) == now.get(name):
            continue
        if isinstance(made.get(name), dict) and isinstance(now.get(name), dict):
            yield from _differences(
                {"parameters": made[name], "inputs": {}},
                {"parameters": now[name], "inputs": {}},
            )
        else:
            yield f"{name}={made.get(name)} (now {now.get(name)})"
    for name, fingerprint in job["inputs"].items():
        if record["inputs"].get(name) != fingerprint:
            yield f"another {name}"


def _duration(seconds):
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
