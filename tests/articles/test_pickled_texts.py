"""Object arrays as numpy.save writes them; numpy.load is the oracle."""

import os
import pickle
import struct
import tracemalloc

import numpy as np
import pytest

from realm_tf.articles.published_texts import read_pickled_texts
from realm_tf.errors import InputError

LONG = b"nile " * 100
LONGER = b"rome " * 20_000
ARRAYS = {
    "none": [],
    "one": [b"nile"],
    "some": [b"nile", b"", b"rome \xff\x00"],
    "long": [LONG, b"nile", LONGER, LONG[:255], LONG[:256], LONGER[:65_536]],
    # One more than the batches of pickle.
    "batches": [b"%d" % number for number in range(2001)],
    # Python has one object only for each of these; NumPy itself writes b"b".
    "shared": [b"b", b"", b"x", b"b", b"x", b""],
    "same": [LONG] * 3 + [b"%d" % n for n in range(300)] + [LONG, LONGER] * 2,
    "str": ["nile", "Žižka 東京 \U0001f30a", "", "ž" * 300, "O8", "numpy"],
    "both": [b"nile", "rome", b"etna"],
}


def object_array(values):
    result = np.empty(len(values), object)
    result[:] = values
    return result


def write(path, values, *, protocol=4, pickled=None):
    """What numpy.save writes, by any protocol, or with any pickle."""
    array = object_array(values)
    header = np.lib.format.header_data_from_array_1_0(array)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(pickled or pickle.dumps(array, protocol))
    return str(path)


def read_until_refused(path, match):
    """The texts that are given before the file is refused."""
    given = []
    with pytest.raises(InputError, match=match) as caught:
        given.extend(read_pickled_texts(path))
        pytest.fail(f"not refused: {given}")
    message = str(caught.value)
    assert path in message
    assert "\n" not in message
    return given


def oracle(path):
    values = np.load(path, allow_pickle=True)
    return [v.encode() if isinstance(v, str) else v for v in values]


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_texts_are_those_of_numpy(tmp_path, name, protocol):
    path = write(tmp_path / "a.npy", ARRAYS[name], protocol=protocol)
    assert list(read_pickled_texts(path)) == oracle(path)


@pytest.mark.parametrize("protocol", [3, 4])
def test_older_numpy(tmp_path, protocol):
    pickled = pickle.dumps(object_array([b"nile", b"b"]), protocol)
    # The module has lost its underscore, the truths of the dtype were ints.
    for new, old in [
        (b"cnumpy._core.", b"cnumpy.core."),
        (b"\x8c\x16numpy._core.", b"\x8c\x15numpy.core."),
        (b"\x89\x88", b"K\x00K\x01"),
    ]:
        pickled = pickled.replace(new, old)
    if protocol == 4:
        frame = struct.pack("<Q", len(pickled) - 11)
        pickled = pickled[:3] + frame + pickled[11:]
    path = write(tmp_path / "a.npy", [None, None], pickled=pickled)
    assert list(read_pickled_texts(path)) == oracle(path) == [b"nile", b"b"]


def test_memory_is_constant(tmp_path):
    texts = [b"%06d " % number * 200 for number in range(8000)]
    path = write(tmp_path / "a.npy", texts + texts[:50])
    assert os.path.getsize(path) > 10e6
    del texts
    tracemalloc.start()
    try:
        assert sum(map(len, read_pickled_texts(path))) == 8050 * 1400
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("protocol", [3, 4])
def test_truncated_anywhere_in_the_list(tmp_path, protocol):
    texts = [b"nile", b"rome" * 70, b"etna"]
    path = write(tmp_path / "a.npy", [*texts, texts[0]], protocol=protocol)
    whole = (tmp_path / "a.npy").read_bytes()
    ends = [whole.index(text) + len(text) for text in texts]
    # The fourth one is a reference to the first: an opcode and a number.
    ends.append(whole.rindex(b"h") + 2)
    for size in range(ends[-1] + 1):
        (tmp_path / "a.npy").write_bytes(whole[:size])
        given = read_until_refused(path, "truncated")
        assert given == [*texts, texts[0]][: sum(end <= size for end in ends)]


class Harm:
    """What makes a directory when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("place", ["element", "array"])
def test_nothing_is_run(tmp_path, protocol, place):
    marker = tmp_path / "marker"
    harm = Harm(str(marker))
    value = object_array([b"nile", harm]) if place == "element" else harm
    pickled = pickle.dumps(value, protocol)
    path = write(tmp_path / "a.npy", [None, None], pickled=pickled)
    read_until_refused(path, r"Nothing of it was run")
    assert not marker.exists()
    np.load(path, allow_pickle=True)
    assert marker.exists()


@pytest.mark.parametrize(
    "value, match",
    [
        (7, "found BININT1"),
        (None, "found NONE"),
        ([b"nile"], "found EMPTY_LIST"),
        (os.mkdir, "found (STACK_)?GLOBAL"),
    ],
)
@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_other_elements(tmp_path, value, match, protocol):
    array = object_array([b"nile", None, b"rome"])
    array[1] = value
    path = write(tmp_path / "a.npy", array, protocol=protocol)
    assert read_until_refused(path, match)[0] == b"nile"


@pytest.mark.parametrize(
    "old, new, match",
    [
        # Out of the memo: what is not there, and what is no text.
        (b"h\x0e", b"h\x63", "index out of range"),
        (b"h\x0e", b"h\x00", "found BINGET"),
        (b"C\x04nile", b"\x8e" + b"\xff" * 8, "> sys.maxsize"),
        (b"C\x04nile", b"\xff", r"opcode b'\\xff' unknown"),
        (b"K\x01K\x02\x85", b"K\x01K\x02\x85.", "header says 2 texts"),
    ],
)
def test_damaged_pickles(tmp_path, old, new, match):
    pickled = pickle.dumps(object_array([text := b"nile", text]), 3)
    assert old in pickled
    pickled = pickled.replace(old, new, 1)
    path = write(tmp_path / "a.npy", [None, None], pickled=pickled)
    read_until_refused(path, match)


@pytest.mark.parametrize(
    "content, match",
    [
        (b"", "after 0 texts"),
        (pickle.dumps([b"nile"]), "after 0 texts"),
        (b"\x93NUMPY\x01\x00\x10\x00__import__('os')", "after 0 texts"),
        (np.zeros(3), r"shape \(3,\), type float64"),
        (np.array([[b"nile", b"rome"]], object), r"shape \(1, 2\)"),
    ],
)
def test_other_files(tmp_path, content, match):
    path = tmp_path / "a.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content, allow_pickle=True)
    assert not read_until_refused(str(path), match)
