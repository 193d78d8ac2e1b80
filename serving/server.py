"""Serves a SavedModel with TF Serving's gRPC API.

Answers Predict, GetModelMetadata and GetModelStatus, and grpc.health.v1.
Prints one line when it is ready; SIGTERM or Ctrl-C lets running calls finish
and ends it.
"""

import argparse
import os
import signal
import threading
from concurrent import futures

from realm_tf.errors import InputError
from serving import locate

# As TF Serving's --port.
DEFAULT_GRPC_PORT = 8500
DEFAULT_MODEL_NAME = "realm"
# How long running calls may go on after SIGTERM; our choice, under the 30 s
# after which Kubernetes kills.
GRACE_SECONDS = 20.0
# TensorFlow computes outside the interpreter lock, in threads of its own;
# this many requests may wait for it. Our choice.
_NUM_THREADS = 16
_OPTIONS = (
    # TF Serving's limits (main.cc): the largest int32.
    ("grpc.max_receive_message_length", 2**31 - 1),
    ("grpc.max_send_message_length", 2**31 - 1),
    # Or a second server on the same port would get half of the calls.
    ("grpc.so_reuseport", 0),
)


class RunningServer:
    """A server that answers until it is stopped.

    Args:
        server: grpc.Server, started.
        health: grpc_health's servicer.
        models: dict of model name to dict of version to servable.
        target: str. `"HOST:PORT"`.

    Attributes:
        target: str. What a client connects to.
        models: dict of model name to dict of version to servable.
    """

    def __init__(self, server, *, health, models: dict, target: str):
        self._server = server
        self._health = health
        self.models = models
        self.target = target

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *exception_info) -> None:
        self.stop()

    def stop(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """Refuses new calls, lets running ones finish, frees the models.

        Args:
            grace_seconds: float. Calls still running after it are cancelled.
                Defaults to 20.
        """
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_seconds).wait()
        for versions in self.models.values():
            for servable in versions.values():
                # Calls that outlived the grace must not hold up the exit.
                servable.close(grace_seconds=0)


def start_services(
    models: dict, *, host: str = "127.0.0.1", grpc_port: int = 0
) -> RunningServer:
    """Starts the gRPC services over loaded servables.

    Args:
        models: dict of model name to dict of version to servable.
        host: str. Where to listen. Defaults to `"127.0.0.1"`.
        grpc_port: int. Defaults to 0: any free port.

    Returns:
        `RunningServer`.

    Raises:
        InputError: if the port is taken.
    """
    import grpc
    from grpc_health.v1 import health
    from grpc_health.v1 import health_pb2
    from grpc_health.v1 import health_pb2_grpc
    from tensorflow_serving.apis import model_service_pb2_grpc
    from tensorflow_serving.apis import prediction_service_pb2_grpc

    from serving import service

    server = grpc.server(
        futures.ThreadPoolExecutor(_NUM_THREADS), options=_OPTIONS
    )
    table = service.Models(models)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        service.PredictionService(table), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(
        service.ModelService(table), server
    )
    health_servicer = health.HealthServicer()
    for name in ("", "tensorflow.serving.PredictionService"):
        health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    address = f"[{host}]" if ":" in host else host
    try:
        port = server.add_insecure_port(f"{address}:{grpc_port}")
    except RuntimeError as error:
        raise InputError(
            locate.port_message(host, grpc_port, str(error))
        ) from error
    server.start()
    return RunningServer(
        server,
        health=health_servicer,
        models=models,
        target=f"{address}:{port}",
    )


def start(
    saved_model: str,
    *,
    host: str = "127.0.0.1",
    grpc_port: int = 0,
    model_name: str = DEFAULT_MODEL_NAME,
) -> RunningServer:
    """Loads a SavedModel, warms it up and serves it from this process.

    Args:
        saved_model: str. Its base directory, whose highest version is
            served, or a version directory.
        host: str. Where to listen. Defaults to `"127.0.0.1"`.
        grpc_port: int. Defaults to 0: any free port.
        model_name: str. The name clients ask for. Defaults to `"realm"`.

    Returns:
        `RunningServer`, ready to answer.

    Raises:
        InputError: if there is no SavedModel, it does not load, or the port
            is taken.

    Example:

    ```python
    with start("exported", grpc_port=8500) as server:
        RealmClient(server.target).ask(["Who wrote Frankenstein?"])
    ```
    """
    # The quick mistakes first: loading takes long.
    if not model_name:
        raise InputError("--model-name is empty: expected a name.")
    locate.find_version(saved_model)
    locate.check_port(host, grpc_port)
    from serving.servable import SavedModelServable

    servable = SavedModelServable(saved_model)
    try:
        servable.warm_up()
        return start_services(
            {model_name: {servable.version: servable}},
            host=host,
            grpc_port=grpc_port,
        )
    except BaseException:
        servable.close(grace_seconds=0)
        raise


def serve(
    saved_model: str,
    *,
    host: str = "127.0.0.1",
    grpc_port: int = DEFAULT_GRPC_PORT,
    model_name: str = DEFAULT_MODEL_NAME,
) -> None:
    """Serves until SIGTERM or SIGINT; call it from the main thread.

    Arguments and errors as of `start`.
    """
    # gRPC's C++ log is for its developers.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    running = start(
        saved_model, host=host, grpc_port=grpc_port, model_name=model_name
    )
    stopped = threading.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    previous = [
        signal.signal(number, lambda *_: stopped.set()) for number in signals
    ]
    try:
        for version, servable in running.models[model_name].items():
            print(
                f"realm serve: ready at {running.target}, model "
                f"{model_name}, version {version} ({servable.directory})",
                flush=True,
            )
        stopped.wait()
    finally:
        # A second signal ends the process at once.
        for number, handler in zip(signals, previous, strict=True):
            signal.signal(number, handler)
        running.stop()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `realm serve`."""
    parser.add_argument(
        "--saved-model",
        required=True,
        metavar="DIR",
        help="base directory (its highest version is served) or version "
        "directory",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="where to listen; 0.0.0.0 lets other machines in, without any "
        "access control (default: %(default)s)",
    )
    parser.add_argument(
        "--grpc-port",
        type=int,
        default=DEFAULT_GRPC_PORT,
        help="0 takes any free one and prints it (default: %(default)s)",
    )
    parser.add_argument(
        "--model-name",
        default=DEFAULT_MODEL_NAME,
        help="the name clients ask for (default: %(default)s)",
    )


def run(args: argparse.Namespace, extra: list[str]) -> int:
    """Runs `realm serve`."""
    serve(
        args.saved_model,
        host=args.host,
        grpc_port=args.grpc_port,
        model_name=args.model_name,
    )
    return 0
