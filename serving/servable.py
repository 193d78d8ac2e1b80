"""One loaded version of a SavedModel: the seam between model and protocol.

A version owns one `tf.compat.v1.Session`. Closing the session frees its
variables, tables and ScaNN searchers, which `tf.saved_model.load` does not;
TF Serving isolates versions in the same way.
"""

import functools
import importlib.util
import logging
import os
from collections.abc import Iterable
from collections.abc import Mapping

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the ops of its graphs
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import rewriter_config_pb2
from tensorflow_serving.apis import prediction_log_pb2

from realm_tf.answering.answer import Answer
from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.saved_models import find_version
from realm_tf.errors import InputError
from realm_tf.export import card as export_card
from realm_tf.export import signatures
from realm_tf.serving import memory
from realm_tf.serving.answers import RealmServerError
from realm_tf.serving.answers import checked
from realm_tf.serving.answers import to_answers
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.request_error import invalid
from realm_tf.serving.request_error import unavailable
from realm_tf.serving.tensors import decode_tensor

_TAG = "serve"
_CLOSED = "This version is being unloaded."
_INIT_SIGNATURE = "__saved_model_init_op"
_STATUS_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}
# A TFRecord file of `PredictionLog`, as TF Serving reads it
# (tensorflow.org/tfx/serving/saved_model_warmup).
_WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"


def _session_config():
    """Made so that a version is soon ready beside one that is busy.

    Threads of its own: its many small ops need not queue behind the other's
    large ones. Grappler goes once over the graph: answers are a seventh faster
    for it, while loading and warming up takes 2 s longer, and 4 s where it goes
    twice, as is its habit (the quick start's export, two cores).
    """
    config = tf.compat.v1.ConfigProto(
        allow_soft_placement=True, use_per_session_threads=True
    )
    config.graph_options.rewrite_options.meta_optimizer_iterations = (
        rewriter_config_pb2.RewriterConfig.ONE
    )
    return config


