"""Running a Beam pipeline: its options, its mistakes."""

import contextlib
import io
import logging
import os
import sys
from collections.abc import Sequence

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.utils import interactive_utils
from apache_beam.utils.shared import Shared

from realm_tf.beam_pipelines import resumable
from realm_tf.beam_pipelines.steps import ShardStep
from realm_tf.errors import InputError
from realm_tf.errors import Resumable

# Beam's default, DirectRunner, first tries to download Prism
# (apache/beam pull request 34612).
LOCAL_RUNNER = "FnApiRunner"
_LOCAL_RUNNERS = (LOCAL_RUNNER, "DirectRunner")
_DATAFLOW = "DataflowRunner"
# Beam knows this one by its whole name alone.
_DASK = "DaskRunner"
_DASK_RUNNER = f"apache_beam.runners.dask.dask_runner.{_DASK}"
_OF_KNOWN_OPTIONS = (*_LOCAL_RUNNERS, _DASK_RUNNER, _DATAFLOW)
# Workers that such a runner starts write to this terminal themselves, unless
# an option says that they are elsewhere.
_STARTS_WORKERS = (*_LOCAL_RUNNERS, _DASK_RUNNER, "PrismRunner")
_ELSEWHERE = ("environment_type", "address", "scheduler_file")
# Until a job service answers (our choice): Beam waits five minutes.
_CONNECT_SECONDS = 20
# What a job elsewhere ends with. Of Dataflow it has no class in common.
_LOST = (RuntimeError, OSError, grpc.RpcError)


def pipeline_options(arguments: Sequence[str] = ()) -> PipelineOptions:
    """Beam's options, with the runner of this process by default.

    Args:
        arguments: sequence of str. Command-line arguments for Beam, such as
            `--runner=FlinkRunner` or `--direct_num_workers=2`.

    Returns:
        `PipelineOptions`.

    Raises:
        InputError: if Beam knows none of that name or refuses a value, or the
            file of a Dask scheduler does not exist.
    """
    arguments = list(arguments)
    unknown = []
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), _quiet():
            options = PipelineOptions(arguments)
            if options.view_as(StandardOptions).runner == _DASK:
                options.view_as(StandardOptions).runner = _dask_runner(options)
            options.get_all_options(
                add_extra_args_fn=lambda parser: unknown.extend(
                    parser.parse_known_args(arguments)[1]
                )
            )
    except SystemExit as error:
        # argparse prints a usage of several screens, then the reason.
        reason = complaint.getvalue().strip().rpartition("error: ")[2]
        raise InputError(f"Beam refuses an option: {reason}.") from error
    standard = options.view_as(StandardOptions)
    if standard.runner is None:
        standard.runner = LOCAL_RUNNER
    if unknown and standard.runner in _OF_KNOWN_OPTIONS:
        raise InputError(
            f"unknown option {' '.join(unknown)}: neither this command nor "
            "Beam has it."
        )
    if unknown:
        # Options that only the runner knows, or a slip.
        print(
            f"handed on to {standard.runner}: {' '.join(unknown)}",
            file=sys.stderr,
        )
    return options


def _dask_runner(options):
    """The whole name; an element of a pipeline becomes a task of its own.

    By default Beam hands 128 elements to one worker: all shards, often.
    """
    try:
        import dask.distributed  # noqa: F401
    except ImportError as error:
        raise InputError(
            "--runner=DaskRunner needs Dask, which is not installed here: run "
            "`pip install 'realm-tf[dask]'`."
        ) from error
    from apache_beam.runners.dask.dask_runner import DaskOptions

    dask_options = options.view_as(DaskOptions)
    path = dask_options.scheduler_file
    # Dask waits for it without end.
    if path and not os.path.exists(path):
        raise InputError(
            f"--dask_scheduler_file={path} does not exist: expected the file "
            "that `dask scheduler --scheduler-file` has written, on a disk "
            "that this machine mounts."
        )
    if not (dask_options.npartitions or dask_options.partition_size):
        dask_options.partition_size = 1
    return _DASK_RUNNER


