"""A session of TensorFlow's C API, through ctypes.

The package tensorflow brings it in a shared library (tensorflow/c/c_api.h). It
loads and runs a SavedModel without TensorFlow's Python code, whose import takes
longer than both. Imports nothing of realm, as `runtime`.
"""

import contextlib
import ctypes
import functools
import importlib.util
import math
import os
from collections.abc import Iterator

import ml_dtypes
import numpy as np

# numpy's dtype by number in tensorflow/core/framework/types.proto; strings are
# bytes in arrays of dtype object.
DTYPES = {
    number: np.dtype(kind)
    for number, kind in {
        **{1: np.float32, 2: np.float64, 3: np.int32, 4: np.uint8},
        **{5: np.int16, 6: np.int8, 7: object, 8: np.complex64},
        **{9: np.int64, 10: np.bool_, 14: ml_dtypes.bfloat16},
        **{17: np.uint16, 18: np.complex128, 19: np.float16},
        **{22: np.uint32, 23: np.uint64},
    }.items()
}
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
STRING = np.dtype(object)
# Canonical status codes, as of gRPC.
CANCELLED, INVALID_ARGUMENT = 1, 3
TAG = "serve"

_TYPES = {
    **{"p": ctypes.c_void_p, "t": ctypes.c_char_p, "i": ctypes.c_int},
    **{"l": ctypes.c_int64, "z": ctypes.c_size_t, "-": None},
}
# Name: the types of the result and of the arguments, a letter each.
_FUNCTIONS = {
    "TF_NewStatus": "p",
    "TF_DeleteStatus": "-p",
    "TF_GetCode": "ip",
    "TF_Message": "tp",
    "TF_LoadLibrary": "ptp",
    "TF_DeleteLibraryHandle": "-p",
    "TF_NewSessionOptions": "p",
    "TF_DeleteSessionOptions": "-p",
    "TF_SetConfig": "-ptzp",
    "TF_NewGraph": "p",
    "TF_DeleteGraph": "-p",
    "TF_NewOperation": "pptt",
    "TF_FinishOperation": "ppp",
    "TF_GraphOperationByName": "ppt",
    "TF_NewBuffer": "p",
    "TF_NewBufferFromString": "ptz",
    "TF_DeleteBuffer": "-p",
    "TF_NewSession": "pppp",
    "TF_LoadSessionFromSavedModel": "ppptpippp",
    "TF_SessionRun": "-ppppippipipp",
    "TF_CloseSession": "-pp",
    "TF_DeleteSession": "-pp",
    "TF_AllocateTensor": "pipiz",
    "TF_DeleteTensor": "-p",
    "TF_TensorData": "pp",
    "TF_TensorType": "ip",
    "TF_NumDims": "ip",
    "TF_Dim": "lpi",
    "TF_StringInit": "-p",
    "TF_StringCopy": "-ptz",
    "TF_StringDealloc": "-p",
    "TF_StringGetDataPointer": "pp",
    "TF_StringGetSize": "zp",
}
# sizeof(TF_TString).
_STRING_SIZE = 24


class RunError(Exception):
    """A call of TensorFlow that failed.

    Args:
        code: int. Canonical status code, as of gRPC.
        message: str.
    """

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


class _Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("deallocator", ctypes.c_void_p),
    ]


class _Output(ctypes.Structure):
    """TF_Output: where a tensor is in a graph."""

    _fields_ = [("operation", ctypes.c_void_p), ("index", ctypes.c_int)]


@functools.cache
def library() -> ctypes.CDLL | None:
    """TensorFlow's C API, or `None` if what is installed lacks it."""
    # find_spec does not run the package's __init__.
    folder = os.path.dirname(importlib.util.find_spec("tensorflow").origin)
    try:
        found = ctypes.CDLL(os.path.join(folder, "libtensorflow_cc.so.2"))
        for name, letters in _FUNCTIONS.items():
            result, *arguments = (_TYPES[letter] for letter in letters)
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    # Unless errors alone are wanted in its log.
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") != "0":
        _run_unheard(found)
    return found


def _run_unheard(api):
    """Runs a session with its log hidden.

    A process' first session logs two lines about an optimisation that is off,
    whatever TF_CPP_MIN_LOG_LEVEL says.
    """
    stderr = os.dup(2)
    with open(os.devnull, "wb") as devnull:
        os.dup2(devnull.fileno(), 2)
    options, graph = api.TF_NewSessionOptions(), api.TF_NewGraph()
    nothing = api.TF_NewOperation(graph, b"NoOp", b"nothing")
    try:
        with _status(api) as status:
            target = api.TF_FinishOperation(nothing, status)
        with _status(api) as status:
            session = api.TF_NewSession(graph, options, status)
        targets = _pointers([target])
        none = None, None, 0
        with _status(api) as status:
            api.TF_SessionRun(
                session, None, *none, *none, targets, 1, None, status
            )
        with _status(api) as status:
            api.TF_DeleteSession(session, status)
    finally:
        api.TF_DeleteGraph(graph)
        api.TF_DeleteSessionOptions(options)
        os.dup2(stderr, 2)
        os.close(stderr)


@contextlib.contextmanager
def _status(api) -> Iterator[int]:
    """A TF_Status for one call.

    Raises:
        RunError: if the call fails.
    """
    status = api.TF_NewStatus()
    try:
        yield status
        code = api.TF_GetCode(status)
        if code:
            message = api.TF_Message(status).decode("utf-8", "replace")
            raise RunError(code, message)
    finally:
        api.TF_DeleteStatus(status)


def _pointers(values):
    return (ctypes.c_void_p * len(values))(*values)


