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

_NAMES = {
    code.encode("latin-1"): opcode.name
    for code, opcode in pickletools.code2op.items()
}
# Bytes of a text's length, of a number, and of a number in the memo, that
# stand behind an opcode.
_TEXTS = {
    "SHORT_BINBYTES": 1,
    "BINBYTES": 4,
    "BINBYTES8": 8,
    "SHORT_BINUNICODE": 1,
    "BINUNICODE": 4,
    "BINUNICODE8": 8,
}
_NUMBERS = {"BININT1": 1, "BININT2": 2, "BININT": 4}
_PUTS = {"BINPUT": 1, "LONG_BINPUT": 4, "MEMOIZE": 0}
_GETS = {"BINGET": 1, "LONG_BINGET": 4}
_TRUTHS = {"NEWFALSE": 0, "NEWTRUE": 1}
# In the memo: of anything that is no text.
_NO_TEXT = (1 << 64) - 1
_NUMPY = {b"numpy.core.multiarray", b"numpy._core.multiarray"}
_ADVICE = (
    "Nothing of it was run. Write the texts again with numpy.save of a "
    "one-dimensional array of bytes."
)


def count_pickled_texts(path: str) -> int:
    """The number of texts in a file, by its header.

    Args:
        path: str. An `.npy` file as `read_pickled_texts` takes it, local or
            remote.

    Raises:
        InputError: if it is missing or its header is not that of a
            one-dimensional array of objects.
    """
    with _open(path) as file:
        return _read_header(file, path)[0]


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
        pickled.read_start(count)
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


class _Pickle:
    """A pickle of texts as values: bytes, int, or the name of an opcode.

    A global is a tuple of its module and name. What stands for no value of
    its own, as a put into the memo, is followed here.

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
        self._next_offset = offset
        self._last_text = _NO_TEXT
        self._texts = array.array("Q")
        self._looked_up = (None, None)
        self._values = self._read_values()

    def refuse(self, what):
        raise InputError(
            f"{self._path} {what} (byte {self._offset}). {_ADVICE}"
        )

    def read_start(self, count):
        """Reads up to the list of texts."""
        if self._take(1) != b"\x80":
            self.refuse("has no pickle behind its header")
        protocol = self._take(1)[0]
        if not 3 <= protocol <= 5:
            self.refuse(
                f"is pickled by protocol {protocol}, expected 3, 4 or 5"
            )
        for expected in _start(count, by_stack=protocol > 3):
            value = next(self._values)
            if value not in expected:
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
        self._offset = self._next_offset
        if self._file.read(1):
            self.refuse("goes on behind its array")

    def _expect(self, expected):
        value = next(self._values)
        if value != expected:
            self._refuse_value(value)

    def _refuse_value(self, value):
        if type(value) is tuple:
            self._refuse_global(b" ".join(value))
        kind = {bytes: "a text", int: "a number"}.get(type(value))
        self.refuse(f"is no array of texts: found {kind or value}")

    def _refuse_global(self, name):
        name = name[:100].decode("latin-1")
        self.refuse(f"asks for the Python object {name!r}")

    def _take(self, size):
        data = self._file.read(size)
        self._next_offset += len(data)
        if len(data) != size:
            raise InputError(
                f"{self._path} ends at byte {self._next_offset}, before its "
                "last text: it is truncated. Fetch the file again."
            )
        return data

    def _take_number(self, size, signed=False):
        return int.from_bytes(self._take(size), "little", signed=signed)

    def _read_values(self):
        while True:
            offset = self._offset = self._next_offset
            code = self._take(1)
            name = _NAMES.get(code, repr(code))
            if name in _TEXTS:
                yield self._take_text(_TEXTS[name])
                self._last_text = offset
            elif name in _PUTS:
                self._put(_PUTS[name])
            elif name == "FRAME":
                self._take(8)
            else:
                yield self._read_other(name)
                self._last_text = _NO_TEXT

    def _take_text(self, size):
        length = self._take_number(size)
        if length > _MAX_TEXT:
            self.refuse(f"has a text of {length} bytes")
        return self._take(length)

    def _put(self, size):
        number = self._take_number(size) if size else len(self._texts)
        if number != len(self._texts):
            self.refuse(f"counts its objects wrongly: found {number}")
        self._texts.append(self._last_text)

    def _read_other(self, name):
        if name in _GETS:
            return self._look_up(self._take_number(_GETS[name]))
        if name in _NUMBERS:
            return self._take_number(_NUMBERS[name], signed=name == "BININT")
        if name in _TRUTHS:
            return _TRUTHS[name]
        if name == "GLOBAL":
            return self._take_line(), self._take_line()
        # Any other may come: it is nowhere expected.
        return name

    def _take_line(self):
        line = b""
        while not line.endswith(b"\n"):
            if len(line) > 100:
                self._refuse_global(line)
            line += self._take(1)
        return line[:-1]

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
            size = _TEXTS[_NAMES[self._again.read(1)]]
            length = int.from_bytes(self._again.read(size), "little")
            self._looked_up = (number, self._again.read(length))
        return self._looked_up[1]


def _start(count, *, by_stack):
    """What NumPy writes before the texts: for each value, the allowed ones.

    An array of no elements, to be given its state: version of the pickle,
    shape, dtype (with its own state), order of the dimensions, elements.
    """

    def name(modules, attribute):
        if by_stack:
            return [modules, {attribute}, {"STACK_GLOBAL"}]
        return [{(module, attribute) for module in modules}]

    def each(*values):
        return [{value} for value in values]

    return [
        *name(_NUMPY, b"_reconstruct"),
        *name({b"numpy"}, b"ndarray"),
        *each(0, "TUPLE1", b"b", "TUPLE3", "REDUCE"),
        *each("MARK", 1, count, "TUPLE1"),
        *name({b"numpy"}, b"dtype"),
        {b"O8", b"O4"},
        # Older versions write 0 and 1 for the truths.
        *each(0, 1, "TUPLE3", "REDUCE"),
        *each("MARK", 3, b"|", "NONE", "NONE", "NONE", -1, -1, 63, "TUPLE"),
        *each("BUILD", 0, "EMPTY_LIST"),
    ]
