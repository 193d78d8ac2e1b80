"""Texts of a NumPy object array, one after the other, with nothing run.

NumPy writes an array of byte strings as a header and a pickle of the whole:
Hugging Face's `block_records.npy` has 13,353,718 blocks. To load it with
`numpy.load(allow_pickle=True)` takes 16 GB of memory, and runs whatever its
author put into the pickle. Here the opcodes are read in their order: of the
list that holds the elements the texts are taken, and what is no text there is
refused.
"""

import array
import pickletools
from collections.abc import Iterator

import numpy as np

from realm_tf.articles import pages
from realm_tf.errors import InputError

_TEXTS = {
    f"{size}BIN{kind}"
    for size in ("SHORT_", "")
    for kind in ("BYTES", "UNICODE")
} | {"BINBYTES8", "BINUNICODE8"}
_PUTS = {"BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"BINGET", "LONG_BINGET"}
# Between the texts of a list.
_PASSED = {"MARK", "APPEND", "APPENDS"}
# In the memo: of anything that is no text.
_NO_TEXT = (1 << 64) - 1
_ADVICE = (
    "Nothing of it was run. Write the texts again with numpy.save of a "
    "one-dimensional array of bytes."
)


def read_pickled_texts(path: str) -> Iterator[bytes]:
    """The texts of an `.npy` file, in their order.

    In constant memory, but for 8 bytes a text: where each of them stands, as
    a text that is there twice is written once. The file is read from front
    to back, such texts are looked up. Nothing in it is run.

    Args:
        path: str. What `numpy.save` writes, by pickle protocol 3 to 5, of a
            one-dimensional object array of bytes or str. Local or remote.

    Yields:
        bytes, a text; of a str, its UTF-8 as it stands there.

    Raises:
        InputError: if the file is missing, is none of that or ends early,
            with the place in it. Texts before that place were given.
    """
    with pages.open_bytes(path) as file, pages.open_bytes(path) as again:
        count = _read_header(file, path)
        number = 0
        for text in _read_list(file, again, path):
            number += 1
            yield text
        if number != count:
            raise InputError(
                f"{path} has {number} texts, its header says {count}. {_ADVICE}"
            )


def _read_header(file, path):
    """The number of texts."""
    try:
        # Later versions are for longer headers than that of an object array.
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except ValueError as error:
        raise InputError(
            f"{path} is no .npy file: expected what numpy.save writes."
        ) from error
    if dtype.kind != "O" or len(shape) != 1:
        raise InputError(
            f"{path} has the shape {shape} and type {dtype}: expected a "
            "one-dimensional object array of bytes."
        )
    return shape[0]


def _read_list(file, again, path):
    """Yields the texts of the first list of a pickle."""
    # Of each object in the memo, where its text stands.
    memo = array.array("Q")
    last_text = _NO_TEXT
    # None before the list.
    in_list = None
    try:
        for opcode, argument, offset in pickletools.genops(file):
            if opcode.name in _PUTS:
                memo.append(last_text)
                continue
            if opcode.name == "FRAME":
                continue
            last_text = _NO_TEXT
            if opcode.name == "EMPTY_LIST" and in_list is None:
                in_list = True
            elif opcode.name in _TEXTS:
                last_text = offset
                if in_list:
                    yield _as_bytes(argument)
            elif not in_list or opcode.name in _PASSED:
                continue
            elif opcode.name in _GETS and memo[argument] != _NO_TEXT:
                again.seek(memo[argument])
                _, text, _ = next(pickletools.genops(again))
                yield _as_bytes(text)
            elif opcode.name == "TUPLE":
                in_list = False
            else:
                raise InputError(
                    f"{path} is no array of texts: found {opcode.name} (byte "
                    f"{offset}). {_ADVICE}"
                )
    except InputError:
        raise
    except (ValueError, IndexError) as error:
        raise InputError(
            f"{path} is truncated or no array of texts, at byte "
            f"{file.tell()}: {error}. {_ADVICE}"
        ) from error


def _as_bytes(text):
    return text if type(text) is bytes else text.encode(errors="surrogatepass")
