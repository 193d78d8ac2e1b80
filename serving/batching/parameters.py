"""TF Serving's batching_parameters.txt.

    max_batch_size { value: 32 }
    batch_timeout_micros { value: 2000 }
    num_batch_threads { value: 2 }

The text form of `BatchingParameters` in tensorflow/serving,
tensorflow_serving/servables/tensorflow/session_bundle_config.proto, which is
not among the protos of tensorflow-serving-api.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory
from google.protobuf import text_format

from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError
from realm_tf.serving import locate

_PACKAGE = "realm.batching"
# Field: type. A wrapper is a message with the one field `value`. Their
# numbers do not matter to the text form.
_FIELDS = {
    "max_batch_size": "Int64Value",
    "batch_timeout_micros": "Int64Value",
    "max_enqueued_batches": "Int64Value",
    "num_batch_threads": "Int64Value",
    "thread_pool_name": "StringValue",
    "allowed_batch_sizes": "repeated int64",
    "pad_variable_length_inputs": "bool",
    "enable_large_batch_splitting": "BoolValue",
    "max_execution_batch_size": "Int64Value",
}
_WRAPPERS = {
    "Int64Value": "int64",
    "StringValue": "string",
    "BoolValue": "bool",
}


@dataclass(frozen=True)
class BatchingParameters:
    """How concurrent requests are merged.

    Args:
        max_batch_size: int. The most rows of one request. Defaults to 1000,
            as in `SharedBatchScheduler::QueueOptions`.
        batch_timeout_micros: int. How long, in microseconds, a batch may
            wait to be filled. Defaults to 0, as there: a batch is what came
            in while the threads were busy.
        max_enqueued_batches: int. The most batches of a signature that wait.
            Defaults to 10, as there.
        num_batch_threads: int. The most batches that run at once. Defaults
            to the number of CPUs, as there.
        thread_pool_name: str. A label of the metrics. Defaults to
            `"batch_threads"`, as there.
        allowed_batch_sizes: tuple of int, ascending, the last of them
            `max_batch_size`. A batch is filled to the next of them with
            copies of its first row. Defaults to none: any size.
        pad_variable_length_inputs: bool. Whether requests whose inputs
            differ in other than the first dimension are padded, each with
            its own first value, and merged. Defaults to `False`.
        enable_large_batch_splitting: bool. Whether a request of more than
            `max_execution_batch_size` rows is run in parts. Defaults to
            `False`.
        max_execution_batch_size: int. The most rows of a batch. Defaults to
            `max_batch_size`.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = os.cpu_count() or 1
    thread_pool_name: str = "batch_threads"
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False
    enable_large_batch_splitting: bool = False
    max_execution_batch_size: int | None = None

    @property
    def max_rows(self) -> int:
        """The most rows of a batch."""
        if self.max_execution_batch_size is None:
            return self.max_batch_size
        return self.max_execution_batch_size

    def padded_size(self, rows: int) -> int:
        """The allowed batch size that `rows` rows are filled up to."""
        return next((s for s in self.allowed_batch_sizes if s >= rows), rows)


def _set_type(field, type_name: str) -> None:
    types = descriptor_pb2.FieldDescriptorProto.Type
    if type_name in _WRAPPERS:
        field.type = types.Value("TYPE_MESSAGE")
        field.type_name = f".{_PACKAGE}.{type_name}"
    else:
        field.type = types.Value(f"TYPE_{type_name.upper()}")


def _build_message() -> type:
    """The message class of `_FIELDS`."""
    file = descriptor_pb2.FileDescriptorProto(
        name="realm/batching.proto", package=_PACKAGE, syntax="proto3"
    )
    schema = {
        "BatchingParameters": _FIELDS,
        **{name: {"value": of_type} for name, of_type in _WRAPPERS.items()},
    }
    labels = descriptor_pb2.FieldDescriptorProto
    for message_name, fields in schema.items():
        message = file.message_type.add(name=message_name)
        for number, (name, type_name) in enumerate(fields.items(), start=1):
            field = message.field.add(name=name, number=number)
            repeated, _, of_type = type_name.rpartition(" ")
            field.label = (
                labels.LABEL_REPEATED if repeated else labels.LABEL_OPTIONAL
            )
            _set_type(field, of_type)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{_PACKAGE}.BatchingParameters")
    )


_Message = _build_message()


def read(path: str) -> BatchingParameters:
    """The parameters of a file.

    Args:
        path: str. TF Serving's batching_parameters.txt, local or remote.

    Raises:
        InputError: if it is not there, is no text form of the message, or
            its values contradict each other.
    """
    try:
        text = Path(path).read_text()
    except (*locate.storage_errors(path), UnicodeDecodeError) as error:
        raise InputError(
            f"--batching-parameters-file {path} cannot be read ({error}): "
            "expected the text form of TF Serving's BatchingParameters."
        ) from error
    try:
        message = text_format.Parse(text, _Message())
    except text_format.ParseError as error:
        raise InputError(
            f"{path}, line {error.GetLine()}, does not parse ({error}): "
            f"expected fields of BatchingParameters ({', '.join(_FIELDS)}), "
            "such as `max_batch_size { value: 32 }`."
        ) from error
    values = {"allowed_batch_sizes": tuple(message.allowed_batch_sizes)}
    for name, kind in _FIELDS.items():
        if kind in _WRAPPERS and message.HasField(name):
            values[name] = getattr(message, name).value
        elif kind == "bool":
            values[name] = getattr(message, name)
    parameters = BatchingParameters(**values)
    for problem in _problems(parameters):
        raise InputError(f"{path}: {problem}")
    return parameters


def _problems(parameters: BatchingParameters) -> Iterable[str]:
    for name, least in (
        ("max_batch_size", 1),
        ("batch_timeout_micros", 0),
        ("max_enqueued_batches", 1),
        ("num_batch_threads", 1),
        ("max_rows", 1),
    ):
        value = getattr(parameters, name)
        if value < least:
            field = "max_execution_batch_size" if name == "max_rows" else name
            yield f"{field} is {value}: expected at least {least}."
    sizes = parameters.allowed_batch_sizes
    if sizes and (sizes[0] < 1 or list(sizes) != sorted(set(sizes))):
        yield (
            f"allowed_batch_sizes {list(sizes)} are not ascending numbers "
            "from 1 on; order them."
        )
    if sizes and sizes[-1] != parameters.max_batch_size:
        yield (
            "Last entry in allowed_batch_sizes must match max_batch_size; "
            f"last entry was {sizes[-1]}; expected "
            f"{parameters.max_batch_size}."
        )
    if parameters.max_execution_batch_size is None:
        return
    if not parameters.enable_large_batch_splitting:
        yield (
            "max_execution_batch_size needs enable_large_batch_splitting "
            "{ value: true }; add that or remove it."
        )
    elif parameters.max_execution_batch_size > parameters.max_batch_size:
        yield (
            "max_execution_batch_size is "
            f"{parameters.max_execution_batch_size}: expected at most "
            f"max_batch_size ({parameters.max_batch_size})."
        )
