"""Serves a SavedModel with TF Serving's gRPC and REST APIs.

gRPC: PredictionService, ModelService and grpc.health.v1. REST: the /v1/models
paths, /monitoring/prometheus/metrics, probes, and a web page at /.
"""

import logging
import os
import signal
import ssl
import threading
from typing import TYPE_CHECKING

from realm_tf.artifacts import saved_models
from realm_tf.serving.options import ServerOptions

if TYPE_CHECKING:
    from realm_tf.serving.running_server import RunningServer


def start_server(
    options: ServerOptions, *, only_serves: bool = False
) -> "RunningServer":
    """Loads a model, warms it up and serves it from this process.

    Args:
        options: `ServerOptions`.
        only_serves: bool. Whether this process does nothing else: see
            `memory.keep_imports`. Defaults to `False`.

    Returns:
        `RunningServer`, ready to answer.

    Raises:
        InputError: if the model is not there or does not load, a port is
            taken or a file cannot be used.
    """
    from realm_tf.serving import connection
    from realm_tf.serving import rest_server

    # The quick mistakes first: TensorFlow and the model take long.
    options.check()
    saved_models.find_version(options.saved_model)
    connection.check_tls(
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ca=options.tls_client_ca,
        certificate=options.tls_certificate,
        key=options.tls_key,
    )
    # gRPC would share a port silently where its owner allows it.
    rest_server.bind(
        options.host, options.grpc_port, flag="--grpc-port"
    ).close()
    from realm_tf.serving import memory
    from realm_tf.serving.batching import BatchingServable
    from realm_tf.serving.running_server import RunningServer
    from realm_tf.serving.servable import SavedModelServable

    # Enough to prepare one batch while another runs; our choice.
    num_threads = options.max_running or max(2, (os.cpu_count() or 1) // 4)

    def load(directory: str, served, metrics):
        return BatchingServable(
            SavedModelServable(directory, beside=served and served.servable),
            max_rows=options.max_merged_size,
            timeout_seconds=options.batch_timeout_seconds,
            num_threads=num_threads,
            observe=metrics.count_batch,
        )

    if only_serves:
        memory.keep_imports()
    return RunningServer(options, load)


def start(saved_model: str, **options) -> "RunningServer":
    """Loads a SavedModel, warms it up and serves it from this process.

    Args:
        saved_model: str. Its base directory, whose newest version is served,
            or a version directory.
        **options: As of `ServerOptions`. Those that default to something
            else here: any free ports, nothing is logged, and versions that
            are exported later are not looked for.

    Returns:
        `RunningServer`, ready to answer.

    Raises:
        InputError: As `start_server`.

    Example:

    ```python
    with start("exported", grpc_port=8500) as server:
        RealmClient(server.target).ask(["Who wrote Frankenstein?"])
    ```
    """
    defaults = {
        "grpc_port": 0,
        "rest_port": 0,
        "file_system_poll_wait_seconds": 0.0,
        "log_file": "",
    }
    return start_server(
        ServerOptions(saved_model=saved_model, **{**defaults, **options})
    )


def serve_until_signal(options: ServerOptions) -> None:
    """Serves until SIGTERM or Ctrl-C; for the main thread of a process.

    Prints one line when it is ready. Ends the process where something is
    left that does not end.

    Args:
        options: `ServerOptions`.

    Raises:
        InputError: As `start_server`.
    """
    # gRPC's C++ log is for its developers.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # A traceback for every message that is no protobuf, between the lines
    # of the log.
    logging.getLogger("grpc._common").setLevel(logging.CRITICAL)
    running = start_server(options, only_serves=True)
    stopped = threading.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        signal.signal(number, lambda *_: stopped.set())
    try:
        print(f"realm serve: ready at {running.describe()}", flush=True)
        stopped.wait()
    finally:
        # A second signal ends the process at once.
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        ended = running.stop()
    if not ended:
        # A load that is stuck would also hold up the interpreter's end.
        os._exit(0)
