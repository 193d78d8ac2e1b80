"""Files of pages: finding them, opening them, what a page is."""

import bz2
import codecs
import contextlib
import dataclasses
import errno
import functools
import glob
import gzip
import os
import re
import stat
import sys
import unicodedata
import urllib.parse
import xml.etree.ElementTree as ET
import zipfile
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
COMPRESSED = re.compile(r"\.(gz|bz2)$")
# Folders, and what systems add.
_IS_LEFT_OUT = re.compile(r"/\Z|(?:^|/)(?:\.|__MACOSX/)")
_ARCHIVE = re.compile(r"\.zip(?=/.)", re.I | re.S)
_OF_DISKS = (errno.EIO, errno.ENOSPC)
_SURROGATE = re.compile("[\ud800-\udfff]")
# U+FB00 to U+FB06, of typesetting.
_LIGATURE = re.compile("[\ufb00-\ufb06]")
# Longest first: a mark of UTF-16 begins that of UTF-32.
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# As browsers do: the larger encoding that is meant.
_MEANT = {
    **{"ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254"},
    **{"gb2312": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949"},
}
_HIGH = bytes(range(0x80, 0x100))
_FEW_HIGH = 64
# What decides the encoding.
_SAMPLE = 1 << 20
# Of text in one document: ten times a long book (our choice).
MOST_BYTES = 64 << 20
# Of a document that also holds pictures.
MOST_BYTES_WITH_PICTURES = 512 << 20
# Of an archive, inflated, and its files (our choice).
_MOST_INFLATED = 4 << 30
_MOST_FILES = 20_000
# As MediaWiki's wfUrlencode leaves them.
_URL_SAFE = ";@$!*(),/~:"


class Unreadable(InputError):
    """Why a document is left out, as an error's message."""


@dataclasses.dataclass(slots=True)
class Page:
    """One page of a dump or one row of a file, as it was read.

    Args:
        number: int. Position in its file: 1, 2, 3, ... Every page counts,
            dropped ones too.
        place: str. The file and the line or page, for messages.
        article_id: str. The page id in its dump.
        title: str.
        text: str. Wiki markup or plain text; of a document that cannot be
            read, the reason.
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
    """Text in Unicode's form NFC, typographic ligatures written out, without
    half surrogate pairs, which JSON can spell, not UTF-8.

    >>> valid_text("cafe\u0301 \ufb01nds")
    'café finds'
    """
    text = _LIGATURE.sub(
        lambda match: unicodedata.normalize("NFKC", match[0]), text
    )
    return unicodedata.normalize("NFC", _SURROGATE.sub("\ufffd", text))


def reason_of(error: Exception) -> str:
    """Why a document is left out, in one line.

    Raises:
        Exception: what is given, if the disk failed and not the document.
    """
    text = " ".join(str(error).split())
    if isinstance(error, InputError):
        return text
    if isinstance(error, OSError) and error.errno in _OF_DISKS:
        raise error
    return f"{type(error).__name__}: {text}"


def read_all(file: BinaryIO, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file, decompressed; `Unreadable` if they are too many."""
    content = file.read(most + 1)
    if len(content) > most:
        raise Unreadable(
            f"it holds more than {most >> 20} MiB, the most that is read of "
            "such a document: split it"
        )
    return content


def encoding_of(content: bytes, path: str, declared: str | None = None) -> str:
    """The encoding of a file of text.

    A byte order mark decides, then whether it is UTF-8, then what the file
    declares, then charset-normalizer; too few letters for it are those of
    Western Europe. A warning says what was not known but found.

    Args:
        content: bytes.
        path: str. For the warning.
        declared: str. An encoding. Defaults to `None`.

    Raises:
        Unreadable: if it is no text.
    """
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            return encoding
    # The letters of UTF-16 without a mark are UTF-8 with zeros between them.
    if b"\0" not in content:
        names = ["utf-8"]
        with contextlib.suppress(LookupError, ValueError):
            name = codecs.lookup(declared or "utf-8").name
            # What has seven bits is UTF-8, too.
            is_first = name.startswith(("iso2022", "hz"))
            names[not is_first :] = [_MEANT.get(name, name), name, "utf-8"]
        for encoding in names:
            with contextlib.suppress(UnicodeDecodeError, LookupError):
                content.decode(encoding)
                return encoding
    high = len(content) - len(content.translate(None, _HIGH))
    if b"\0" not in content and high <= min(_FEW_HIGH, len(content) // 3):
        encoding = "cp1252"
    else:
        import charset_normalizer

        found = charset_normalizer.from_bytes(content[:_SAMPLE]).best()
        if found is None:
            raise Unreadable(
                "it is no text in an encoding that can be recognised"
            )
        encoding = found.encoding
    print(
        f"warning: {path} is not UTF-8 and is read as {encoding}.",
        file=sys.stderr,
    )
    return encoding


def decoded(file: BinaryIO, path: str, declared: str | None = None) -> str:
    """The text of a file; see `encoding_of`."""
    content = read_all(file)
    return content.decode(encoding_of(content, path, declared), "replace")


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
        extensions: str. Of files of this format, a regular expression. Defaults
            to one that matches none.
        text: function of a `Page`: its `PlainText`. Defaults to `plain_text`.
    """

    name: str
    is_in: Callable[[bytes, str], bool] | None
    read: Callable[[BinaryIO, str, str | None], Iterator[Page]]
    extensions: str = "(?!)"
    text: Callable[[Page], PlainText] = plain_text

    def is_named(self, path: str) -> bool:
        """Whether a file, also a compressed one, has one of the extensions."""
        return re.fullmatch(self.extensions, extension_of(path)) is not None


def extension_of(path: str) -> str:
    """The extension in small letters, below that of a compressed file.

    >>> extension_of("a/Notes.MD.gz"), extension_of("wiki_00")
    ('md', '')
    """
    name = COMPRESSED.sub("", os.path.basename(path).lower())
    return os.path.splitext(name)[1][1:]


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
            *bucket, name = f"{pattern}/".split("/", 3)
            found = map(str, Path("/".join(bucket)).glob(name.rstrip("/")))
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
        with _opened(path) as file:
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
    except (OSError, zlib.error, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"{path} cannot be read ({reason}): expected a whole file, "
            "plain, bz2 or gzip."
        ) from error


@contextlib.contextmanager
def _opened(path):
    archive, name = in_archive(path)
    if name:
        with _archive(*file_state(archive)).open(name) as file:
            yield file
        return
    if is_remote(path):
        with Path(path).open("rb") as file:
            yield file
        return
    # Opening a FIFO would wait for somebody who writes into it.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise Unreadable(
            f"{path} cannot be read (no regular file): expected a file, no "
            "device, pipe or folder."
        )
    with open(number, "rb") as file:
        yield file


def in_archive(path: str) -> tuple[str, str]:
    """The archive and the name in it, which is `""` of any other path.

    >>> in_archive("a/b.zip/c/d.md"), in_archive("a/b.md")
    (('a/b.zip', 'c/d.md'), ('a/b.md', ''))
    """
    for found in _ARCHIVE.finditer(str(path)):
        archive = path[: found.end()]
        # A folder may be called so, too.
        if not Path(archive).is_dir():
            return archive, path[found.end() + 1 :]
    return path, ""


def files_in(archive: str) -> list[str]:
    """The names of the files in a zip archive, but for hidden ones, sorted.

    Raises:
        Unreadable: if it is none, or holds too much.
    """
    try:
        files = _archive(*file_state(archive)).infolist()
    except zipfile.BadZipFile as error:
        raise Unreadable(f"it is no whole zip archive ({error})") from error
    if len(files) > _MOST_FILES:
        raise Unreadable(f"it holds more than {_MOST_FILES:,} files: split it")
    if sum(each.file_size for each in files) > _MOST_INFLATED:
        raise Unreadable(
            f"it holds more than {_MOST_INFLATED >> 20} MiB, inflated: split it"
        )
    return sorted(
        {
            each.filename
            for each in files
            if not _IS_LEFT_OUT.search(each.filename)
        }
    )


@functools.lru_cache(maxsize=1)
def _archive(path, size, time):
    # Its list of files is read once, not for each of them.
    return zipfile.ZipFile(Path(path).open("rb") if is_remote(path) else path)


def file_state(path: str) -> list:
    """Path, size and time of change, which tell whether a file is the same."""
    if is_remote(path):
        found = Path(path)
        return [path, found.size, found.state]
    status = os.stat(path)
    return [path, status.st_size, status.st_mtime_ns]


def read_lines(file, path):
    """Lines as (number from 1, text), decoded, without their ends."""
    # Not a TextIOWrapper: it reads ahead and could not name the line.
    lines = iter(lambda: file.readline(MOST_BYTES + 1), b"")
    for number, line in enumerate(lines, start=1):
        if len(line) > MOST_BYTES:
            raise Unreadable(
                f"{path}:{number}: longer than {MOST_BYTES >> 20} MiB: expected "
                "one object or row in a line."
            )
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
