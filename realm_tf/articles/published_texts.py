"""Block texts as REALM's and ORQA's authors and Hugging Face published them.

The passages are already cut. The row number is the article id, so that no
passage is a duplicate of another, and rows stay those of the published
embeddings.

Hugging Face's `block_records.npy` is a NumPy object array of 13,353,718 byte
strings: a header and one pickle. `numpy.load(allow_pickle=True)` takes 16 GB of
memory for it and runs any code in the pickle. `read_pickled_texts` reads the
opcodes in their order instead, takes the texts of the list that holds the
elements, and refuses anything else there.
"""

import array
import os
import pickletools
from collections.abc import Iterator

import numpy as np

from realm_tf.articles import pages
from realm_tf.articles.pages import Format
from realm_tf.articles.pages import Page
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError

# Beside blocks.tfr (google-research/language, language/orqa).
TITLES = "titles.tfr"
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


def _read_records(file, path, _):
    """Hugging Face's block_records.npy: texts without titles."""
    for row, text in enumerate(read_pickled_texts(path)):
        yield _page(path, row, text, b"")


def _read_tfrecords(file, path, _):
    """The original's blocks.tfr, with the titles.tfr beside it.

    Raises:
        InputError: if there are no titles beside it, one file has more
            records than the other, or one is damaged.
    """
    import tensorflow as tf

    titles_path = os.path.join(os.path.dirname(path), TITLES)
    if not Path(titles_path).exists():
        raise InputError(
            f"{titles_path} does not exist: blocks and titles are published "
            "as two files, put them side by side."
        )
    texts, titles = (
        tf.data.TFRecordDataset(name).as_numpy_iterator()
        for name in (path, titles_path)
    )
    row = 0
    try:
        for text, title in zip(texts, titles, strict=True):
            yield _page(path, row, text, title)
            row += 1
    except ValueError as error:
        raise InputError(
            f"one of {path} and {titles_path} ends at record {row}, the other "
            "does not: they do not belong together."
        ) from error
    except tf.errors.OpError as error:
        raise InputError(
            f"{path} or {titles_path} is damaged at record {row}: "
            f"{error.message}. Download it again."
        ) from error


def _page(path, row, text, title):
    return Page(
        row + 1,
        f"{path}, row {row}",
        article_id=str(row),
        title=title.decode("utf-8", errors="replace"),
        text=text.decode("utf-8", errors="replace"),
    )


BLOCK_RECORDS = Format(
    "block-records",
    lambda head, text: head.startswith(b"\x93NUMPY"),
    _read_records,
)
# A TFRecord file says nothing of what it holds: --format names it.
ORQA = Format("orqa", lambda head, text: False, _read_tfrecords)
FORMATS = (BLOCK_RECORDS, ORQA)
