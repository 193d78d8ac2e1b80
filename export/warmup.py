"""Requests that a server runs on a new version before it answers anyone.

TF Serving replays assets.extra/tf_serving_warmup_requests, a TFRecord of
`PredictionLog`, when it loads a version: the first run of a signature
optimises its graph and builds ScaNN's searcher, which no user should wait for.
"""

import tensorflow as tf

from realm_tf.export import signatures

FILE = "assets.extra/tf_serving_warmup_requests"
# Not what embeds: few who ask questions do, and its first request takes a second
# or two.
_SIGNATURES = (signatures.DEFAULT, signatures.RETRIEVE)


def write(path: str, question: str, *, with_filter: bool) -> None:
    """Writes a warm-up request for each signature, of one row.

    One is enough, as one graph serves batches of any size, and more would
    take the time of those who are being served meanwhile.

    Args:
        path: str. The file.
        question: str.
        with_filter: bool. Whether there are signatures that take a filter.
    """
    from tensorflow_serving.apis import prediction_log_pb2

    with tf.io.TFRecordWriter(path) as writer:
        inputs = {name: {"question": question} for name in _SIGNATURES}
        if with_filter:
            for name in (signatures.DEFAULT, signatures.RETRIEVE):
                inputs[f"{name}{signatures.FILTERED}"] = {
                    "question": question,
                    signatures.FILTER: "",
                }
        for signature, strings in inputs.items():
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = signature
            for name, string in strings.items():
                request.inputs[name].CopyFrom(
                    tf.make_tensor_proto([string], tf.string)
                )
            writer.write(log.SerializeToString())
