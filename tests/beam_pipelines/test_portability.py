"""The pipelines as Flink and Dataflow would get them, on gs:// paths.

The commands are called as a user would call them. For Flink, nothing runs:
they end where the runner takes over. Dataflow and bucket are on this machine.
"""

import hashlib
import os
import pickle

import apache_beam as beam
import dataflow as dataflow_service
import pytest
from apache_beam.pipeline import PipelineVisitor
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.portable_runner import PortableRunner
from object_stores import opened

from realm_tf import cli
from realm_tf.artifacts import artifact
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import list_files
from realm_tf.beam_pipelines import execution

IMAGE = "example.org/realm:1"
FLINK = [
    "--runner=FlinkRunner",
    "--flink_master=example.org:8081",
    "--environment_type=DOCKER",
    f"--environment_config={IMAGE}",
]
# Command: its arguments, and the steps that are ours.
COMMANDS = {
    "chunk": (
        "--input gs://bucket/articles.jsonl --vocab gs://bucket/vocab.txt",
        {"Chunk articles"},
    ),
    "annotate": (
        "--blocks gs://bucket/blocks --tagger rules",
        {"Annotate passages"},
    ),
    "embed": (
        "--model gs://bucket/model --blocks gs://bucket/blocks",
        {"Embed blocks"},
    ),
    "index": (
        "--embeddings gs://bucket/embeddings --kind brute_force",
        {"Index blocks"},
    ),
}
OUTPUT = "gs://bucket/output"


@pytest.fixture
def bucket(
    articles_path, vocabulary_path, blocks_dir, model_dir, embeddings_dir
):
    """gs://bucket, with what the commands read."""
    with opened("gs") as (root, _):
        for source, name in (
            (articles_path, "articles.jsonl"),
            (vocabulary_path, "vocab.txt"),
        ):
            Path(f"{root}/{name}").upload(source)
        for source, name in (
            (blocks_dir, "blocks"),
            (model_dir, "model"),
            (embeddings_dir, "embeddings"),
        ):
            _upload(source, f"{root}/{name}")
        yield root


def _upload(directory, remote, ending=""):
    for name in os.listdir(directory):
        if name.endswith(ending) and os.path.isfile(f"{directory}/{name}"):
            Path(f"{remote}/{name}").upload(f"{directory}/{name}")


class _Taken(Exception):
    """Ends a command where a runner takes over."""


def _take(monkeypatch, command, arguments):
    """Runs a command to there: the pipeline, not yet run, and its options."""
    taken = []

    def take(step, missing, options):
        pipeline = execution.build_pipeline(step, missing, options)
        taken.extend((pipeline, options))
        raise _Taken

    monkeypatch.setattr(execution, "run_step", take)
    with pytest.raises(_Taken):
        cli.main(
            [
                *(command, *COMMANDS[command][0].split()),
                *("--output", OUTPUT, *arguments),
            ]
        )
    return taken


class _DoFns(PipelineVisitor):
    """Collects the DoFns of a pipeline that are ours, by step."""

    def __init__(self):
        self.found = {}

    def visit_transform(self, transform_node):
        dofn = getattr(transform_node.transform, "fn", None)
        if type(dofn).__module__.startswith("realm_tf.beam_pipelines."):
            self.found[transform_node.full_label] = dofn


