"""Files of pages: finding them, opening them, what a page is."""

import bz2
import contextlib
import dataclasses
import glob
import gzip
import os
import re
import urllib.parse
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import BinaryIO

from realm_tf.artifacts.paths import Path
from realm_tf.artifacts.paths import is_remote
from realm_tf.errors import InputError

# Marks that a reader does not see.
INVISIBLE = re.compile("[\xad\u200b\u200e\u200f\u2060\ufeff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
# As MediaWiki's wfUrlencode leaves them.
_URL_SAFE = ";@$!*(),/~:"


@dataclasses.dataclass(slots=True)
class Page:
    """One page of a dump or one row of a file, as it was read.

    Args:
        number: int. Position in its file: 1, 2, 3, ... Every page counts,
            dropped ones too.
        place: str. The file and the line or page, for messages.
        article_id: str. The page id in its dump.
        title: str.
        text: str. Wiki markup or plain text.
        url: str. Where the article can be read, or `""`.
        dropped: str. Why the page is no article, such as `"redirect"`, or
            `""`.
        silent_prefixes: frozenset of str. For wiki markup: names, in lower
            case, of the namespaces whose links show no text.
        fields: mapping of str to what the source says of the page besides the
            above, as it was read; of a document, one for all its sections.
            `fields_of` makes text of it.
    """

    number: int
    place: str
    article_id: str = ""
    title: str = ""
    text: str = ""
    url: str = ""
    dropped: str = ""
    silent_prefixes: frozenset[str] = frozenset()
    fields: Mapping = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class PlainText:
    """Running text of an article and where its wiki links stand.

    Args:
        text: str. Paragraphs, separated by one line feed; single spaces.
        link_starts: list of int. Code point where each link's text begins.
        link_limits: list of int. Code point after its last one.
        title: str. Of the article.
    """

    text: str
    link_starts: list[int] = dataclasses.field(default_factory=list)
    link_limits: list[int] = dataclasses.field(default_factory=list)
    title: str = ""


def plain_text(page: Page) -> PlainText:
    """The text of a page that holds no markup: one paragraph a line.

    White space is collapsed, and a first line that repeats the title dropped.
    """
    return PlainText(without_title(page, plain_paragraphs(page.text)))


def plain_paragraphs(text: str) -> str:
    """Plain text with single spaces and one line feed between paragraphs.

    Every line is a paragraph; white space at its ends is dropped.
    """
    lines = (
        " ".join(INVISIBLE.sub("", line).split()) for line in text.splitlines()
    )
    return "\n".join(line for line in lines if line)


def valid_text(text: str) -> str:
    """Text without half surrogate pairs, which JSON can spell, not UTF-8."""
    return _SURROGATE.sub("\ufffd", text)


def without_title(page: Page, text: str, *, alone: bool = False) -> str:
    """Text without a first line that is the page's title.

    Args:
        page: `Page`.
        text: str.
        alone: bool. Drop it even if there is nothing else. Defaults to
            `False`.
    """
    first_line, _, rest = text.partition("\n")
    return rest if first_line == page.title and (rest or alone) else text


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of files of articles: one module here, one word in `readers`.

    Args:
        name: str. What `--format` calls it.
        is_in: function of the beginning of a file, decompressed: its bytes,
            and its text without white space before it. Whether the file is of
            this format; `None` if the content does not say.
        read: function of a binary file, decompressed, its path, and what
            comes before the title in a page's URL, or `None`. Yields `Page`
            in the order of the file.
        text: function of a `Page`: its `PlainText`. Defaults to `plain_text`.
        is_named: function of a path. Whether files of this format are named
            so, for those that are recognised by nothing else. Defaults to
            `None`: the name says nothing.
    """

    name: str
    is_in: Callable[[bytes, str], bool] | None
    read: Callable[[BinaryIO, str, str | None], Iterator[Page]]
    text: Callable[[Page], PlainText] = plain_text
    is_named: Callable[[str], bool] | None = None


def find_files(patterns: Iterable[str]) -> list[str]:
    """The files that some globs name, sorted by name, each once.

    Args:
        patterns: iterable of str. Paths or globs; `**` crosses folders.

    Returns:
        list of str. The order decides the block ids, so it does not depend
        on the order of the patterns.

    Raises:
        InputError: if a pattern matches no file or there is none.
    """
    paths = set()
    for pattern in patterns:
        if is_remote(pattern):
            found = _gfile().glob(pattern)
        elif os.path.exists(pattern):
            # A name with brackets in it is a name before it is a glob.
            found = [os.path.abspath(pattern)]
        else:
            found = map(os.path.abspath, glob.glob(pattern, recursive=True))
        found = list(found)
        files = [path for path in found if not Path(path).is_dir()]
        if found and not files:
            raise InputError(
                f"{pattern} is a directory: name the files in it, "
                f"for instance '{pattern.rstrip('/')}/*'."
            )
        if not files:
            raise InputError(
                f"{pattern} matches no file: name one that exists."
            )
        paths.update(files)
    if not paths:
        raise InputError("No file is named: give at least one path.")
    return sorted(paths)


def page_url(base_url: str, title: str) -> str:
    """The URL of a page of a wiki.

    >>> page_url("https://en.wikipedia.org/wiki/", "Žižka's War (1420)")
    'https://en.wikipedia.org/wiki/%C5%BDi%C5%BEka%27s_War_(1420)'
    """
    name = urllib.parse.quote(title.replace(" ", "_"), safe=_URL_SAFE)
    return f"{base_url.rstrip('/')}/{name}"


@contextlib.contextmanager
def open_bytes(path):
    """Opens a file for reading bytes, decompressed by its first bytes.

    What a truncated or damaged file raises while it is open becomes an
    `InputError`.
    """
    try:
        with Path(path).open("rb") as file:
            head = file.read(3)
            file.seek(0)
            if head == b"BZh":
                file = bz2.BZ2File(file)
            elif head[:2] == b"\x1f\x8b":
                file = gzip.GzipFile(fileobj=file)
            yield file
    except EOFError as error:
        raise InputError(
            f"{path} is truncated: its compressed data end before the "
            "end-of-stream marker. Fetch the file again."
        ) from error
    except ET.ParseError as error:
        line, column = error.position
        raise InputError(
            f"{path}:{line}: broken XML at column {column + 1} "
            f"({error.msg.split(':')[0]}): the dump is truncated or "
            "damaged. Fetch the file again."
        ) from error
    except (OSError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"{path} cannot be read ({reason}): expected a whole file, "
            "plain, bz2 or gzip."
        ) from error


def file_state(path: str) -> list:
    """Path, size and time of change, which tell whether a file is the same."""
    if is_remote(path):
        status = _gfile().stat(path)
        return [path, status.length, status.mtime_nsec]
    status = os.stat(path)
    return [path, status.st_size, status.st_mtime_ns]


def read_lines(file, path):
    """Lines as (number from 1, text), decoded, without their ends."""
    # Not a TextIOWrapper: it reads ahead and could not name the line.
    for number, line in enumerate(file, start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}:{number}: not UTF-8 text (byte {error.start + 1} of "
                "the line). Convert the file to UTF-8 or fetch it again."
            ) from error
        if number == 1:
            text = text.removeprefix("\ufeff")
        yield number, text.rstrip("\r\n")


def _gfile():
    # Only remote paths need TensorFlow.
    import tensorflow as tf

    return tf.io.gfile
