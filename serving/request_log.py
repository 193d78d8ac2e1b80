"""One JSON object a line for every request and every event of a model.

Texts of questions are left out, and so are messages of errors, which may
quote them, unless they are asked for.
"""

import dataclasses
import datetime
import json
import logging
import logging.handlers
import os
import re
import secrets
import sys

from realm_tf.errors import InputError

# Longer ids of clients are replaced: they go into every line and back to the
# client. Our choice; a UUID takes 36 characters.
_REQUEST_ID = re.compile("[!-~]{1,128}")
_REQUEST_ID_BYTES = 8


def choose_request_id(sent: str | None) -> str:
    """The client's request id if it is fit for a log, else a new one.

    Args:
        sent: str. What came as `x-request-id`; `None` or empty if nothing.

    Returns:
        str of printable ASCII without spaces.
    """
    if sent and _REQUEST_ID.fullmatch(sent):
        return sent
    return secrets.token_hex(_REQUEST_ID_BYTES)


@dataclasses.dataclass
class RequestRecord:
    """What is known of a request; filled in while it is answered.

    Args:
        method: str. `"Predict"`, `"GetModelStatus"` and so on.
        entrypoint: str. `"GRPC"` or `"REST"`, as in TF Serving's metrics.
        model: str. The name the client sent.
        request_id: str. Defaults to a new one.
        peer: str. The client's address, where it was turned away.
        signature: str. Empty: none was asked for.
        version: int. `None` until it is known.
        batch_size: int. Rows of the request; `None` if it has none.
        required_filter: str. Of what the key may see; `""` for everything.
        questions: list of str. The request's strings.
        status: str. Name of the gRPC status.
        milliseconds: float. From its arrival to its answer.
        error: str. Why it was refused.
        traceback: list of str. Where in the code a defect showed.
    """

    method: str
    entrypoint: str
    model: str = ""
    request_id: str = dataclasses.field(
        default_factory=lambda: choose_request_id(None)
    )
    peer: str = ""
    signature: str = ""
    version: int | None = None
    batch_size: int | None = None
    required_filter: str = ""
    questions: list[str] = dataclasses.field(default_factory=list)
    status: str = "OK"
    milliseconds: float = 0.0
    error: str = ""
    traceback: list[str] = dataclasses.field(default_factory=list)


# Text of a client, or an error that may quote it.
_PRIVATE = ("questions", "error")


class RequestLog:
    """Writes the lines; any number of threads may do so at once.

    Args:
        path: str. A file to append to; one that is renamed, as logrotate
            does, is opened again, and while that fails lines are lost and
            stderr is told. `"-"` is stderr. Defaults to `""`: nothing
            is written.
        log_questions: bool. Whether questions and messages of errors are
            written too. Defaults to `False`.

    Raises:
        InputError: if the file cannot be written.
    """

    def __init__(self, path: str = "", *, log_questions: bool = False):
        self.log_questions = log_questions
        # Not from logging.getLogger: every server has its own.
        self._logger = logging.Logger("realm.requests", logging.INFO)
        self._handler = _handler(path)
        self._logger.addHandler(self._handler)

    def close(self) -> None:
        """Closes the file."""
        self._handler.close()

    def request(self, record: RequestRecord) -> None:
        """Writes a request's line."""
        fields = {
            name: value
            for name, value in dataclasses.asdict(record).items()
            if value not in ("", None, [])
            and (self.log_questions or name not in _PRIVATE)
        }
        fields["milliseconds"] = round(record.milliseconds, 3)
        self._write("request", fields)

    def event(self, event: str, **fields) -> None:
        """Writes the line of a model's event; see `versions.Versions`."""
        self._write("model", {"event": event, **fields})

    def _write(self, kind: str, fields: dict) -> None:
        now = datetime.datetime.now(datetime.UTC)
        time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._logger.info(json.dumps({"time": time, "kind": kind, **fields}))


class _File(logging.handlers.WatchedFileHandler):
    """A file whose failure stops no request: stderr is told of it."""

    def emit(self, record):
        try:
            super().emit(record)
        # It opens a renamed file outside of logging's own care.
        except OSError:
            self.handleError(record)


def _handler(path: str) -> logging.Handler:
    if not path:
        return logging.NullHandler()
    if path == "-":
        return logging.StreamHandler(sys.stderr)
    try:
        return _File(os.path.abspath(path), encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"--log-file {path} cannot be written ({error.strerror}): "
            "expected a file in a directory that exists, or - for stderr."
        ) from error
