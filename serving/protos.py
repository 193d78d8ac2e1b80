"""TensorFlow Serving's generated messages and services.

Importing them from here leaves TensorFlow alone; `client` needs still less.
"""

from realm_tf.export.runtime import without_tensorflow

with without_tensorflow():
    from tensorflow.core.framework import tensor_pb2  # noqa: F401
    from tensorflow_serving.apis import get_model_metadata_pb2  # noqa: F401
    from tensorflow_serving.apis import get_model_status_pb2  # noqa: F401
    from tensorflow_serving.apis import model_pb2  # noqa: F401
    from tensorflow_serving.apis import model_service_pb2_grpc  # noqa: F401
    from tensorflow_serving.apis import predict_pb2  # noqa: F401
    from tensorflow_serving.apis import prediction_log_pb2  # noqa: F401
    from tensorflow_serving.apis import prediction_service_pb2_grpc  # noqa: F401
