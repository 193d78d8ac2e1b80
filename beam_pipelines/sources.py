"""What a pipeline reads: the files, and how workers share them."""

import dataclasses
from collections.abc import Sequence

from realm_tf.articles import multistream
from realm_tf.articles import pages
from realm_tf.articles import readers
from realm_tf.artifacts.paths import Path
from realm_tf.errors import InputError

# Enough pages to make opening a file cheap, few enough to share them out.
PAGES_PER_PART = 1000


@dataclasses.dataclass(frozen=True)
class Source:
    """An input file, every so many-th part of one, or a range of its streams.

    Args:
        file_number: int. Rank of the file among the inputs.
        path: str.
        format: str. One of `readers.FORMATS`.
        stride: int. The file is shared among so many elements.
        remainder: int. This one takes the parts whose number, divided by
            `stride`, leaves this.
        streams: `StreamRange`. Part number `remainder`, of a multistream
            dump with an index. Defaults to `None`.
    """

    file_number: int
    path: str
    format: str
    stride: int = 1
    remainder: int = 0
    streams: multistream.StreamRange | None = None


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Files of articles, in the order of their names.

    Args:
        paths: list of str.
        formats: list of str. The format of each, one of `readers.FORMATS`.
        indices: list of str or None. The multistream index of each.
    """

    paths: list[str]
    formats: list[str]
    indices: list[str | None]


def find(
    patterns: Sequence[str],
    format: str | None = None,
    multistream_index: str | None = None,
) -> Inputs:
    """The input files and what is known of them before they are read.

    Args:
        patterns: sequence of str. Paths or globs. A glob for dumps catches
            their indices, too: these are left out.
        format: str. Of all files. Defaults to `None`: by content.
        multistream_index: str. What the user named. Defaults to `None`: the
            index that lies beside each dump.

    Raises:
        InputError: if a pattern matches no file, the content of one is of no
            known format, or the index fits no single dump.
    """
    found = pages.find_files(patterns)
    paths = [path for path in found if not multistream.is_index(path)]
    if not paths:
        raise InputError(
            f"--input names only the index of a dump ({found[0]}): name the "
            "dump, too."
        )
    formats = [format or readers.detect_format(path) for path in paths]
    if multistream_index is None:
        indices = [
            multistream.find_index(path) if each == readers.MEDIAWIKI else None
            for path, each in zip(paths, formats, strict=True)
        ]
        return Inputs(paths, formats, indices)
    if len(paths) > 1 or formats[0] != readers.MEDIAWIKI:
        raise InputError(
            "--multistream-index belongs to a single MediaWiki dump: name "
            "one file with --input, or leave it out and put each index "
            "beside its dump."
        )
    if not Path(multistream_index).exists():
        raise InputError(
            f"--multistream-index {multistream_index} does not exist."
        )
    return Inputs(paths, formats, pages.find_files([multistream_index]))


def make_sources(inputs: Inputs, num_workers: int) -> list[Source]:
    """Divides the inputs among workers.

    A dump with an index becomes ranges of its streams; any other file is
    read by as many workers as its share of all bytes gives it, at least one,
    each of which keeps every so many-th part. Neither changes what is read.

    Args:
        inputs: `Inputs`.
        num_workers: int.

    Raises:
        InputError: if an index is damaged or of another dump.
    """
    sizes = [pages.file_state(path)[1] for path in inputs.paths]
    total = max(1, sum(sizes))
    found = []
    for number, (path, format, index) in enumerate(
        zip(inputs.paths, inputs.formats, inputs.indices, strict=True)
    ):
        if index is None:
            stride = max(1, round(num_workers * sizes[number] / total))
            found += [
                Source(number, path, format, stride, remainder)
                for remainder in range(stride)
            ]
            continue
        ranges = multistream.read_ranges(
            path, index, pages_per_range=PAGES_PER_PART
        )
        found += [
            Source(number, path, format, 1, part, streams)
            for part, streams in enumerate(ranges)
        ]
    return found
