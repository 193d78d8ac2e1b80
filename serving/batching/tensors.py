"""Requests' inputs to one batch and its outputs back to the requests."""

from collections.abc import Mapping

import grpc
import numpy as np

from realm_tf.serving.request_error import RequestError


def count_rows(inputs: Mapping[str, np.ndarray], definition) -> int | None:
    """The size of a request's batch dimension.

    Args:
        inputs: mapping of input name to array, fitting the signature.
        definition: `SignatureDef`.

    Returns:
        int, or `None` if the signature has no batch dimension: an input or
        an output whose first dimension is not left open.

    Raises:
        RequestError: if the inputs' sizes differ.
    """
    infos = [*definition.inputs.values(), *definition.outputs.values()]
    if not inputs or not all(_has_batch_dimension(info) for info in infos):
        return None
    sizes = {len(array) for array in inputs.values()}
    if len(sizes) > 1:
        # The words of TF Serving's batching_session.
        raise RequestError(
            grpc.StatusCode.INVALID_ARGUMENT,
            "Batching Run() input tensors must have equal 0th-dimension size",
        )
    return sizes.pop()


def _has_batch_dimension(info) -> bool:
    shape = info.tensor_shape
    return bool(shape.dim) and not shape.unknown_rank and shape.dim[0].size < 0


def rows_of(inputs: Mapping[str, np.ndarray]) -> int:
    """The rows of inputs that agree in them."""
    return len(next(iter(inputs.values())))


def shapes(inputs: Mapping[str, np.ndarray], *, sizes: bool) -> tuple:
    """What two requests must share to be merged.

    Args:
        inputs: mapping of input name to array.
        sizes: bool. Whether all dimensions but the first must be equal, or
            only their number.
    """
    return tuple(
        (name, inputs[name].shape[1:] if sizes else inputs[name].ndim)
        for name in sorted(inputs)
    )


def merge(
    requests: list[Mapping[str, np.ndarray]], *, size: int
) -> dict[str, np.ndarray]:
    """One batch of several requests.

    Args:
        requests: list of mappings of input name to array. Arrays of a name
            that differ in other than the first dimension are padded.
        size: int. Rows of the batch; those beyond the requests' are copies
            of the first.

    Returns:
        dict of input name to array of `size` rows.

    Raises:
        RequestError: if an array without values would have to be padded.
    """
    merged = {}
    for name in requests[0]:
        arrays = [request[name] for request in requests]
        shape = tuple(np.max([a.shape[1:] for a in arrays], axis=0, initial=0))
        arrays = [_pad(array, shape) for array in arrays]
        missing = size - sum(len(array) for array in arrays)
        arrays.extend([arrays[0][:1]] * missing)
        merged[name] = np.concatenate(arrays)
    return merged


def _pad(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`array` with rows of shape `shape`, filled with its first value."""
    if array.shape[1:] == shape:
        return array
    if not array.size:
        # The words of TF Serving's batching_util.cc, and its filling.
        raise RequestError(
            grpc.StatusCode.INVALID_ARGUMENT,
            "Got empty tensor in batch of non-empty tensors.",
        )
    padded = np.full((len(array), *shape), array.flat[0], dtype=array.dtype)
    padded[tuple(slice(n) for n in array.shape)] = array
    return padded


def split(
    outputs: Mapping[str, np.ndarray], rows: list[int], *, size: int
) -> list[dict[str, np.ndarray]]:
    """The outputs of each request.

    Args:
        outputs: mapping of output name to array of `size` rows.
        rows: list of int. The rows of each request.
        size: int. Rows of the batch, padding included.

    Returns:
        list of dict of output name to array.

    Raises:
        RequestError: if an output has another number of rows.
    """
    for array in outputs.values():
        # The words of TF Serving's batching_session.cc.
        if not array.ndim:
            raise RequestError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "Batched output tensor has 0 dimensions",
            )
        if len(array) != size:
            raise RequestError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "Batched output tensor's 0th dimension does not equal the "
                "sum of the 0th dimension sizes of the input tensors",
            )
    limits = np.cumsum([0, *rows])
    return [
        {name: array[start:limit] for name, array in outputs.items()}
        for start, limit in zip(limits[:-1], limits[1:], strict=True)
    ]


def concatenate(
    parts: list[dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """The outputs of a request that was run in parts."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
