"""What a file seems to be, for a message to somebody who gave a wrong one."""

import codecs
import re

# First bytes to what has them.
_MAGIC = {
    b"PK\x03\x04": "a zip file (such as .docx, .epub or .xlsx)",
    b"%PDF": "a PDF document",
    b"\xfd7zXZ": "compressed with xz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"7z\xbc\xaf": "a 7z archive",
    b"PAR1": "a Parquet table",
    b"\x89HDF": "an HDF5 file",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"\xd0\xcf\x11\xe0": "an old Office document (such as .doc)",
    b"{\\rtf": "an RTF document",
    b"SQLite format 3": "an SQLite database",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}
_TAR = (257, b"ustar")
_HTML = re.compile(r"<!doctype html|<html|<head|<body", re.IGNORECASE)
_ROOT = re.compile(r"(?:<\?xml.*?\?>\s*|<!--.*?-->\s*)*<([\w:-]+)", re.DOTALL)


def describe(head: bytes) -> str:
    """What a file seems to be that is of no known format.

    Args:
        head: bytes. Its beginning, decompressed.

    Returns:
        str, the rest of a sentence.

    Example:

    >>> describe(b"%PDF-1.7 ...")
    'is of no known format (it seems to be a PDF document)'
    """
    if not head.strip():
        return "is empty"
    return f"is of no known format (it seems to be {_what(head)})"


def _what(head):
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            return what
    if head.startswith(_TAR[1], _TAR[0]):
        return "a tar archive"
    try:
        # Its last character may be cut.
        text = codecs.getincrementaldecoder("utf-8")().decode(head).lstrip()
    except UnicodeDecodeError:
        return "binary, or text that is not UTF-8"
    if "\0" in text:
        return "binary"
    if _HTML.match(text):
        return "an HTML page"
    root = _ROOT.match(text)
    if root:
        return f"XML with the root <{root[1]}>"
    if text.startswith("["):
        return "a JSON array, where each line should be an object"
    return "plain text"
