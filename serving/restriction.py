"""A request of somebody who may see a part of the corpus only."""

import dataclasses
from collections.abc import Mapping

import grpc
import numpy as np

from realm_tf.export import signatures
from realm_tf.serving.request_error import RequestError


def restricted(request, filter: str, signature_defs: Mapping):
    """The request that finds no block outside of a filter.

    Args:
        request: `PredictRequest`, its inputs as they are run.
        filter: str. What must hold of every block, whatever is asked for.
        signature_defs: mapping. Name to `SignatureDef` of the model.

    Returns:
        `PredictRequest` of the signature that takes a filter.

    Raises:
        RequestError: PERMISSION_DENIED, if there is none; INVALID_ARGUMENT, if
            the filter of the request is no text.
    """
    name = request.signature or signatures.DEFAULT
    if name in signatures.WITHOUT_BLOCKS:
        return request
    filtered = name
    if not name.endswith(signatures.FILTERED):
        filtered = f"{name}{signatures.FILTERED}"
    if filtered not in signature_defs:
        raise RequestError(
            grpc.StatusCode.PERMISSION_DENIED,
            f"This key may see what the filter {filter!r} lets it, and signature "
            f"{name!r} of this model takes none: export a corpus that was made "
            "with --fields.",
        )
    own = request.inputs.get(signatures.FILTER)
    sizes = [len(array) for array in request.inputs.values() if array.ndim]
    if own is None:
        own = np.full(max(sizes, default=0), b"", object)
    elif own.dtype != object:
        raise RequestError(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"input {signatures.FILTER} must be string, not {own.dtype}.",
        )
    # All conditions must hold, so that no other can take this one back.
    both = np.empty_like(own, object)
    both.flat = [filter.encode() + b";" + each for each in own.flat]
    return dataclasses.replace(
        request,
        signature=filtered,
        inputs={**request.inputs, signatures.FILTER: both},
    )
