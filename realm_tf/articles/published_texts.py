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


def _read_records(file, path, _):
    """Hugging Face's block_records.npy: texts without titles."""
    for row, text in enumerate(pickled_texts.read_pickled_texts(path)):
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
