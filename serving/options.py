"""How to serve: the options of `realm serve`."""

from dataclasses import dataclass
from dataclasses import fields

from realm_tf.errors import InputError

# As TF Serving's --port and --rest_api_port.
GRPC_PORT = 8500
REST_PORT = 8501
MODEL_NAME = "realm"
# Beyond any use, and waits of so many seconds still fit Python's clocks.
_MOST_OF_OTHERS = 10**9
_MOST = {
    "grpc_port": 65535,
    "rest_port": 65535,
    # As much as gRPC can.
    "max_message_bytes": 2**31 - 1,
}
_MAY_BE_ZERO = (
    "grpc_port",
    "rest_port",
    "file_system_poll_wait_seconds",
    "batch_timeout_seconds",
    "max_running",
)


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """How to serve. All defaults that are no ports are our choice."""

    saved_model: str
    """base directory (its newest version is served, a newer one as soon as it
    is written) or version directory"""
    model_name: str = MODEL_NAME
    """the name clients ask for"""
    file_system_poll_wait_seconds: float = 1.0
    """time between two looks for new versions; 0 looks only once"""
    host: str = "127.0.0.1"
    """where to listen; 0.0.0.0 lets other machines in: use --api-key-file and
    TLS then"""
    grpc_port: int = GRPC_PORT
    """0 takes any free one and prints it"""
    rest_port: int = REST_PORT
    """of the REST API, the metrics, the probes and the web page; 0 takes any
    free one and prints it"""
    no_rest: bool = False
    """gRPC only, no HTTP"""
    allowed_hosts: tuple[str, ...] = ()
    """names under which the REST port may be asked, beside addresses,
    localhost, --host and this machine's name; * allows every name"""
    tls_certificate: str | None = None
    """PEM certificate chain of the server"""
    tls_key: str | None = None
    """its PEM private key, without a passphrase"""
    tls_client_ca: str | None = None
    """PEM certificates; clients must have one they sign"""
    api_key_file: str | None = None
    """keys, one a line; requests must carry one (authorization: Bearer KEY or
    x-api-key: KEY), but for health checks. A filter after a key, such as KEY
    tags=hr, is what holds of all that is found for it"""
    max_batch_size: int = 128
    """at most so many questions in a request"""
    max_string_bytes: int = 4096
    """bytes of a question; what is longer is cut, a longer filter refused"""
    max_pending: int = 128
    """requests being answered or waiting; one more is refused"""
    max_running: int = 0
    """batches in TensorFlow at once; 0 is a quarter of the processors, at
    least 2"""
    max_merged_size: int = 32
    """questions of concurrent requests that are run as one; 1 runs each
    request by itself"""
    batch_timeout_seconds: float = 0.002
    """how long a question may wait for others to be run with"""
    default_timeout_seconds: float = 30.0
    """for requests without a deadline"""
    max_message_bytes: int = 64 << 20
    """largest gRPC message and HTTP body"""
    log_file: str = "-"
    """a JSON line for every request and event; - is stderr, an empty name no
    log"""
    log_questions: bool = False
    """log the questions too, and messages of errors, which may quote them"""

    def check(self) -> None:
        """Refuses options that nothing can be served with.

        Raises:
            InputError: if a number is out of its range, or an option needs
                another.
        """
        for field in fields(self):
            if field.type in (int, float):
                self._check_number(field.name)
        if not self.model_name:
            raise InputError("--model-name is empty: expected a name.")
        # To a socket it would mean every address.
        if not self.host:
            raise InputError("--host is empty: expected a name or an address.")
        if self.tls_client_ca and not self.tls_certificate:
            raise InputError(
                "--tls-client-ca needs --tls-certificate and --tls-key."
            )

    def _check_number(self, name: str) -> None:
        value = getattr(self, name)
        most = _MOST.get(name, _MOST_OF_OTHERS)
        if not (0 < value <= most or (value == 0 and name in _MAY_BE_ZERO)):
            least = "0 or more" if name in _MAY_BE_ZERO else "more than 0"
            raise InputError(
                f"--{name.replace('_', '-')} is {value}: expected {least} and "
                f"at most {most:,}."
            )
