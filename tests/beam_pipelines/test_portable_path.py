"""The pipelines over a job service and workers of their own processes.

That is the way of Flink and Spark, without their engines: Beam's own job
service takes the pipeline over gRPC, and a worker pool starts the workers.
"""

import contextlib
import os
import socket
import subprocess
import sys

import pytest
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
    """Options that send a pipeline there."""
    root = tmp_path_factory.mktemp("engine")
    ports = [_free_port(), _free_port()]
    bin_directory = os.path.dirname(sys.executable)
    environment = {
        **os.environ,
        # The pool starts workers by this name.
        "PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    modules = (
        ("portability.local_job_service_main", f"--port={ports[0]}"),
        ("worker.worker_pool_main", f"--service_port={ports[1]}"),
    )
    with contextlib.ExitStack() as stack:
        for number, (module, port) in enumerate(modules):
            log = stack.enter_context(open(root / f"{number}.log", "wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", f"apache_beam.runners.{module}", port],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        for port in ports:
            wait_for(lambda port=port: _listens(port), seconds=60)
        yield [
            "--runner=PortableRunner",
            f"--job_endpoint=localhost:{ports[0]}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{ports[1]}",
        ]


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
        words = [command, *arguments.split(), "--output", output, *engine]
        assert cli.main(words) == 0
        found = artifact.read(output)
        if command in expected:
            other = artifact.read(expected[command])
            assert found["fingerprint"] == other["fingerprint"], command
            assert found.get("counts") == other.get("counts"), command
    assert os.path.exists(f"{path}/index/embeddings.npy")
