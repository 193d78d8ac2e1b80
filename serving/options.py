"""The options of `realm serve`."""

import argparse
import os
from dataclasses import dataclass

from realm_tf.artifacts.paths import is_remote
from realm_tf.errors import InputError
from realm_tf.serving import locate
from realm_tf.serving import security
from realm_tf.serving.batching import parameters as batching_parameters
from realm_tf.serving.batching.parameters import BatchingParameters
from realm_tf.serving.limits import Limits
from realm_tf.serving.versions import config as model_config
from realm_tf.serving.versions.config import ModelSettings

# As TF Serving's --port and --rest_api_port.
DEFAULT_GRPC_PORT = 8500
DEFAULT_REST_PORT = 8501
DEFAULT_MODEL_NAME = "realm"
# TF Serving reads up to 2 GiB; 128 questions of 64 kB are 8 MiB. Our choice.
MAX_MESSAGE_BYTES = 64 << 20


@dataclass(frozen=True)
class ServerOptions:
    """How to serve, whatever the models are.

    Args:
        host: str. Where to listen. Defaults to `"127.0.0.1"`.
        grpc_port: int. Defaults to 0: any free port.
        rest_port: int. 0: any free port. Defaults to `None`: no REST.
        limits: `Limits`.
        batching: `BatchingParameters`. Defaults to `None`: every request is
            run alone.
        tls: `security.TlsFiles`. Defaults to `None`: unencrypted.
        api_keys: `security.ApiKeys`. Defaults to `None`: everybody may ask.
        max_message_bytes: int. The largest gRPC message and HTTP body.
        poll_seconds: float. Time between two looks at the base paths.
            Defaults to 0: one look, at the start.
        config_path: str. The model config file to look at again. Defaults
            to `None`.
        config_poll_seconds: float. Time between two looks at it. Defaults
            to 0: none.
        allow_unavailable_labels: bool. Whether labels may point to versions
            that are not loaded. Defaults to `False`.
        log_path: str. `"-"` is stderr. Defaults to `None`: no log.
        log_questions: bool. Defaults to `False`.
    """

    host: str = "127.0.0.1"
    grpc_port: int = 0
    rest_port: int | None = None
    limits: Limits = Limits()
    batching: BatchingParameters | None = None
    tls: security.TlsFiles | None = None
    api_keys: security.ApiKeys | None = None
    max_message_bytes: int = MAX_MESSAGE_BYTES
    poll_seconds: float = 0.0
    config_path: str | None = None
    config_poll_seconds: float = 0.0
    allow_unavailable_labels: bool = False
    log_path: str | None = None
    log_questions: bool = False


def single_model(saved_model: str, name: str) -> list[ModelSettings]:
    """The settings of one SavedModel.

    Args:
        saved_model: str. Its base directory, whose highest version is
            served, or a version directory.
        name: str. What clients ask for.

    Raises:
        InputError: if there is no SavedModel or the name is empty.
    """
    if not name:
        raise InputError("--model-name is empty: expected a name.")
    # The quick mistakes first: loading takes long.
    locate.find_version(saved_model)
    if not is_remote(saved_model):
        saved_model = os.path.abspath(saved_model)
    return [ModelSettings(name=name, base_path=str(saved_model))]


def read_settings(args: argparse.Namespace) -> list[ModelSettings]:
    """The models that the arguments name.

    Raises:
        InputError: if there are none.
    """
    if args.model_config_file:
        return model_config.read(args.model_config_file)
    return single_model(args.saved_model, args.model_name)


def read_options(args: argparse.Namespace) -> ServerOptions:
    """The arguments as `ServerOptions`, their files read and checked.

    Raises:
        InputError: if one is wrong or contradicts another.
    """
    for seconds in (
        args.file_system_poll_wait_seconds,
        args.model_config_file_poll_wait_seconds,
    ):
        if not seconds >= 0:
            raise InputError(
                f"A poll-wait of {seconds} seconds is not possible: expected "
                "a number from 0 on."
            )
    batching = None
    if args.batching_parameters_file:
        batching = batching_parameters.read(args.batching_parameters_file)
    return ServerOptions(
        host=args.host,
        grpc_port=args.grpc_port,
        rest_port=None if args.no_rest else args.rest_port,
        limits=Limits(
            max_batch_size=args.max_batch_size,
            max_string_bytes=args.max_string_bytes,
            max_pending=args.max_pending,
            # With batching its threads are the limit.
            max_running=None if batching else args.max_running,
            default_timeout_seconds=args.default_timeout_seconds,
        ),
        batching=batching,
        tls=_read_tls(args),
        api_keys=security.read_api_keys(args.api_key_file)
        if args.api_key_file
        else None,
        max_message_bytes=_max_message_bytes(args.max_message_bytes),
        poll_seconds=args.file_system_poll_wait_seconds,
        config_path=args.model_config_file,
        config_poll_seconds=args.model_config_file_poll_wait_seconds,
        allow_unavailable_labels=(
            args.allow_version_labels_for_unavailable_models
        ),
        log_path=args.log_file,
        log_questions=args.log_questions,
    )


