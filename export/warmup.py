"""Requests that a server runs on a new version before it answers anyone.

TF Serving replays assets.extra/tf_serving_warmup_requests, a TFRecord of
`PredictionLog`, when it loads a version: the first run of a signature
optimises its graph and builds ScaNN's searcher, which no user should wait for.
"""

import tensorflow as tf

FILE = "assets.extra/tf_serving_warmup_requests"
# Not embed_block: few who ask questions embed blocks, and its first request
# takes half a second.
_SIGNATURES = ("serving_default", "retrieve", "embed_query")


def write(path: str, question: str) -> None:
    """Writes a warm-up request for each signature, of one row.

    One is enough, as one graph serves batches of any size, and more would
    take the time of those who are being served meanwhile.

    Args:
        path: str. The file.
        question: str.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    with tf.io.TFRecordWriter(path) as writer:
        for signature in _SIGNATURES:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = signature
            request.inputs["question"].CopyFrom(
                tf.make_tensor_proto([question], tf.string)
            )
            writer.write(log.SerializeToString())
