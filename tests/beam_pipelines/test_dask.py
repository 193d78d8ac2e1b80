"""Pipelines on Dask: a scheduler and workers on hosts of their own."""

import glob
import os
import subprocess
import sys

import numpy as np
import pytest
from engine_processes import starting
from hosts import hosts
from waiting import wait_for

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.artifacts.objects import Embeddings
from realm_tf.beam_pipelines import execution
from realm_tf.errors import InputError


def test_the_short_name_will_do():
    options = execution.pipeline_options(["--runner=DaskRunner"])
    all_options = options.get_all_options()
    assert all_options["runner"].endswith("dask_runner.DaskRunner")
    assert all_options["partition_size"] == 1
    options = execution.pipeline_options(
        ["--runner=DaskRunner", "--dask_npartitions=7"]
    )
    assert options.get_all_options()["partition_size"] is None


def test_without_dask_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask.distributed", None)
    with pytest.raises(InputError, match=r"pip install 'realm-tf\[dask\]'"):
        execution.pipeline_options(["--runner=DaskRunner"])


def test_a_scheduler_file_that_is_not_there(tmp_path):
    option = f"--dask_scheduler_file={tmp_path}/none.json"
    with pytest.raises(InputError, match="none.json does not exist: expected"):
        execution.pipeline_options(["--runner=DaskRunner", option])


@pytest.fixture
def dask(tmp_path_factory):
    """`(options, worker processes, their logs)` of a scheduler with two."""
    root = tmp_path_factory.mktemp("dask")
    scheduler_file = str(root / "scheduler.json")
    with hosts(3) as places, starting(root) as start:

        def dask_on(place, name, *arguments):
            within, address = place
            at = ("--scheduler-file", scheduler_file, "--host", address)
            words = ("dask", name.partition("-")[0], *at, "--no-dashboard")
            return start(name, *words, *arguments, within=within)

        dask_on(places[0], "scheduler", "--port", "0")
        wait_for(lambda: os.path.exists(scheduler_file))
        one = ("--nthreads", "1", "--no-nanny")
        names = ("worker-0", "worker-1")
        workers = [
            dask_on(place, name, *one)
            for place, name in zip(places[1:], names, strict=True)
        ]
        options = [
            "--runner=DaskRunner",
            f"--dask_scheduler_file={scheduler_file}",
        ]
        yield options, workers, [root / f"{name}.log" for name in names]


@pytest.mark.slow
def test_two_workers_of_which_one_is_killed(
    dask,
    tmp_path,
    articles_path,
    vocabulary_path,
    model_dir,
    blocks_dir,
    embeddings_dir,
):
    """Its shards are made by the other; all is what the direct runner makes."""
    options, workers, logs = dask
    path = str(tmp_path)
    direct = f"{path}/direct"
    annotate = f"annotate --blocks {blocks_dir} --tagger rules"
    chunk = f"chunk --input {articles_path} --vocab {vocabulary_path}"
    assert cli.main(f"{annotate} --output {direct}".split()) == 0
    assert cli.main(f"{chunk} --output {direct}-blocks".split()) == 0
    embed = (
        f"embed --model {model_dir} --blocks {blocks_dir} --rows-per-shard 1 "
        f"--output {path}/rows"
    )
    running = subprocess.Popen(
        [sys.executable, "-m", "realm_tf.cli", *embed.split(), *options]
    )
    shards = f"{path}/rows*/embeddings-*.npy"
    wait_for(lambda: glob.glob(shards))
    workers[0].kill()
    assert running.wait() == 0
    # That they did it, and not this machine's runner.
    assert "embed: " in logs[1].read_text()
    rows = Embeddings(f"{path}/rows")
    # In batches of one block, which are padded otherwise.
    expected = Embeddings(embeddings_dir).read()
    np.testing.assert_allclose(rows.read(), expected, atol=1e-5)
    for command, expected in (
        (f"{chunk} --output {path}/blocks", f"{direct}-blocks"),
        (f"{annotate} --output {path}/annotated", direct),
        (
            f"embed --model {model_dir} --blocks {blocks_dir} "
            f"--output {path}/embeddings",
            embeddings_dir,
        ),
        (
            f"index --embeddings {path}/embeddings --kind brute_force "
            f"--output {path}/index",
            None,
        ),
    ):
        assert cli.main([*command.split(), *options]) == 0
        if expected:
            output = command.split()[-1]
            assert (
                artifact.read(output)["fingerprint"]
                == artifact.read(expected)["fingerprint"]
            )
