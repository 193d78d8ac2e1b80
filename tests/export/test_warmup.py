"""Warm-up requests as TF Serving reads them."""

import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from export import warmup


def test_each_signature_is_asked_alone_and_in_a_batch(tmp_path):
    path = str(tmp_path / "requests")
    questions = ["who?", "où?", "why?"]
    count = warmup.write(
        path,
        {
            "retrieve": {"question": questions},
            "embed_block": {"title": ["A"], "text": ["b"]},
        },
    )
    logs = [
        prediction_log_pb2.PredictionLog.FromString(record.numpy())
        for record in tf.data.TFRecordDataset(path)
    ]
    assert count == len(logs) == 4
    asked = []
    for log in logs:
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        asked.append(
            (
                request.model_spec.signature_name,
                {
                    name: [s.decode() for s in tf.make_ndarray(proto)]
                    for name, proto in request.inputs.items()
                },
            )
        )
    assert asked == [
        ("retrieve", {"question": ["who?"]}),
        ("retrieve", {"question": (questions * 2)[:2]}),
        ("embed_block", {"title": ["A"], "text": ["b"]}),
        ("embed_block", {"title": ["A"] * 2, "text": ["b"] * 2}),
    ]


def test_the_file_of_an_export_asks_every_signature(exported):
    names = [
        prediction_log_pb2.PredictionLog.FromString(
            record.numpy()
        ).predict_log.request.model_spec.signature_name
        for record in tf.data.TFRecordDataset(f"{exported}/1/{warmup.FILE}")
    ]
    for name in ("serving_default", "retrieve", "embed_query", "embed_block"):
        assert names.count(name) == len(warmup.BATCH_SIZES)