def _images(proto):
    return {
        beam_runner_api_pb2.DockerPayload.FromString(
            environment.payload
        ).container_image
        for environment in proto.components.environments.values()
        if environment.urn == common_urns.environments.DOCKER.urn
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_the_portable_pipeline_of_flink(monkeypatch, bucket, command):
    pipeline, options = _take(monkeypatch, command, FLINK)
    before = _DoFns()
    pipeline.visit(before)
    proto = PortableRunner.get_proto_pipeline(pipeline, options)
    labels = {t.unique_name for t in proto.components.transforms.values()}
    assert labels >= COMMANDS[command][1]
    assert _images(proto) == {IMAGE}
    # As it travels: what pickling loses, a worker would miss.
    proto = beam_runner_api_pb2.Pipeline.FromString(proto.SerializeToString())
    restored = beam.Pipeline.from_runner_api(
        pipeline.to_runner_api(), pipeline.runner, options
    )
    after = _DoFns()
    restored.visit(after)
    assert after.found.keys() == before.found.keys() != set()
    for label, dofn in after.found.items():
        state = vars(before.found[label])
        assert repr(state.keys()) == repr(vars(dofn).keys())
        assert pickle.loads(pickle.dumps(dofn)).__class__ is type(dofn)
        # The launching machine's disk means nothing to a worker.
        assert "/tmp/" not in repr(vars(dofn)).replace("gs://", "")
    assert "gs://bucket/" in "".join(
        repr(vars(dofn)) for dofn in after.found.values()
    )


@pytest.fixture
def dataflow():
    pytest.importorskip(
        "google.auth",
        reason="the Dataflow runner needs realm-tf[gcp]",
        exc_type=ImportError,
    )
    with dataflow_service.serving() as service:
        yield service


def _on_dataflow(service, command, output=OUTPUT):
    """The words of a command line."""
    return [
        *(command, *COMMANDS[command][0].split(), "--output", output),
        *("--runner=DataflowRunner", "--project=project", "--no_auth"),
        *("--region=us-central1", "--temp_location=gs://bucket/temp"),
        "--staging_location=gs://bucket/staging",
        f"--dataflow_endpoint=http://localhost:{service.server_port}",
        *(f"--sdk_container_image={IMAGE}", "--sdk_location=container"),
        "--number_of_worker_harness_threads=1",
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_job_of_dataflow(bucket, dataflow, command):
    """What is sent; then a service does it, and the command completes it."""
    assert not cli.main(_on_dataflow(dataflow, command))
    steps = set()
    for path, job, content in dataflow.jobs:
        assert path == "/v1b3/projects/project/locations/us-central1/jobs"
        assert job["type"] == 1  # JOB_TYPE_BATCH
        environment = job["environment"]
        options = environment["sdkPipelineOptions"]["options"]
        digest = hashlib.sha256(content).hexdigest()
        assert options["pipelineProtoHash"] == digest
        (pool,) = environment["workerPools"]
        assert pool["workerHarnessContainerImage"] == IMAGE
        assert pool["numThreadsPerWorker"] == 1
        # The package is in the image.
        (package,) = pool["packages"]
        assert package["name"] == "submission_environment_dependencies.txt"
        proto = beam_runner_api_pb2.Pipeline.FromString(content)
        assert _images(proto) == {IMAGE}
        transforms = proto.components.transforms.values()
        steps |= {transform.unique_name for transform in transforms}
    assert steps >= COMMANDS[command][1]
    words = [*COMMANDS[command][0].split(), "--output", f"{OUTPUT}-direct"]
    assert not cli.main([command, *words])
    assert (
        artifact.read(OUTPUT)["fingerprint"]
        == artifact.read(f"{OUTPUT}-direct")["fingerprint"]
    )


@pytest.mark.parametrize(
    "fault, reason",
    [
        ({"state": "JOB_STATE_FAILED"}, "State: FAILED"),
        ({"status": 403}, "403 POST"),
    ],
)
def test_a_job_that_fails_is_one_sentence(
    bucket, dataflow, fault, reason, capsys
):
    vars(dataflow).update(fault)
    assert cli.main(_on_dataflow(dataflow, "index")) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("realm index: the job ended") and reason in last


def test_a_command_that_was_cut_off_from_its_job_is_given_again(
    monkeypatch, bucket, embeddings_dir
):
    def cut_off(*_, **__):
        raise KeyboardInterrupt

    command = ["embed", "--rows-per-shard=5", f"--output={OUTPUT}"]
    command += COMMANDS["embed"][0].split()
    with monkeypatch.context() as patch:
        patch.setattr(execution, "run_step", cut_off)
        assert cli.main([*command, "--runner=DataflowRunner"]) == 130
    assert not artifact.is_complete(OUTPUT)
    # What the job does.
    _upload(embeddings_dir, OUTPUT, ".npy")
    assert not cli.main(command)
    found = artifact.read(OUTPUT, kind="embeddings")
    expected = artifact.read(embeddings_dir, kind="embeddings")
    for metadata in (found, expected):
        del metadata["seconds"], metadata["counts"]
    assert found == expected
    assert "job.json" not in list_files(OUTPUT)
