"""The pipelines over a job service and workers of their own processes.

That is the way of Flink, Spark and Dataflow. Two services take the pipeline
over gRPC: the one in Beam's Python package, and Prism, Beam's portable runner,
a program that `REALM_PRISM` names or Beam has downloaded. A worker pool, in
another folder or in a container of the workers' image, starts the workers.
"""

import glob
import json
import os
import pathlib
import signal
import subprocess
import sys

import images
import pytest
from beam_runs import shard_bytes
from engine_processes import free_port
from engine_processes import listens
from engine_processes import prism
from engine_processes import starting
from waiting import wait_for

from realm_tf import cli
from realm_tf.artifacts import artifact

pytestmark = pytest.mark.slow

SERVICE = "apache_beam.runners.portability.local_job_service_main"
POOL = "apache_beam.runners.worker.worker_pool_main"


@pytest.fixture(scope="module", params=["job service", "Prism", "image"])
def engine(request, tmp_path_factory):
    """`(options that send a pipeline there, the pool, its log)`."""
    program = None if request.param == "job service" else prism()
    root = tmp_path_factory.mktemp("engine")
    ports = [free_port() for _ in range(3)]
    image = None
    if request.param == "image":
        image = images.build(
            "beam_pipelines/Dockerfile",
            "docker.io/apache/beam_python3.11_sdk:2.77.0",
            "localhost/realm-worker",
        )
        # Where the image's boot program listens.
        ports[1] = 50000
    with starting(root) as start:
        if program:
            web = f"-web_port={ports[2]}"
            start("service", f"-job_port={ports[0]}", web, program=program)
        else:
            start("service", SERVICE, f"--port={ports[0]}")
        if image:
            data = tmp_path_factory.getbasetemp()
            name = f"realm-pool-{os.getpid()}"
            run = [*images.RUN[1:], "--name", name]
            run += ["--volume", f"{data}:{data}", image, "--worker_pool"]
            pool = start("pool", *run, program="podman")
        else:
            pool = start("pool", POOL, f"--service_port={ports[1]}")
        for port in ports[:2]:
            wait_for(lambda port=port: listens(port), seconds=60)
        options = [
            "--runner=PortableRunner",
            f"--job_endpoint=localhost:{ports[0]}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{ports[1]}",
        ]
        yield options, pool, root / "pool.log"
        if image:
            # It outlives the process that started it.
            subprocess.run(["podman", "rm", "--force", name], check=True)


def test_every_pipeline_gives_what_the_direct_runner_gives(
    engine, tmp_path, monkeypatch, articles_path, vocabulary_path, model_dir
):
    """Command after command, each on what the one before has made."""
    options, _, pool_log = engine
    # Relative paths mean nothing to the workers.
    monkeypatch.chdir(tmp_path)
    model = os.path.relpath(model_dir)
    made = {}
    for path, of_runner in (("direct", []), ("portable", options)):
        for command, arguments in {
            "chunk": f"--input {os.path.relpath(articles_path)} "
            f"--vocab {vocabulary_path} --max-block-length 40",
            "annotate": f"--blocks {path}/chunk --tagger rules",
            "embed": f"--model {model} --blocks {path}/chunk "
            "--rows-per-shard 4",
            "index": f"--embeddings {path}/embed --kind brute_force",
        }.items():
            output = f"{path}/{command}"
            words = [command, *arguments.split(), "--output", output]
            assert cli.main([*words, *of_runner]) == 0
            found = artifact.read(output)
            made[path, command] = (
                found.get("fingerprint"),
                found.get("counts"),
                shard_bytes(output, "*.[an]*"),
            )
    for command in ("chunk", "annotate", "embed", "index"):
        assert made["portable", command] == made["direct", command], command
        assert made["direct", command][2], command
    # That its workers did it, and not this process.
    assert "worker" in pool_log.read_text()


def test_a_killed_worker_is_one_sentence_and_the_command_goes_on(
    engine, request, tmp_path, vocabulary_path, model_dir, capsys
):
    options, pool, _ = engine
    if "Prism" not in request.node.name:
        pytest.skip("Beam's job service waits for a killed worker for ever")
    articles = tmp_path / "articles.jsonl"
    rows = (
        {"id": str(n), "title": f"Row {n}", "text": f"Row {n} is here."}
        for n in range(800)
    )
    articles.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    path = str(tmp_path)
    chunk = (
        f"chunk --input {articles} --vocab {vocabulary_path} --output {path}"
    )
    assert cli.main(f"{chunk}/blocks".split()) == 0
    embed = (
        f"embed --model {model_dir} --blocks {path}/blocks --rows-per-shard 1 "
        f"--output {path}/rows"
    )
    running = subprocess.Popen(
        [sys.executable, "-m", "realm_tf.cli", *embed.split(), *options],
        stderr=subprocess.PIPE,
        text=True,
    )
    shards = f"{path}/rows.partial/embeddings-*.npy"
    wait_for(lambda: glob.glob(shards))
    for task in pathlib.Path(f"/proc/{pool.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
    _, errors = running.communicate()
    assert running.returncode == 2, errors
    assert "Traceback" not in errors
    assert "give the same command again" in errors.splitlines()[-1]
    num_shards = len(glob.glob(shards))
    assert 0 < num_shards < 800
    capsys.readouterr()
    assert cli.main([*embed.split(), *options]) == 0
    counts = artifact.read(f"{path}/rows")["counts"]
    assert counts == {"shards": 800, "shards_skipped": num_shards}