@functools.cache
def _quieten_session() -> None:
    """Runs a first session where its log is not seen.

    A process' first session logs two lines about an optimisation that is
    off, whatever TF_CPP_MIN_LOG_LEVEL says. Only where that asks for quiet.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") == "0":
        return
    graph = tf.Graph()
    with graph.as_default():
        one = tf.constant(1)
    stderr = os.dup(2)
    with open(os.devnull, "wb") as devnull:
        os.dup2(devnull.fileno(), 2)
    try:
        with tf.compat.v1.Session(graph=graph) as session:
            session.run(one)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _load_scann_ops() -> None:
    """Registers ScaNN's ops without importing the package.

    Raises:
        InputError: if it is missing or made for another TensorFlow.
    """
    # find_spec on the parent does not run its __init__.
    spec = importlib.util.find_spec("scann")
    if spec is None:
        raise InputError(
            "The SavedModel searches with ScaNN, but the package scann is "
            "not installed: `pip install scann` (Linux x86-64 only), or "
            "export with an index of kind ivf."
        )
    (folder,) = spec.submodule_search_locations
    try:
        tf.load_op_library(f"{folder}/scann_ops/cc/_scann_ops.so")
    except tf.errors.OpError as error:
        raise InputError(
            f"The package scann does not load into TensorFlow "
            f"{tf.__version__}: {error.message}. Install the scann made for "
            "this TensorFlow."
        ) from error


def _names(names: Iterable[str]) -> str:
    return "{" + ", ".join(sorted(names)) + "}"


class SavedModelServable:
    """A SavedModel, loaded and ready for concurrent requests.

    Args:
        path: str. The base directory, whose highest version is loaded, or a
            version directory.

    Attributes:
        directory: str. The version directory.
        signature_defs: dict of name to `SignatureDef`, as in the SavedModel.
        card: dict. What `realm export` says of the model: `"index"` (kind),
            `"num_blocks"`, `"evidence_license"`, `"example_questions"`,
            `"files"`; empty if it has no card.
        evidence_license: str. As the card says, or `None`. TF Serving's
            protocol has no place for it, so a server does not tell.

    Raises:
        InputError: if there is no SavedModel, a file is not the one that was
            exported, or it needs ops that are not installed.
    """

    def __init__(self, path: str):
        self.directory, _ = find_version(path)
        self.card = export_card.read(self.directory)
        self.evidence_license = self.card.get("evidence_license")
        if self.card.get("index") == "scann":
            _load_scann_ops()
        _quieten_session()
        self._session = tf.compat.v1.Session(
            graph=tf.Graph(), config=_session_config()
        )
        # Its advice is to use TF 2's loader, which leaks searchers.
        logger = tf.get_logger()
        level = logger.level
        logger.setLevel(logging.ERROR)
        try:
            meta_graph = tf.compat.v1.saved_model.loader.load(
                self._session, [_TAG], self.directory
            )
        except (tf.errors.OpError, RuntimeError, ValueError, OSError) as error:
            self._session.close()
            raise InputError(
                f"The SavedModel {self.directory} does not load: {error}"
            ) from error
        finally:
            logger.setLevel(level)
        # Requests must not grow the graph.
        self._session.graph.finalize()
        self.signature_defs = dict(meta_graph.signature_def)

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
    ):
        """Refuses what `run` would refuse before it runs anything.

        Args:
            inputs: as of `run`.
            signature: as of `run`.
            output_filter: names of the outputs wanted. Defaults to all.

        Returns:
            `SignatureDef`.

        Raises:
            RequestError: if the request does not fit the signature.
        """
        name = signature or signatures.DEFAULT
        if name not in self.signature_defs or name == _INIT_SIGNATURE:
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
            dtype = tf.as_dtype(expected[key].dtype)
            sent = tf.as_dtype(value.dtype)
            shape = tf.TensorShape(expected[key].tensor_shape)
            if sent != dtype or not shape.is_compatible_with(value.shape):
                raise invalid(
                    f"input {key} must be {dtype.name} of shape {shape} (None "
                    f"is any size), received {sent.name} of {value.shape}."
                )
        for key in output_filter:
            if key not in definition.outputs:
                raise invalid(
                    f"output tensor alias not found in signature: {key}. "
                    "Outputs expected to be in the set "
                    f"{_names(definition.outputs)}."
                )
        return definition

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
        definition = self.check(inputs, signature=signature)
        options = None
        if timeout_seconds is not None:
            # 0 would mean no limit.
            options = tf.compat.v1.RunOptions(
                timeout_in_ms=max(1, int(timeout_seconds * 1000))
            )
        definition, inputs = self._filtered(
            signature or signatures.DEFAULT, definition, inputs
        )
        # Always all outputs: each subset would be a graph of its own in the
        # session, compiled on first use and kept for ever.
        fetches = {k: info.name for k, info in definition.outputs.items()}
        feeds = {definition.inputs[k].name: v for k, v in inputs.items()}
        session = self._session
        if session is None:
            raise unavailable(_CLOSED)
        try:
            values = session.run(fetches, feeds, options=options)
        except tf.errors.CancelledError as error:
            raise unavailable(_CLOSED) from error
        except tf.errors.OpError as error:
            raise RequestError(
                _STATUS_BY_NUMBER[error.error_code], error.message
            ) from error
        return {
            # A scalar string comes back as plain bytes.
            name: np.asarray(
                values[name],
                dtype=tf.as_dtype(
                    definition.outputs[name].dtype
                ).as_numpy_dtype,
            )
            for name in fetches
        }

    def _filtered(self, name, definition, inputs):
        """Definition and inputs of the same signature with a filter, if any.

        Each signature that has run is a graph of its own, which Grappler takes
        seconds for. An exact search gives the same, as fast, through the filter
        that lets all blocks be found; another kind searches less without one.
        """
        filtered = self.signature_defs.get(f"{name}{signatures.FILTERED}")
        if filtered is None or self.card.get("index") != "brute_force":
            return definition, inputs
        (questions,) = inputs.values()
        everything = np.full(questions.shape, b"", object)
        return filtered, {**inputs, signatures.FILTER: everything}

    def ask(self, questions: list[str], *, filter: str = "") -> list[Answer]:
        """Answers questions in one batch; see `client.RealmClient.ask`."""
        if not questions:
            return []
        texts = [question.encode("utf-8", "replace") for question in questions]
        inputs = {"question": np.array(texts, dtype=object)}
        signature = signatures.DEFAULT
        if filter:
            signature += signatures.FILTERED
            texts = [filter.encode("utf-8", "replace")] * len(questions)
            inputs[signatures.FILTER] = np.array(texts, dtype=object)
        try:
            outputs = self.run(inputs, signature=signature)
        except RequestError as error:
            raise RealmServerError(error.code.name, error.message) from error
        with checked(self.directory):
            return to_answers(
                {name: array.tolist() for name, array in outputs.items()},
                count=len(questions),
            )

    def warm_up(self) -> None:
        """Runs the model's warm-up requests, so that no user waits for it.

        The first run of a signature optimises its graph and builds the ScaNN
        searcher, about 1.5 s per million blocks.

        Raises:
            InputError: if the model fails on it, or its file of requests is
                no TFRecord file of Predict requests.
        """
        path = os.path.join(self.directory, _WARM_UP_FILE)
        if not Path(path).is_file():
            return
        try:
            for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
                log = prediction_log_pb2.PredictionLog.FromString(record)
                request = log.predict_log.request
                self.run(
                    {
                        name: decode_tensor(name, proto)
                        for name, proto in request.inputs.items()
                    },
                    signature=request.model_spec.signature_name,
                )
        except (tf.errors.OpError, DecodeError, RequestError) as error:
            raise InputError(
                f"The SavedModel {self.directory} fails on the warm-up "
                f"requests in {_WARM_UP_FILE}: {error}"
            ) from error

    def close(self) -> None:
        """Refuses new runs, cancels running ones, frees the memory."""
        session, self._session = self._session, None
        if session is None:
            return
        session.close()
        # With the session goes its graph.
        del session
        memory.hand_back()
