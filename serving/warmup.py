"""The requests that a SavedModel brings along to be warmed up with.

    assets.extra/tf_serving_warmup_requests

a TFRecord file of `PredictionLog`, as TF Serving reads it
(tensorflow.org/tfx/serving/saved_model_warmup) and `realm export` writes it.
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


def read_requests(
    directory: str,
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """The requests, in their order; none if there is no such file.

    Args:
        directory: str. A version directory.

    Yields:
        tuple of signature name (empty: the default) and inputs by name.

    Raises:
        InputError: if the file is no TFRecord file of Predict requests.
    """
    path = os.path.join(directory, REQUESTS_FILE)
    if not Path(path).is_file():
        return
    try:
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            request = log.predict_log.request
            inputs = {
                name: decode_tensor(name, proto)
                for name, proto in request.inputs.items()
            }
            yield request.model_spec.signature_name, inputs
    except (tf.errors.OpError, DecodeError, RequestError) as error:
        raise InputError(
            f"{path} cannot be read ({error}): expected a TFRecord file of "
            "PredictionLog, as `realm export` writes it."
        ) from error
