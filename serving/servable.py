"""One loaded version of a SavedModel, checked and asked.

`export.runtime` runs the graph.
"""

import os
import re
import struct
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from realm_tf.answering.answer import Answer
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import local_directory
from realm_tf.artifacts.saved_models import find_version
from realm_tf.errors import InputError
from realm_tf.export import card as export_card
from realm_tf.export import signatures
from realm_tf.export.runtime import LoadError
from realm_tf.export.runtime import RunError
from realm_tf.export.runtime import Runtime
from realm_tf.export.runtime import misfit
from realm_tf.serving import memory
from realm_tf.serving.client import RealmServerError
from realm_tf.serving.client import checked
from realm_tf.serving.client import to_answers
from realm_tf.serving.client import with_filter
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import invalid
from realm_tf.serving.request_error import unavailable

_CLOSED = "This version is being unloaded."
_INIT_SIGNATURE = "__saved_model_init_op"
_STATUS_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}

# What a graph says of an input that it refuses: text, message, place.
_ASSERTION = re.compile(
    r"(?s).*assertion failed: \[(.*?)\] \[([^\]]*)\](?:\s*\[\[\{\{.*)?"
)


def _names(names: Iterable[str]) -> str:
    return "{" + ", ".join(sorted(names)) + "}"


class SavedModelServable:
    """A SavedModel, loaded and ready for concurrent requests.

    Args:
        path: str. The base directory, whose highest version is loaded, or a
            version directory.
        optimized: bool. Whether graphs are optimized at their first run,
            which takes longer. Defaults to `True`.

    Attributes:
        directory: str. The version directory.
        signature_defs: dict of name to `SignatureDef`, as in the SavedModel.
        card: dict. The card that `realm export` wrote: `"index"` (kind),
            `"num_blocks"`, `"evidence_license"`, `"example_questions"`,
            `"files"`; empty if it has no card.
        evidence_license: str. Of the card, or `None`. TF Serving's protocol
            has no field for it, so a server does not send it.

    Raises:
        InputError: if there is no SavedModel, a file differs from the export,
            or it needs ops that are not installed.
    """

    def __init__(self, path: str, *, optimized: bool = True):
        self.directory = local_directory(find_version(path))
        self.card = export_card.read(self.directory)
        self.evidence_license = self.card.get("evidence_license")
        try:
            self._runtime = Runtime(
                self.directory,
                index=self.card.get("index"),
                optimized=optimized,
            )
        except LoadError as error:
            raise InputError(str(error)) from error
        self.signature_defs = self._runtime.signature_defs

    def __enter__(self) -> "SavedModelServable":
        return self

    def __exit__(self, *exception_info) -> None:
        self.close()

    def check(
        self,
        inputs: Mapping[str, np.ndarray],
        *,
        signature: str = "",
        output_filter: Iterable[str] = (),
    ) -> None:
        """Refuses a request that does not fit its signature.

        Args:
            inputs: as in `run`.
            signature: as in `run`.
            output_filter: names of the outputs wanted. Defaults to all.

        Raises:
            RequestError: if the request does not fit the signature.
        """
        name = signature or signatures.DEFAULT
        if name not in self.signature_defs or name == _INIT_SIGNATURE:
            if name.rpartition(signatures.FILTERED)[0] in self.signature_defs:
                raise invalid(
                    "Nothing can be filtered here: the corpus has no fields. "
                    "Leave the filter out, or make the corpus with `realm corpus "
                    "create --fields`."
                )
            raise RequestError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f'Serving signature key "{name}" not found. Expected one of '
                f"{_names(set(self.signature_defs) - {_INIT_SIGNATURE})}.",
            )
        definition = self.signature_defs[name]
        expected = definition.inputs
        if set(inputs) != set(expected):
            raise invalid(
                "input size does not match signature: expected the inputs "
                f"{_names(expected)}, received {_names(inputs)}."
            )
        for key, value in inputs.items():
            if problem := misfit(expected[key], value):
                raise invalid(f"input {key} {problem}")
        for key in output_filter:
            if key not in definition.outputs:
                raise invalid(
                    f"output tensor alias not found in signature: {key}. "
                    "Outputs expected to be in the set "
                    f"{_names(definition.outputs)}."
                )

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        *,
        signature: str = "",
        timeout_seconds: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs a signature; any number of threads may do so at once.

        Args:
            inputs: mapping of name to array; strings as bytes in an array
                of dtype object.
            signature: str. Defaults to `serving_default`.
            timeout_seconds: float. Cancels the run after this long.
                Defaults to no limit.

        Returns:
            dict of output name to array.

        Raises:
            RequestError: if the request does not fit the signature, the
                graph fails on it, time runs out or the servable is closed.
        """
        self.check(inputs, signature=signature)
        name, inputs = self._filtered(signature or signatures.DEFAULT, inputs)
        runtime = self._runtime
        if runtime is None:
            raise unavailable(_CLOSED)
        try:
            return runtime.run(name, inputs, timeout_seconds=timeout_seconds)
        except RunError as error:
            # A run during `close` fails in one way or another.
            if self._runtime is None:
                raise unavailable(_CLOSED) from error
            message = _ASSERTION.sub(r"\1 \2", error.message)
            raise RequestError(
                _STATUS_BY_NUMBER[error.code], message
            ) from error

    def _filtered(self, name, inputs):
        """Name and inputs of the same signature with a filter, if there is one.

        Each signature that has run is a graph of its own, which Grappler takes
        seconds for. An exact search gives the same, as fast, through the filter
        that lets all blocks be found; another kind searches less without one.
        """
        filtered = f"{name}{signatures.FILTERED}"
        exact = self.card.get("index") == "brute_force"
        if not exact or filtered not in self.signature_defs:
            return name, inputs
        (questions,) = inputs.values()
        everything = np.full(questions.shape, b"", object)
        return filtered, {**inputs, signatures.FILTER: everything}

    def ask(self, questions: list[str], *, filter: str = "") -> list[Answer]:
        """Answers questions in one batch; see `client.RealmClient.ask`."""
        if not questions:
            return []
        signature, inputs = with_filter(signatures.DEFAULT, questions, filter)
        arrays = {k: np.array(v, dtype=object) for k, v in inputs.items()}
        try:
            outputs = self.run(arrays, signature=signature)
        except RequestError as error:
            raise RealmServerError(error.code.name, error.message) from error
        with checked(self.directory):
            return to_answers(
                {name: array.tolist() for name, array in outputs.items()},
                count=len(questions),
            )

    def warm_up(self) -> None:
        """Runs the model's warm-up requests, so that no user waits for them.

        The first run of a signature optimises its graph and builds the ScaNN
        searcher, about 1.5 s per million blocks.

        Raises:
            InputError: if the model fails on a request, or the file is no
                TFRecord file of Predict requests.
        """
        # `realm ask` needs neither.
        from realm_tf.serving.protos import prediction_log_pb2
        from realm_tf.serving.tensors import decode_tensor

        path = os.path.join(self.directory, export_card.WARM_UP_FILE)
        if not Path(path).is_file():
            return
        try:
            for record in _records(Path(path).read_bytes()):
                log = prediction_log_pb2.PredictionLog.FromString(record)
                request = log.predict_log.request
                self.run(
                    {
                        name: decode_tensor(name, proto)
                        for name, proto in request.inputs.items()
                    },
                    signature=request.model_spec.signature_name,
                )
        except (struct.error, DecodeError, RequestError) as error:
            raise InputError(
                f"The SavedModel {self.directory} fails on the warm-up "
                f"requests in {export_card.WARM_UP_FILE}: {error}"
            ) from error

    def close(self) -> None:
        """Refuses new runs, cancels running ones and frees the memory."""
        runtime, self._runtime = self._runtime, None
        if runtime is None:
            return
        runtime.close()
        memory.hand_back()


def _records(data: bytes) -> Iterator[bytes]:
    """The records of a TFRecord file; the card has its checksum.

    Raises:
        struct.error: if it is none.
    """
    position = 0
    while position < len(data):
        # Its length, 4 bytes of checksum, the record, 4 bytes of checksum.
        (length,) = struct.unpack_from("<Q", data, position)
        (record,) = struct.unpack_from(f"<4x{length}s4x", data, position + 8)
        yield record
        position += length + 16
