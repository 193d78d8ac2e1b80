import random

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.framework import types_pb2

from realm_tf.serving.request_error import RequestError
from realm_tf.serving.tensors import decode_tensor
from realm_tf.serving.tensors import encode_tensor

ARRAYS = [
    np.array([[b"a", b""], [b"\xff", b"long" * 100]], dtype=object),
    np.array(b"scalar", dtype=object),
    np.array([1.5, float("-inf")], np.float32),
    np.array([[1.5]], np.float64),
    np.array([2**31 - 1, -(2**31)], np.int32),
    np.array([2**63 - 1, -(2**63)], np.int64),
    np.array([True, False]),
    np.array([1.5, 2.5], np.float16),
    np.array([0, 255], np.uint8),
    np.zeros([0, 3], np.int64),
]


@pytest.mark.parametrize("array", ARRAYS)
def test_tensors_survive_the_wire(array):
    proto = encode_tensor(array)
    np.testing.assert_array_equal(tf.make_ndarray(proto), array)
    decoded = decode_tensor("x", proto)
    assert decoded.dtype == array.dtype
    np.testing.assert_array_equal(decoded, array)


def test_hostile_tensors_are_refused_or_read():
    """No dtype, shape or content raises anything but `RequestError`."""
    generator = random.Random(0)
    sizes = [-1, 0, 1, 2, 3, 1 << 31, 1 << 62]
    outcomes = {"read": 0, "refused": 0}
    for _ in range(2000):
        proto = tensor_pb2.TensorProto()
        proto.dtype = generator.choice(types_pb2.DataType.values())
        for _ in range(generator.randrange(4)):
            proto.tensor_shape.dim.add(size=generator.choice(sizes))
        proto.tensor_shape.unknown_rank = generator.random() < 0.1
        if generator.random() < 0.5:
            length = generator.randrange(20)
            proto.tensor_content = generator.randbytes(length)
        else:
            count = generator.randrange(4)
            proto.string_val.extend([b"x"] * count)
            proto.int_val.extend([generator.randrange(99)] * count)
            proto.float_val.extend([0.5] * count)
        try:
            decode_tensor("x", proto)
            outcomes["read"] += 1
        except RequestError as error:
            assert error.code.name == "INVALID_ARGUMENT"
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 50