def num_local_workers(options: PipelineOptions) -> int:
    """How many workers of this machine will share the elements."""
    return max(1, options.view_as(DirectOptions).direct_num_workers or 1)


class DoStep(beam.DoFn):
    """A step of ours as Beam's.

    Args:
        step: `ShardStep`.
    """

    def __init__(self, step: ShardStep):
        self._step = step
        self._shared = Shared()

    def setup(self):
        self._step.setup(self._shared.acquire)

    def process(self, element):
        self._step.process(element)


def build_pipeline(
    step: ShardStep, missing: Sequence, options: PipelineOptions
) -> beam.Pipeline:
    """A pipeline of one step, whose elements are shards; see `run_step`."""
    pipeline = beam.Pipeline(options=options)
    (
        pipeline
        | "Shards" >> beam.Create(missing)
        | "Share shards" >> beam.Reshuffle()
        | step.label >> beam.ParDo(DoStep(step))
    )
    return pipeline


def run_step(
    step: ShardStep, missing: Sequence, options: PipelineOptions
) -> None:
    """Runs a step on shards with Beam.

    A runner elsewhere prints what it logs, such as the job's address and state;
    here our own lines say more.

    Args:
        step: `ShardStep`.
        missing: sequence of the shards to make.
        options: `PipelineOptions`.

    Raises:
        InputError: if no job service answers, a worker has reported one, or
            (`Resumable`) a job elsewhere has failed, or lost a worker or its
            connection.
    """
    runner = options.view_as(StandardOptions).runner
    is_local = runner in _LOCAL_RUNNERS
    given = options.get_all_options()
    is_elsewhere = runner not in _STARTS_WORKERS or any(
        given.get(name) for name in _ELSEWHERE
    )
    lost = Exception if runner == _DATAFLOW else _LOST
    endpoint = given["job_endpoint"]
    if endpoint and endpoint != "embed":
        _connect(endpoint, min(_CONNECT_SECONDS, given["job_server_timeout"]))
    if not is_local:
        logging.basicConfig(format="%(asctime)s %(message)s")
    try:
        with (
            _as_outside_of_notebooks(),
            resumable.watching(lambda: step.progress(0))
            if is_elsewhere
            else contextlib.nullcontext(),
        ):
            pipeline = build_pipeline(step, missing, options)
            with _quiet() if is_local else _level(logging.INFO):
                result = pipeline.run()
                # Dask's, which nobody else closes.
                with getattr(result, "client", contextlib.nullcontext()):
                    result.wait_until_finish()
    except lost as error:
        # Beam makes a RuntimeError of Ctrl-C.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        # An exception of a worker comes as text.
        if is_local or "Traceback" in str(error):
            raise
        raise Resumable(
            f"the job ended before its work was done ({error}). What is "
            "complete is kept: give the same command again to go on, mended "
            "if this names a mistake."
        ) from error
    finally:
        # Clearer than what a runner makes of a worker's exception.
        resumable.raise_error(step.directory)


def _connect(endpoint, seconds):
    with grpc.insecure_channel(endpoint) as channel:
        try:
            grpc.channel_ready_future(channel).result(seconds)
        except grpc.FutureTimeoutError as error:
            raise InputError(
                f"--job_endpoint={endpoint}: no job service answered within "
                f"{seconds} s. Start it, or correct HOST:PORT."
            ) from error


@contextlib.contextmanager
def _as_outside_of_notebooks():
    """Beam names steps by the notebook's cells, for which it needs pandas."""
    modules = (interactive_utils, beam.pipeline)
    kept = [module.is_in_ipython for module in modules]
    for module in modules:
        module.is_in_ipython = lambda: False
    try:
        yield
    finally:
        for module, function in zip(modules, kept, strict=True):
            module.is_in_ipython = function


def _quiet():
    # Beam logs unknown options, which are errors here, and each exception
    # with a traceback that the exception brings along.
    return _level(logging.CRITICAL)


@contextlib.contextmanager
def _level(level):
    logger = logging.getLogger("apache_beam")
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
