"""The requests that a SavedModel brings along to be warmed up with.

    assets.extra/tf_serving_warmup_requests

a TFRecord file of `PredictionLog`, as TF Serving reads it
(tensorflow.org/tfx/serving/saved_model_warmup).
"""

import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError
from realm_tf.serving.request_error import RequestError
from realm_tf.serving.tensors import decode_tensor

REQUESTS_FILE = "assets.extra/tf_serving_warmup_requests"
# WarmupConsts::kMaxNumRecords of TF Serving's saved_model_warmup_util.cc.
MAX_RECORDS = 1000


def has_requests(directory: str) -> bool:
    """Whether a version directory holds warm-up requests."""
    return Path(os.path.join(directory, REQUESTS_FILE)).is_file()


def read_requests(
    directory: str,
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """The requests, in their order.

    Args:
        directory: str. A version directory.

    Yields:
        tuple of signature name (empty: the default) and inputs by name.

    Raises:
        InputError: if the file is no TFRecord file of at most 1,000 Predict
            requests.
    """
    path = os.path.join(directory, REQUESTS_FILE)
    records = enumerate(tf.data.TFRecordDataset(path).as_numpy_iterator())
    try:
        for number, record in records:
            if number == MAX_RECORDS:
                raise InputError(
                    f"{path} holds more than {MAX_RECORDS} records: expected "
                    "at most as many, as in TF Serving."
                )
            yield _request(record, where=f"{path}, record {number}")
    except tf.errors.OpError as error:
        raise InputError(
            f"{path} cannot be read ({error.message}): expected a TFRecord "
            "file of PredictionLog."
        ) from error


def _request(record: bytes, *, where: str) -> tuple[str, dict]:
    try:
        log = prediction_log_pb2.PredictionLog.FromString(record)
    except DecodeError as error:
        raise InputError(f"{where} is no PredictionLog ({error}).") from error
    kind = log.WhichOneof("log_type")
    if kind != "predict_log":
        raise InputError(
            f"{where} is of kind {kind}: expected predict_log, the only "
            "kind of request that REALM's signatures take."
        )
    request = log.predict_log.request
    try:
        inputs = {
            name: decode_tensor(name, proto)
            for name, proto in request.inputs.items()
        }
    except RequestError as error:
        raise InputError(f"{where} is broken: {error.message}") from error
    return request.model_spec.signature_name, inputs
