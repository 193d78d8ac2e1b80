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
import re
from collections.abc import Iterator

import numpy as np

from realm_tf.articles import pages
from realm_tf.articles.pages import Format
from realm_tf.articles.pages import Page
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError

# Beside blocks.tfr (google-research/language, language/orqa).
TITLES = "titles.tfr"
# Names of the opcodes of bytes and str.
_TEXT = re.compile("(SHORT_)?BIN(BYTES|UNICODE)8?")
_PUTS = {"BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"BINGET", "LONG_BINGET"}
# Between the texts of a list.
_PASSED = {"MARK", "APPEND", "APPENDS"}
# In the memo: of anything that is no text.
_NO_TEXT = (1 << 64) - 1


def read_pickled_texts(path: str) -> Iterator[bytes]:
    """The texts of an `.npy` file, in their order.

    Takes constant memory, besides 8 bytes for the place of each text: a text
    that occurs twice is written once. Nothing in the file is run.

    Args:
        path: str. What `numpy.save` writes, by pickle protocol 3 to 5, of a
            one-dimensional object array of bytes or str. Local or remote.

    Yields:
        bytes, a text; of a str, its UTF-8.

    Raises:
        InputError: if the file is missing, truncated or of another form. Texts
            before the damaged place were given.
    """
    number = 0
    with pages.open_bytes(path) as file, pages.open_bytes(path) as again:
        try:
            # Later versions are for longer headers than that of an object
            # array.
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            if dtype.kind != "O" or len(shape) != 1:
                raise ValueError(f"an array of shape {shape}, type {dtype}")
            for text in _texts(file, again):
                number += 1
                yield (
                    text
                    if type(text) is bytes
                    else text.encode(errors="surrogatepass")
                )
            if number != shape[0]:
                raise ValueError(f"its header says {shape[0]} texts")
        except (ValueError, IndexError) as error:
            raise InputError(
                f"{path} is truncated or no array of texts (after {number} "
                f"texts: {error}). Nothing of it was run. Write the texts again "
                "with numpy.save of a one-dimensional array of bytes."
            ) from error


def _texts(file, again):
    """Yields the texts of the first list of a pickle, which ends a tuple."""
    # Of each object in the memo, the place of its text.
    memo, place, in_list = array.array("Q"), _NO_TEXT, False
    for opcode, argument, offset in pickletools.genops(file):
        if opcode.name in _PUTS:
            memo.append(place)
            continue
        if opcode.name == "FRAME":
            continue
        place = offset if _TEXT.fullmatch(opcode.name) else _NO_TEXT
        if not in_list:
            in_list = opcode.name == "EMPTY_LIST"
        elif opcode.name == "TUPLE":
            return
        elif place != _NO_TEXT:
            yield argument
        elif opcode.name in _GETS and memo[argument] != _NO_TEXT:
            again.seek(memo[argument])
            _, text, _ = next(pickletools.genops(again))
            yield text
        elif opcode.name not in _PASSED:
            raise ValueError(f"found {opcode.name} at byte {offset}")


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
    "npy",
)
# A TFRecord file says nothing of what it holds: --format names it.
ORQA = Format("orqa", lambda head, text: False, _read_tfrecords)
FORMATS = (BLOCK_RECORDS, ORQA)
