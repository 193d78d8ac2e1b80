"""Requests that a server runs on a new version before it answers anyone.

TF Serving replays assets.extra/tf_serving_warmup_requests, a TFRecord of
`PredictionLog`, when it loads a version: the first run of a signature
optimises its graph and builds ScaNN's searcher, which no user should wait for.
"""

import tensorflow as tf

FILE = "assets.extra/tf_serving_warmup_requests"
# Strings in one request: one, and more than one. A larger batch takes longer
# and warms nothing else: one graph serves all sizes.
BATCH_SIZES = (1, 2)


def write(path: str, inputs: dict[str, dict[str, list]]) -> int:
    """Writes warm-up requests.

    Args:
        path: str. The file.
        inputs: dict. Signature to input name to strings; each signature is
            asked with as many of them as `BATCH_SIZES` say, over and over
            where they are fewer.

    Returns:
        int, how many requests.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    count = 0
    with tf.io.TFRecordWriter(path) as writer:
        for signature, strings in inputs.items():
            for batch_size in BATCH_SIZES:
                log = prediction_log_pb2.PredictionLog()
                request = log.predict_log.request
                request.model_spec.signature_name = signature
                for name, values in strings.items():
                    repeats = -(-batch_size // len(values))
                    request.inputs[name].CopyFrom(
                        tf.make_tensor_proto(
                            (values * repeats)[:batch_size], tf.string
                        )
                    )
                writer.write(log.SerializeToString())
                count += 1
    return count
