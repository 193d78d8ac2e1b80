"""What a pipeline reads: the files, and how workers share them."""

import dataclasses

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


def find_inputs(patterns: list[str]) -> list[str]:
    """The input files, in the order of their names.

    Args:
        patterns: list of str. Paths or globs. A glob for dumps catches their
            indices, too: these are left out.

    Raises:
        InputError: if a pattern matches no file.
    """
    paths = pages.find_files(patterns)
    dumps = [path for path in paths if not multistream.is_index(path)]
    if not dumps:
        raise InputError(
            f"--input names only the index of a dump ({paths[0]}): name the "
            "dump, too."
        )
    return dumps


def find_indices(
    paths: list[str], formats: list[str], multistream_index: str | None
) -> list[str | None]:
    """For each input the path of its multistream index, or `None`.

    Args:
        paths: list of str. The inputs.
        formats: list of str. Their formats.
        multistream_index: str or None. What the user named.

    Raises:
        InputError: if the index that the user named fits no single dump.
    """
    if multistream_index is not None:
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
        return pages.find_files([multistream_index])
    return [
        multistream.find_index(path) if format == readers.MEDIAWIKI else None
        for path, format in zip(paths, formats, strict=True)
    ]


def make_sources(
    paths: list[str],
    formats: list[str],
    indices: list[str | None],
    num_workers: int,
) -> list[Source]:
    """Divides the inputs among workers.

    A dump with an index becomes ranges of its streams; any other file is
    read by as many workers as its share of all bytes gives it, at least one,
    each of which keeps every so many-th part. Neither changes what is read.

    Args:
        paths: list of str.
        formats: list of str.
        indices: list of str or None.
        num_workers: int.

    Raises:
        InputError: if an index is damaged or of another dump.
    """
    sizes = [pages.file_state(path)[1] for path in paths]
    total = max(1, sum(sizes))
    found = []
    for number, (path, format, index) in enumerate(
        zip(paths, formats, indices, strict=True)
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
