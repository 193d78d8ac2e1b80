"""Warm-up requests as TF Serving reads them."""

import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from realm_tf.export import warmup


def _requests(path):
    for record in tf.data.TFRecordDataset(path):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        yield (
            request.model_spec.signature_name,
            {
                name: [s.decode() for s in tf.make_ndarray(proto)]
                for name, proto in request.inputs.items()
            },
        )


def test_the_file_of_an_export_asks_what_users_ask(exported, asked):
    found = list(_requests(f"{exported}/2/{warmup.FILE}"))
    question = {"question": asked[:1]}
    assert found == [("serving_default", question), ("retrieve", question)]
