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
    engine,
    tmp_path,
    articles_path,
    vocabulary_path,
    model_dir,
    blocks_dir,
    embeddings_dir,
):
    """Command after command, each on what the one before has made."""
    options, pool_log = engine
    path = str(tmp_path)
    direct = f"{path}/direct-annotated"
    annotate = f"--blocks {blocks_dir} --tagger rules"
    assert cli.main(f"annotate {annotate} --output {direct}".split()) == 0
    length = artifact.read(blocks_dir)["max_block_length"]
    rows = artifact.read(embeddings_dir)["parameters"]["rows_per_shard"]
    commands = {
        "chunk": f"--input {articles_path} --vocab {vocabulary_path} "
        f"--max-block-length {length}",
        "annotate": f"--blocks {path}/chunk --tagger rules",
        "embed": f"--model {model_dir} --blocks {path}/chunk "
        f"--rows-per-shard {rows}",
        "index": f"--embeddings {path}/embed --kind brute_force",
    }
    expected = {
        "chunk": blocks_dir,
        "annotate": direct,
        "embed": embeddings_dir,
    }
    for command, arguments in commands.items():
        output = f"{path}/{command}"
        words = [command, *arguments.split(), "--output", output, *options]
        assert cli.main(words) == 0
        found = artifact.read(output)
        if command in expected:
            other = artifact.read(expected[command])
            assert found["fingerprint"] == other["fingerprint"], command
            assert found.get("counts") == other.get("counts"), command
    assert os.path.exists(f"{path}/index/embeddings.npy")
    # That its workers did it, and not this process.
    assert "worker" in pool_log.read_text()
