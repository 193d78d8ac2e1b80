"""Records as a `tf.data` pipeline."""

import pyarrow as pa
import tensorflow as tf


def dataset(table: pa.Table) -> tf.data.Dataset:
    """The rows of a table as dicts of tensors, in their order.

    Args:
        table: `pyarrow.Table` of a class in `artifacts.schema`.
    """
    return tf.data.Dataset.from_generator(
        lambda: map(_tensors, table.to_batches()),
        output_signature={
            field.name: _spec(field.type) for field in table.schema
        },
    ).unbatch()


def _spec(type):
    if pa.types.is_list(type):
        return tf.RaggedTensorSpec([None, None], _dtype(type.value_type))
    return tf.TensorSpec([None], _dtype(type))


def _dtype(type):
    return tf.string if pa.types.is_string(type) else tf.as_dtype(str(type))


def _tensors(batch):
    return {
        name: _tensor(array)
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    }


def _tensor(array):
    if not pa.types.is_list(array.type):
        return tf.constant(array.to_pylist(), _dtype(array.type))
    return tf.RaggedTensor.from_row_lengths(
        _tensor(array.flatten()),
        array.value_lengths().to_numpy().astype("int64"),
    )
