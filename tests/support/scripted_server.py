"""A gRPC server that does as it is told."""

from concurrent import futures

import grpc
import numpy as np
from tensorflow_serving.apis import predict_pb2

from realm_tf.serving.tensors import encode_tensor


class Script(grpc.GenericRpcHandler):
    """A server that fails as told and then gives one response.

    Keeps what it was sent: (method, request bytes, metadata, seconds left).
    """

    def __init__(self, *codes, respond=lambda method, request: b""):
        self.codes = list(codes)
        self.respond = respond
        self.calls = []

    def service(self, details):
        def handle(request, context):
            self.calls.append(
                (
                    details.method,
                    request,
                    dict(context.invocation_metadata()),
                    context.time_remaining(),
                )
            )
            if self.codes:
                context.abort(self.codes.pop(0), "as told")
            return self.respond(details.method, request)

        return grpc.unary_unary_rpc_method_handler(handle)

    def __enter__(self):
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers([self])
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.target = f"127.0.0.1:{port}"
        return self

    def __exit__(self, *exception_info):
        self._server.stop(0).wait()


def echo(method, request):
    """Every question is its own answer, without evidence."""
    questions = list(
        predict_pb2.PredictRequest.FromString(request)
        .inputs["question"]
        .string_val
    )
    response = predict_pb2.PredictResponse()
    of_each = {"answer": np.array(questions, object)}
    for name in ("title", "text", "url"):
        of_each[name] = np.array([b""] * len(questions), object)
    for name in ("block_id", "start", "limit"):
        of_each[name] = np.zeros(len(questions), np.int64)
    for name in ("score", "confidence"):
        of_each[name] = np.zeros(len(questions), np.float32)
    lists = {
        "nbest": ("answer", "score"),
        "candidate": ("block_id", "title", "text", "answer", "log_prob"),
    }
    for prefix, names in lists.items():
        for name in names:
            of_each[f"{prefix}_{name}"] = np.zeros(
                (len(questions), 0), np.float32
            )
    for name, values in of_each.items():
        response.outputs[name].CopyFrom(encode_tensor(values))
    return response.SerializeToString()
