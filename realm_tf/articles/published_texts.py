"""Block texts as REALM's and ORQA's authors and Hugging Face published them.

Passages that are cut already; the row number is the article id, so none is a
duplicate of another and rows stay those of the published embeddings.
"""

import os

from realm_tf.articles import pickled_texts
from realm_tf.articles.pages import Format
from realm_tf.articles.pages import Page
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError

# Beside blocks.tfr (google-research/language, language/orqa).
TITLES = "titles.tfr"


def read_records(path: str):
    """Hugging Face's block_records.npy: texts without titles.

    Args:
        path: str.

    Yields:
        `Page`.

    Raises:
        InputError: if the file is anything but a list of texts, or ends too
            early.
    """
    for row, text in enumerate(pickled_texts.read_pickled_texts(path)):
        yield _page(path, row, text, b"")


def read_tfrecords(path: str):
    """The original's blocks.tfr, with the titles.tfr beside it.

    Args:
        path: str. One text a record.

    Yields:
        `Page`.

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
    files = [
        tf.data.TFRecordDataset(name).as_numpy_iterator()
        for name in (path, titles_path)
    ]
    row = 0
    while True:
        try:
            found = [next(file, None) for file in files]
        except tf.errors.OpError as error:
            raise InputError(
                f"{path} or {titles_path} is damaged at record {row}: "
                f"{error.message}. Download it again."
            ) from error
        if found == [None, None]:
            return
        if None in found:
            short = (path, titles_path)[found.index(None)]
            raise InputError(
                f"{short} ends at record {row}, the other of {path} and "
                f"{titles_path} does not: they do not belong together."
            )
        yield _page(path, row, *found)
        row += 1


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
    lambda file, path, base_url: read_records(path),
)
# A TFRecord file says nothing of what it holds: --format names it.
ORQA = Format(
    "orqa",
    lambda head, text: False,
    lambda file, path, base_url: read_tfrecords(path),
)
