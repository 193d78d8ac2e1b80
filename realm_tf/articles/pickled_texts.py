"""Texts of a NumPy object array, one after the other, with nothing run.

NumPy writes an array of byte strings as a header and a pickle of the whole:
Hugging Face's `block_records.npy` has 13,353,718 blocks. To load it with
`numpy.load(allow_pickle=True)` takes 16 GB of memory, and runs whatever its
author put into the pickle. Here the opcodes that NumPy writes for such an
array are read in their order, and any other is refused.
"""

import array
import contextlib
import pickletools
import re
from collections.abc import Iterator

from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError

# Bytes of the header's length, by the beginning of the file.
_VERSIONS = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}
_HEADER = re.compile(
    rb"\{'descr': '\|O', 'fortran_order': (?:False|True), "
    rb"'shape': \((\d{1,18}),\), \} *\n"
)
# Bytes. Ours: what is damaged must not fill the memory.
_MAX_HEADER, _MAX_TEXT = 1 << 16, 1 << 28

_TEXTS = {
    f"{size}BIN{kind}"
    for size in ("SHORT_", "")
    for kind in ("BYTES", "UNICODE")
} | {"BINBYTES8", "BINUNICODE8"}
_NUMBERS = {"BININT1", "BININT2", "BININT"}
_PUTS = {"BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"BINGET", "LONG_BINGET"}
_TRUTHS = {"NEWFALSE": 0, "NEWTRUE": 1}
# In the memo: of anything that is no text.
_NO_TEXT = (1 << 64) - 1
# What an array is made of, as protocol 3 writes it.
_GLOBALS = {
    "numpy ndarray",
    "numpy dtype",
    "numpy.core.multiarray _reconstruct",
    "numpy._core.multiarray _reconstruct",
}
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
    with _open(path) as file, _open(path) as again:
        count, offset = _read_header(file, path)
        pickled = _Pickle(file, again, offset, path)
        pickled.read_start()
        number = 0
        for text in pickled.read_list():
            if number == count:
                pickled.refuse(f"has more than the {count} texts of its header")
            number += 1
            yield text
        if number != count:
            pickled.refuse(f"has {number} texts, its header says {count}")
        pickled.read_end()


@contextlib.contextmanager
def _open(path):
    if not Path(path).is_file():
        raise InputError(f"{path} is missing: expected an .npy file of texts.")
    try:
        with Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror or error}."
        ) from error


def _read_header(file, path):
    """The number of texts, and where the pickle begins."""
    magic = file.read(8)
    if magic not in _VERSIONS:
        raise InputError(
            f"{path} is no .npy file: expected what numpy.save writes."
        )
    size = file.read(_VERSIONS[magic])
    length = int.from_bytes(size, "little")
    header = file.read(min(length, _MAX_HEADER))
    match = _HEADER.fullmatch(header)
    if len(header) != length or not match:
        raise InputError(
            f"{path} has the header {header.strip()[:200]!r}: expected that "
            "of a one-dimensional object array of bytes."
        )
    return int(match[1]), len(magic) + len(size) + length


class _Limited:
    """A file of which nothing large is read at once; for `pickletools`."""

    def __init__(self, file):
        self._file = file
        self.tell = file.tell

    def read(self, size):
        if size > _MAX_TEXT:
            raise ValueError(f"a text of {size} bytes")
        return self._file.read(size)

    def readline(self):
        return self._file.readline(_MAX_HEADER)


class _Pickle:
    """A pickle of texts as values: bytes, int, or the name of an opcode.

    A global is its module and name as a str with a space. What stands for no
    value of its own, as a put into the memo, is followed here.

    Args:
        file: binary file, at the beginning of the pickle.
        again: binary file. The same, to look up texts.
        offset: int. Bytes before the pickle.
        path: str. For messages.
    """

    def __init__(self, file, again, offset, path):
        self._file = file
        self._again = again
        self._path = path
        # Of the opcode that was read last.
        self._offset = offset
        self._texts = array.array("Q")
        self._looked_up = (None, None)
        self._values = self._read_values()

    def refuse(self, what):
        raise InputError(
            f"{self._path} {what} (byte {self._offset}). {_ADVICE}"
        )

    def read_start(self):
        """Reads up to the list of texts: the array without its elements."""
        protocol = next(self._values)
        if type(protocol) is not int:
            self.refuse("has no pickle behind its header")
        if not 3 <= protocol <= 5:
            self.refuse(
                f"is pickled by protocol {protocol}, expected 3, 4 or 5"
            )
        for value in self._values:
            if value == "EMPTY_LIST":
                return
            if value == "STOP" or (
                type(value) is str and " " in value and value not in _GLOBALS
            ):
                self._refuse_value(value)

    def read_list(self):
        """Yields the texts, up to the end of the list."""
        values = self._values
        for value in values:
            if value == "MARK":
                for text in values:
                    if type(text) is not bytes:
                        break
                    yield text
                if text != "APPENDS":
                    self._refuse_value(text)
            elif type(value) is bytes:
                yield value
                self._expect("APPEND")
            elif value == "TUPLE":
                return
            else:
                self._refuse_value(value)

    def read_end(self):
        self._expect("BUILD")
        self._expect("STOP")
        if self._file.read(1):
            self.refuse("goes on behind its array")

    def _expect(self, expected):
        value = next(self._values)
        if value != expected:
            self._refuse_value(value)

    def _refuse_value(self, value):
        if type(value) is str and " " in value:
            self.refuse(f"asks for the Python object {value[:100]!r}")
        kind = {bytes: "a text", int: "a number"}.get(type(value))
        self.refuse(f"is no array of texts: found {kind or value}")

    def _operations(self):
        try:
            for opcode, argument, offset in pickletools.genops(
                _Limited(self._file)
            ):
                self._offset = offset
                yield opcode.name, argument
        except ValueError as error:
            if not self._file.read(1):
                raise InputError(
                    f"{self._path} ends at byte {self._file.tell()}, before "
                    "its last text: it is truncated. Fetch the file again."
                ) from error
            self.refuse(f"is no array of texts: {error}")

    def _read_values(self):
        last_text = _NO_TEXT
        for name, argument in self._operations():
            if name in _TEXTS:
                yield _as_bytes(argument)
                last_text = self._offset
            elif name in _PUTS:
                number = len(self._texts) if argument is None else argument
                if number != len(self._texts):
                    self.refuse(f"counts its objects wrongly: found {number}")
                self._texts.append(last_text)
            elif name != "FRAME":
                yield self._value(name, argument)
                last_text = _NO_TEXT

    def _value(self, name, argument):
        if name in _GETS:
            return self._look_up(argument)
        if name in _NUMBERS or name == "PROTO":
            return argument
        # Any other opcode may come: it is nowhere expected.
        return argument if name == "GLOBAL" else _TRUTHS.get(name, name)

    def _look_up(self, number):
        """A text that was read before."""
        offset = _NO_TEXT
        if number < len(self._texts):
            offset = self._texts[number]
        if offset == _NO_TEXT:
            self.refuse(f"is no array of texts: object {number} is none")
        # The same text, many times.
        if self._looked_up[0] != number:
            self._again.seek(offset)
            _, text, _ = next(pickletools.genops(self._again))
            self._looked_up = (number, _as_bytes(text))
        return self._looked_up[1]


def _as_bytes(text):
    return text if type(text) is bytes else text.encode(errors="surrogatepass")