class CSession:
    """A SavedModel in a session of the C API.

    Args:
        directory: str. The version directory.
        config: `ConfigProto`.

    Attributes:
        meta_graph: bytes. `MetaGraphDef`.

    Raises:
        RunError: if it does not load.
    """

    def __init__(self, directory: str, config):
        api = self._api = library()
        given = config.SerializeToString()
        options, buffer = api.TF_NewSessionOptions(), api.TF_NewBuffer()
        self._graph = api.TF_NewGraph()
        try:
            with _status(api) as status:
                api.TF_SetConfig(options, given, len(given), status)
            tags = (ctypes.c_char_p * 1)(TAG.encode())
            with _status(api) as status:
                self._session = api.TF_LoadSessionFromSavedModel(
                    *(options, None, os.fsencode(directory), tags, 1),
                    *(self._graph, buffer, status),
                )
            found = _Buffer.from_address(buffer)
            self.meta_graph = ctypes.string_at(found.data, found.length)
        finally:
            # It lasts as long as its session.
            api.TF_DeleteGraph(self._graph)
            api.TF_DeleteBuffer(buffer)
            api.TF_DeleteSessionOptions(options)

    @staticmethod
    def load_library(path: str) -> None:
        """Registers the ops of a library.

        Raises:
            RunError: if it is missing or made for another TensorFlow.
        """
        api = library()
        with _status(api) as status:
            handle = api.TF_LoadLibrary(os.fsencode(path), status)
        # The library stays.
        api.TF_DeleteLibraryHandle(handle)

    def run(self, fetches: list, feeds: dict, options) -> list[np.ndarray]:
        """The values of tensors.

        Args:
            fetches: list of str. Names of tensors.
            feeds: dict of tensor name to array of the tensor's dtype; strings
                as bytes in an array of dtype object.
            options: `RunOptions`.

        Raises:
            RunError: if the graph fails, time runs out or `cancel` ends it.
        """
        api = self._api
        outputs = (ctypes.c_void_p * len(fetches))()
        given = options.SerializeToString()
        buffer = api.TF_NewBufferFromString(given, len(given))
        inputs = []
        try:
            for array in feeds.values():
                inputs.append(_to_tensor(api, array))
            with _status(api) as status:
                api.TF_SessionRun(
                    *(self._session, buffer),
                    *(self._places(feeds), _pointers(inputs), len(inputs)),
                    *(self._places(fetches), outputs, len(outputs)),
                    *(None, 0, None, status),
                )
            return [_to_array(api, tensor) for tensor in outputs]
        finally:
            for tensor in inputs:
                # An output may share them; its strings have been copied.
                _free_strings(api, tensor)
            for tensor in (*inputs, *filter(None, outputs)):
                api.TF_DeleteTensor(tensor)
            api.TF_DeleteBuffer(buffer)

    def cancel(self) -> None:
        """Ends what runs, and refuses more."""
        with _status(self._api) as status:
            self._api.TF_CloseSession(self._session, status)

    def free(self) -> None:
        """Frees all; nothing may run any more."""
        with _status(self._api) as status:
            self._api.TF_DeleteSession(self._session, status)

    def _places(self, names):
        found = (_Output * len(names))()
        for place, name in zip(found, names, strict=True):
            operation, _, index = name.partition(":")
            place.index = int(index or 0)
            place.operation = self._api.TF_GraphOperationByName(
                self._graph, operation.encode()
            )
            if not place.operation:
                raise RunError(
                    INVALID_ARGUMENT, f"The graph has no tensor {name}."
                )
        return found


def _to_tensor(api, array):
    """A TF_Tensor with the values of an array."""
    is_string = array.dtype == STRING
    size = array.size * (_STRING_SIZE if is_string else array.itemsize)
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    tensor = api.TF_AllocateTensor(
        NUMBERS[array.dtype], shape, array.ndim, size
    )
    if is_string:
        places = _string_places(api, tensor, array.size)
        for place, text in zip(places, array.flat, strict=True):
            api.TF_StringInit(place)
            api.TF_StringCopy(place, text, len(text))
    elif size:
        # It may be a view.
        array = np.ascontiguousarray(array)
        ctypes.memmove(api.TF_TensorData(tensor), array.ctypes.data, size)
    return tensor


def _to_array(api, tensor):
    """The values of a TF_Tensor, copied."""
    shape = [api.TF_Dim(tensor, i) for i in range(api.TF_NumDims(tensor))]
    array = np.empty(shape, DTYPES[api.TF_TensorType(tensor)])
    if array.dtype == STRING:
        places = _string_places(api, tensor, array.size)
        for number, place in enumerate(places):
            array.flat[number] = ctypes.string_at(
                api.TF_StringGetDataPointer(place), api.TF_StringGetSize(place)
            )
    elif array.size:
        data = api.TF_TensorData(tensor)
        ctypes.memmove(array.ctypes.data, data, array.nbytes)
    return array


def _free_strings(api, tensor):
    """Frees what strings hold: a tensor that was allocated here does not."""
    if DTYPES[api.TF_TensorType(tensor)] == STRING:
        sizes = (api.TF_Dim(tensor, i) for i in range(api.TF_NumDims(tensor)))
        for place in _string_places(api, tensor, math.prod(sizes)):
            api.TF_StringDealloc(place)


def _string_places(api, tensor, count):
    """Addresses of the strings of a TF_Tensor."""
    # Of an empty one there is none.
    first = api.TF_TensorData(tensor) or 0
    return range(first, first + count * _STRING_SIZE, _STRING_SIZE)
