"""What a pipeline reads: the files, and how workers share them."""

import dataclasses
import os
import re
from collections.abc import Sequence

from realm_tf.articles import pages
from realm_tf.articles import readers
from realm_tf.artifacts import record_files
from realm_tf.errors import InputError

# Enough pages to make opening a file cheap, few enough to share them out.
PAGES_PER_PART = 1000
# As Wikimedia names the index of a multistream dump.
_INDEX_NAME = re.compile(r"-multistream-index\d*\.txt[^/]*$")


@dataclasses.dataclass(frozen=True)
class Source:
    """An input file.

    Args:
        file_number: int. Rank of the file among the inputs.
        path: str.
        format: str. One of `readers.FORMATS`.
    """

    file_number: int
    path: str
    format: str


@dataclasses.dataclass(frozen=True)
class Share:
    """Every so many-th part of an input file.

    Args:
        path: str. The table of its pages, written when its parts are.
        source: `Source`.
        stride: int. Among so many the file is shared.
        remainder: int. Which of them this is: it takes the parts whose number,
            divided by `stride`, leaves this.
    """

    path: str
    source: Source
    stride: int
    remainder: int


def find(patterns: Sequence[str], format: str | None = None) -> list[Source]:
    """The input files, in the order of their names, with their formats.

    Args:
        patterns: sequence of str. Paths or globs. The index of a multistream
            dump, which a glob may match, is left out.
        format: str. Of all files. Defaults to `None`: by content.

    Raises:
        InputError: if a pattern matches no file, or the content of one is of
            no known format.
    """
    found = pages.find_files(patterns)
    paths = [path for path in found if not _INDEX_NAME.search(path)]
    if not paths:
        raise InputError(
            f"--input names only the index of a dump ({found[0]}): name the "
            "dump, too."
        )
    return [
        Source(number, path, format or readers.detect_format(path))
        for number, path in enumerate(paths)
    ]


def make_shares(
    inputs: list[Source], num_workers: int, directory: str
) -> list[Share]:
    """Divides the inputs among workers.

    A file is read by as many workers as its share of all bytes gives it, at
    least one. The number of workers does not change the result.

    Args:
        inputs: list of `Source`.
        num_workers: int.
        directory: str. Where the tables of pages go.
    """
    sizes = [pages.file_state(source.path)[1] for source in inputs]
    total = max(1, sum(sizes))
    found = []
    for source, size in zip(inputs, sizes, strict=True):
        stride = max(1, round(num_workers * size / total))
        for remainder in range(stride):
            name = f"pages-{source.file_number:05d}-{remainder}-of-{stride}"
            path = os.path.join(directory, f"{name}{record_files.ENDING}")
            found.append(Share(path, source, stride, remainder))
    return found
