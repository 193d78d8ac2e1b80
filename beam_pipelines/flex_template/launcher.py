"""Starts a command of `realm` from a Dataflow Flex Template.

A template's program describes the job, hands it over and must then exit; the
job starts afterwards. A command of ours would wait for the job's end, to write
`metadata.json` and `COMPLETED`. So the template does the work and leaves the
output incomplete, as a run does that was interrupted at the very end. The same
`realm` command, started anywhere without a runner when the job is done, finds
every shard in its place and completes the directory. (`realm chunk` reads
inputs other than multistream dumps through once more.)
"""

import dataclasses
import os
import sys
from collections.abc import Sequence

from apache_beam.runners.dataflow import dataflow_runner

from realm_tf import cli

# Those that go on where they were interrupted.
COMMANDS = ("chunk", "annotate", "embed")


class HandedOver(Exception):
    """The job is described; the launcher starts it when this program ends."""


# Beam knows the runner of its service by this name.
class DataflowRunner(dataflow_runner.DataflowRunner):
    """Dataflow's runner; does not go on as if the job had run."""

    def run_pipeline(self, *args, **kwargs):
        super().run_pipeline(*args, **kwargs)
        raise HandedOver


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that the variable REALM_COMMAND names.

    The variable REALM_WORKER_IMAGE names the image of the workers.

    Args:
        argv: sequence of str. Parameters of the template and what the
            launcher adds. Defaults to the arguments of the process.

    Returns:
        int, the exit status.
    """
    argv = sys.argv[1:] if argv is None else argv
    command = os.environ.get("REALM_COMMAND", "")
    if command not in COMMANDS:
        print(
            f"REALM_COMMAND is {command!r}: build the launcher's image with "
            f"--build-arg COMMAND= one of {', '.join(COMMANDS)}.",
            file=sys.stderr,
        )
        return cli.USAGE_ERROR
    image = os.environ["REALM_WORKER_IMAGE"]
    argv = [*argv, f"--sdk_container_image={image}", "--sdk_location=container"]
    try:
        return cli.main([command, *command_arguments(command, argv)])
    except HandedOver:
        print(
            f"The job is handed over. When it is done, run `realm {command}` "
            "with the same arguments and no runner: that completes --output."
        )
        return 0


def command_arguments(command: str, argv: Sequence[str]) -> list[str]:
    """Parameters of a template as arguments of a command.

    Args:
        command: str. One of `COMMANDS`.
        argv: sequence of str. `--name=value`; names of a template's
            parameters have underscores where ours have hyphens.

    Returns:
        list of str.
    """
    fields = {f.name for f in dataclasses.fields(cli.operation_class(command))}
    arguments = []
    for argument in argv:
        name, equals, value = argument.partition("=")
        if name[2:].replace("-", "_") in fields:
            name = name.replace("_", "-")
        if name != "--runner":
            arguments.append(f"{name}{equals}{value}")
    # The launcher's own --runner is Dataflow, too.
    return [*arguments, f"--runner={__name__}.{DataflowRunner.__name__}"]
