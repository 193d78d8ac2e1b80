"""Dataflow's REST interface on this machine."""

import contextlib
import http.server
import json
import threading

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2

from realm_tf.artifacts.paths import Path


class Dataflow(http.server.ThreadingHTTPServer):
    """Takes jobs and does their work at once, in this process.

    Attributes:
        jobs: list of (path, dict, bytes). Where each was sent, what was sent,
            and the pipeline that it names.
        status: int. The HTTP status of an answer.
        state: str. The state of a job whose work is done.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.jobs = []
        self.status = 200
        self.state = "JOB_STATE_DONE"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        service = self.server
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        options = job["environment"]["sdkPipelineOptions"]["options"]
        content = Path(options["pipelineUrl"]).read_bytes()
        service.jobs.append((self.path.partition("?")[0], job, content))
        if service.status == 200 and service.state == "JOB_STATE_DONE":
            beam.Pipeline.from_runner_api(
                beam_runner_api_pb2.Pipeline.FromString(content),
                "FnApiRunner",
                PipelineOptions([]),
            ).run().wait_until_finish()
        self.send_response(service.status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        answer = {"id": "job-1", "currentState": service.state}
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving():
    """Yields a `Dataflow` that is being served."""
    with Dataflow() as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield service
        service.shutdown()
