import dataclasses
import logging
from types import SimpleNamespace

import pytest
from beam_runs import TWO_THREADS
from engine_processes import free_port

from realm_tf.beam_pipelines import execution
from realm_tf.errors import InputError
from realm_tf.operations.build_index import BuildIndex
from realm_tf.operations.chunk import Chunk
from realm_tf.operations.embed import Embed


def test_options_pin_the_local_runner():
    options = execution.pipeline_options([])
    other = execution.pipeline_options(["--runner=FlinkRunner", "--own=1"])

    assert options.get_all_options()["runner"] == "FnApiRunner"
    assert other.get_all_options()["runner"] == "FlinkRunner"
    assert execution.num_local_workers(options) == 1
    assert (
        execution.num_local_workers(execution.pipeline_options(TWO_THREADS))
        == 2
    )


def test_unknown_options_are_refused_or_said(capsys):
    slip = "--rows-per-shrad=2000"
    for runner in ("FnApiRunner", "DataflowRunner"):
        with pytest.raises(InputError, match=f"unknown option {slip}"):
            execution.pipeline_options([f"--runner={runner}", slip])
    assert not capsys.readouterr().err
    execution.pipeline_options(["--runner=FlinkRunner", slip])
    assert capsys.readouterr().err == f"handed on to FlinkRunner: {slip}\n"


class _Elsewhere:
    """A pipeline whose runner logs, and runs nothing."""

    def __init__(self, *_):
        pass

    def run(self):
        logging.getLogger("apache_beam.runners").info("job 17 is running")
        return self

    def wait_until_finish(self):
        return self


@pytest.mark.parametrize("runner", ["FnApiRunner", "FlinkRunner"])
def test_only_runners_elsewhere_log(runner, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(execution, "build_pipeline", _Elsewhere)
    options = execution.pipeline_options([f"--runner={runner}"])
    execution.run_step(SimpleNamespace(directory=tmp_path), (), options)
    logged = "job 17 is running" in caplog.text
    assert logged == (runner == "FlinkRunner")


def test_a_job_service_that_does_not_answer(tmp_path):
    step = SimpleNamespace(directory=tmp_path, label="Nothing", progress=str)
    options = execution.pipeline_options(
        [
            "--runner=PortableRunner",
            f"--job_endpoint=localhost:{free_port()}",
            "--job_server_timeout=1",
        ]
    )
    with pytest.raises(InputError, match="no job service answered within 1 s"):
        execution.run_step(step, (), options)


def test_beam_runs_only_if_it_is_asked_to(
    tmp_path, monkeypatch, articles_path, vocabulary_path, model_dir
):
    def run_step(*arguments):
        raise LookupError("Beam runs")

    monkeypatch.setattr(execution, "run_step", run_step)
    blocks = Chunk(
        input=articles_path, vocab=vocabulary_path, output=tmp_path / "blocks"
    ).run()
    embed = Embed(
        model=model_dir,
        blocks=blocks,
        output=tmp_path / "rows",
        rows_per_shard=2,
    )
    rows = embed.run()
    index = BuildIndex(
        embeddings=rows, kind="ivf", output=tmp_path / "index"
    ).run()
    assert index.num_blocks == rows.num_blocks == blocks.num_blocks > 1
    with pytest.raises(LookupError, match="Beam runs"):
        dataclasses.replace(
            embed,
            output=str(tmp_path / "more"),
            beam_options=("--direct_num_workers=1",),
        ).run()
