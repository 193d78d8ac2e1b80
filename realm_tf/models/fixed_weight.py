"""Weights that are not trained, over memory that is there already."""

import mmap

import keras
import numpy as np

from realm_tf.models.precision import is_only_compiled

# Bytes, of TensorFlow's tensors; arrays in .npy files have as much.
_ALIGNMENT = 64


def fixed_weight(array: np.ndarray, name: str, **options) -> keras.Variable:
    """A variable of an array, as it is, which is not trained.

    See `shared`: where that shares memory, so does the variable, until it is
    assigned to.

    Args:
        array: array.
        name: str. Of the variable.
        **options: more arguments of `keras.Variable`.
    """
    values = shared(array)
    if is_only_compiled():
        values = keras.initializers.Zeros()
    variable = keras.Variable(
        values,
        shape=array.shape,
        dtype=array.dtype.name,
        trainable=False,
        # A model of mixed precision would cast a table every time.
        autocast=False,
        name=name,
        **options,
    )
    mark_as_given([variable])
    variable.layout = options.get("layout")
    return variable


def mark_as_given(variables: list) -> None:
    """Says of variables that they are in files of their own.

    Those of a corpus, of embeddings, of a model that teaches: no saved state
    of a run needs them.
    """
    for variable in variables:
        variable.is_given = True


def without_given(variables: list) -> list:
    """Those of some variables that are in no file of their own."""
    return [v for v in variables if not getattr(v, "is_given", False)]


def shared(array: np.ndarray):
    """An array's memory as a TensorFlow tensor, where it need not be copied.

    A tensor or a variable of an array is a copy, and for a moment two. A file
    that is mapped (`np.load` with `mmap_mode`), some of its rows, or all of
    `mapped_zeros` is used where it lies, and unused pages of a file need not be
    in memory. The file is not written to, whatever becomes of the tensor.

    Args:
        array: array. If it is shared, it must not change afterwards.

    Returns:
        Tensor, or the array, if it lies elsewhere, its file is gone, or the
        Keras backend is another.
    """
    if keras.backend.backend() != "tensorflow":
        return array
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if (
        not isinstance(owner.base, mmap.mmap)
        or array.dtype.isbuiltin != 1
        or not array.flags.c_contiguous
        or array.ctypes.data % _ALIGNMENT
    ):
        return array
    import tensorflow as tf

    if isinstance(owner, np.memmap) and not array.flags.writeable:
        # Private: the exchange format has no memory that is only read.
        offset = owner.offset + array.ctypes.data - owner.ctypes.data
        try:
            owner = np.memmap(
                owner.filename, array.dtype, "c", offset, array.shape
            )
        except (OSError, ValueError):
            # The file has been removed or replaced; its pages are still here.
            return array
    elif (
        owner.__array_interface__ != array.__array_interface__
        or not array.flags.writeable
    ):
        return array
    return tf.experimental.dlpack.from_dlpack(owner.__dlpack__())
