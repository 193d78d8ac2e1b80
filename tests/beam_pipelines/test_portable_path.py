"""The pipelines over a job service and workers of their own processes.

That is the way of Flink and Spark, without their engines: Beam's own job
service takes the pipeline over gRPC, and a worker pool starts the workers.
"""

import os
import socket

import pytest
from engine_processes import starting
from waiting import wait_for

from realm_tf import cli
from realm_tf.artifacts import artifact

pytestmark = pytest.mark.slow


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """`(options that send a pipeline there, log of the worker pool)`."""
    root = tmp_path_factory.mktemp("engine")
    ports = [_free_port(), _free_port()]
    runners = "apache_beam.runners"
    service = f"{runners}.portability.local_job_service_main"
    with starting(root) as start:
        start("service", service, f"--port={ports[0]}")
        pool = f"{runners}.worker.worker_pool_main"
        start("pool", pool, f"--service_port={ports[1]}")
        for port in ports:
            wait_for(lambda port=port: _listens(port), seconds=60)
        options = [
            "--runner=PortableRunner",
            f"--job_endpoint=localhost:{ports[0]}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{ports[1]}",
        ]
        yield options, root / "pool.log"


def test_every_pipeline_gives_what_the_direct_runner_gives(
    engine, tmp_path, articles_path, vocabulary_path, model_dir
):
    """Command after command, each on what the one before has made."""
    options, pool_log = engine
    made = {}
    for runner, of_runner in (("direct", []), ("portable", options)):
        path = f"{tmp_path}/{runner}"
        for command, arguments in {
            "chunk": f"--input {articles_path} --vocab {vocabulary_path} "
            "--max-block-length 40",
            "annotate": f"--blocks {path}/chunk --tagger rules",
            "embed": f"--model {model_dir} --blocks {path}/chunk "
            "--rows-per-shard 4",
            "index": f"--embeddings {path}/embed --kind brute_force",
        }.items():
            output = f"{path}/{command}"
            words = [command, *arguments.split(), "--output", output]
            assert cli.main([*words, *of_runner]) == 0
            found = artifact.read(output)
            made[runner, command] = (
                found.get("fingerprint"),
                found.get("counts"),
            )
        assert os.path.exists(f"{path}/index/embeddings.npy")
    for command in ("chunk", "annotate", "embed"):
        assert made["portable", command] == made["direct", command], command
        assert all(made["direct", command]), command
    # That its workers did it, and not this process.
    assert "worker" in pool_log.read_text()
