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
        index: str. The multistream index of a dump. Defaults to `None`.
        stride: int. The file is shared among so many elements.
        remainder: int. This one takes the parts whose number, divided by
            `stride`, leaves this.
        streams: `StreamRange`. Part number `remainder`, of a dump with an
            index. Defaults to `None`.
    """

    file_number: int
    path: str
    format: str
    index: str | None = None
    stride: int = 1
    remainder: int = 0
    streams: multistream.StreamRange | None = None


def find(
    patterns: Sequence[str],
    format: str | None = None,
    multistream_index: str | None = None,
) -> list[Source]:
    """The input files, in the order of their names, and what is known of them before they are read.

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
    sources = []
    for number, path in enumerate(paths):
        found_format = format or readers.detect_format(path)
        is_dump = found_format == readers.MEDIAWIKI
        index = multistream.find_index(path) if is_dump else None
        sources.append(Source(number, path, found_format, index))
    if multistream_index is None:
        return sources
    if len(sources) > 1 or not is_dump:
        raise InputError(
            "--multistream-index belongs to a single MediaWiki dump: name "
            "one file with --input, or leave it out and put each index "
            "beside its dump."
        )
    if not Path(multistream_index).exists():
        raise InputError(
            f"--multistream-index {multistream_index} does not exist."
        )
    (index,) = pages.find_files([multistream_index])
    return [dataclasses.replace(sources[0], index=index)]


def make_sources(inputs: list[Source], num_workers: int) -> list[Source]:
    """Divides the inputs among workers.

    A dump with an index becomes ranges of its streams; any other file is
    read by as many workers as its share of all bytes gives it, at least one,
    each of which keeps every so many-th part. Neither changes what is read.

    Args:
        inputs: list of `Source`. Whole files.
        num_workers: int.

    Raises:
        InputError: if an index is damaged or of another dump.
    """
    sizes = [pages.file_state(source.path)[1] for source in inputs]
    total = max(1, sum(sizes))
    found = []
    for source, size in zip(inputs, sizes, strict=True):
        if source.index is None:
            stride = max(1, round(num_workers * size / total))
            found += [
                dataclasses.replace(source, stride=stride, remainder=remainder)
                for remainder in range(stride)
            ]
        else:
            ranges = multistream.read_ranges(
                source.path, source.index, pages_per_range=PAGES_PER_PART
            )
            found += [
                dataclasses.replace(source, remainder=part, streams=streams)
                for part, streams in enumerate(ranges)
            ]
    return found