def _read_tls(args: argparse.Namespace) -> security.TlsFiles | None:
    if bool(args.tls_certificate) != bool(args.tls_key) or (
        args.tls_client_ca and not args.tls_certificate
    ):
        raise InputError(
            "--tls-certificate and --tls-key belong together, and "
            "--tls-client-ca needs both: give the missing one."
        )
    if not args.tls_certificate:
        return None
    tls = security.TlsFiles(
        args.tls_certificate, args.tls_key, args.tls_client_ca
    )
    tls.check()
    return tls


def _max_message_bytes(number: int) -> int:
    if not 0 < number < 2**31:
        raise InputError(
            f"--max-message-bytes is {number}: expected 1 to {2**31 - 1}, "
            "which is as much as gRPC can."
        )
    return number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `realm serve`."""
    _add_models(parser.add_argument_group("what to serve"))
    _add_network(parser.add_argument_group("where and to whom"))
    _add_limits(parser.add_argument_group("limits and batching"))
    _add_log(parser.add_argument_group("log"))


def _add_models(group) -> None:
    models = group.add_mutually_exclusive_group(required=True)
    models.add_argument(
        "--saved-model",
        metavar="DIR",
        help="base directory (its highest version is served, a new one as "
        "soon as it is written) or version directory",
    )
    models.add_argument(
        "--model-config-file",
        metavar="FILE",
        help="TF Serving's models.config: several models, versions, labels",
    )
    group.add_argument(
        "--model-name",
        default=DEFAULT_MODEL_NAME,
        help="the name clients ask for, with --saved-model (default: "
        "%(default)s)",
    )
    group.add_argument(
        "--file-system-poll-wait-seconds",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="time between two looks for new versions; 0 looks only once "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--model-config-file-poll-wait-seconds",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="time between two looks at --model-config-file; 0 reads it only "
        "once (default: %(default)s)",
    )
    group.add_argument(
        "--allow-version-labels-for-unavailable-models",
        action="store_true",
        help="labels may point to versions that are not loaded yet",
    )


def _add_network(group) -> None:
    group.add_argument(
        "--host",
        default="127.0.0.1",
        help="where to listen; 0.0.0.0 lets other machines in: use "
        "--api-key-file and TLS then (default: %(default)s)",
    )
    group.add_argument(
        "--grpc-port",
        type=int,
        default=DEFAULT_GRPC_PORT,
        help="0 takes any free one and prints it (default: %(default)s)",
    )
    group.add_argument(
        "--rest-port",
        type=int,
        default=DEFAULT_REST_PORT,
        help="of the REST API, the metrics and the web page; 0 takes any "
        "free one and prints it (default: %(default)s)",
    )
    group.add_argument(
        "--no-rest", action="store_true", help="gRPC only, no HTTP"
    )
    for name, text in (
        ("certificate", "PEM certificate chain of the server"),
        ("key", "its PEM private key, without a passphrase"),
        ("client-ca", "PEM certificates; clients must have one they sign"),
    ):
        group.add_argument(f"--tls-{name}", metavar="FILE", help=text)
    group.add_argument(
        "--api-key-file",
        metavar="FILE",
        help="keys, one a line; requests must carry one (`authorization: "
        "Bearer KEY` or `x-api-key: KEY`), but for grpc.health.v1",
    )


def _add_limits(group) -> None:
    defaults = Limits()
    for name, unit, text in (
        ("max-batch-size", "ROWS", "questions in a request"),
        ("max-string-bytes", "BYTES", "bytes of a question"),
        ("max-pending", "N", "requests being answered or waiting"),
        ("max-running", "N", "requests in TensorFlow at once, if not batched"),
    ):
        group.add_argument(
            f"--{name}",
            type=int,
            default=getattr(defaults, name.replace("-", "_")),
            metavar=unit,
            help=f"at most so many {text} (default: %(default)s)",
        )
    group.add_argument(
        "--default-timeout-seconds",
        type=float,
        default=defaults.default_timeout_seconds,
        metavar="SECONDS",
        help="for requests without a deadline (default: %(default)s)",
    )
    group.add_argument(
        "--max-message-bytes",
        type=int,
        default=MAX_MESSAGE_BYTES,
        metavar="BYTES",
        help="largest gRPC message and HTTP body (default: %(default)s)",
    )
    group.add_argument(
        "--batching-parameters-file",
        metavar="FILE",
        help="merge requests, as TF Serving's file of this name says",
    )


def _add_log(group) -> None:
    group.add_argument(
        "--log-file",
        default="-",
        metavar="FILE",
        help="a JSON line for every request and event; - is stderr (default: "
        "%(default)s)",
    )
    group.add_argument(
        "--log-questions",
        action="store_true",
        help="log the questions too, and messages of errors, which may quote "
        "them",
    )
