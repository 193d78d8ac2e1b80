"""Reading what other programs convert or send: office files, books, mail.

Pandoc (of the package pypandoc_binary, in the extra `documents`) makes HTML of
what `PANDOC` names, and `html_sections` reads it; openpyxl reads tables.
"""

import datetime
import email
import email.policy
import importlib
import io
import subprocess
import sys

from realm_tf.articles import documents
from realm_tf.articles import html_sections
from realm_tf.articles import pages
from realm_tf.articles import table_rows
from realm_tf.articles.pages import Format

# Extension to the reader of pandoc.
_SAME = ("docx", "epub", "ipynb", "odt", "org", "pptx", "rst", "rtf")
PANDOC = {
    **dict(zip(_SAME, _SAME, strict=True)),
    **{"adoc": "asciidoc", "asciidoc": "asciidoc", "tex": "latex"},
}
_TEXT = ("adoc", "asciidoc", "ipynb", "org", "rst", "tex")
_SECONDS = 60
_OPTIONS = "--to html --standalone --sandbox --wrap none +RTS -M2G -RTS"
_BEGINNING = b"From "


def _library(name, path):
    """A module of the extra."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise pages.Unreadable(
            f"files of .{pages.extension_of(path)} need the extra "
            "`documents`: pip install 'realm-tf[documents]'"
        ) from error


def _parse_workbook(file, path):
    openpyxl = _library("openpyxl", path)
    content = pages.read_all(file, pages.MOST_BYTES_WITH_PICTURES)
    book = openpyxl.load_workbook(
        io.BytesIO(content), read_only=True, data_only=True
    )
    sections = []
    for sheet in book.worksheets:
        rows = (
            list(map(_shown, row)) for row in sheet.iter_rows(values_only=True)
        )
        rows = [row for row in rows if any(row)]
        lines = table_rows.table_lines(
            rows[0] if rows[1:] else [], rows[1:] or rows
        )
        sections.append(html_sections.Section([sheet.title], "", lines))
    return book.properties.title or "", sections, {}


def _shown(value):
    """The value of a cell as text: a day has no time."""
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ").removesuffix(" 00:00:00")
    return "" if value is None else " ".join(str(value).split())


def _parse_with_pandoc(file, path):
    pypandoc = _library("pypandoc", path)
    extension = pages.extension_of(path)
    if extension in _TEXT:
        content = pages.decoded(pages.read_all(file)).encode()
    else:
        content = pages.read_all(file, pages.MOST_BYTES_WITH_PICTURES)
    try:
        done = subprocess.run(
            [
                pypandoc.get_pandoc_path(),
                f"--from={PANDOC[extension]}",
                *_OPTIONS.split(),
            ],
            input=content,
            capture_output=True,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise pages.Unreadable(
            f"pandoc takes more than {_SECONDS} seconds for it"
        ) from error
    if done.returncode:
        reason = " ".join(done.stderr.decode("utf-8", "replace").split())
        if extension not in _TEXT:
            raise pages.Unreadable(f"pandoc cannot read it: {reason}")
        print(
            f"warning: {path} is read as plain text, because pandoc cannot read "
            f"it: {reason}",
            file=sys.stderr,
        )
        lines = documents.paragraphs(content.decode())
        return "", [html_sections.Section([], "", lines)], {}
    # Authors and abstract stand beside the title there; "-" is what pandoc calls
    # its standard input.
    markup = done.stdout.decode().replace("<title>-</title>", "", 1)
    title, sections, fields = html_sections.read(
        markup.replace('<header id="title-block-header">', "<div>", 1)
    )
    fields.pop("generator", None)
    fields.pop("viewport", None)
    return title, sections, fields


def _parse_mail(file, path):
    message = email.message_from_bytes(
        pages.read_all(file), policy=email.policy.default
    )
    subject, section, fields = _read_message(message)
    return subject, [section], fields


def _parse_mailbox(file, path):
    content = b"\n" + pages.read_all(file, pages.MOST_BYTES_WITH_PICTURES)
    sections = []
    for part in content.split(b"\n" + _BEGINNING)[1:]:
        message = email.message_from_bytes(
            part.partition(b"\n")[2], policy=email.policy.default
        )
        subject, section, _ = _read_message(message)
        section.headings = [subject] if subject else []
        sections.append(section)
    return "", sections, {}


def _read_message(message):
    """(the subject, a section, the fields) of a message."""
    names = ("from", "to", "cc", "date", "subject")
    fields = {name: str(message[name]) for name in names if message[name]}
    lines = [
        f"{name.capitalize()}: {fields[name]}"
        for name in names[:4]
        if name in fields
    ]
    if message["date"] and message["date"].datetime:
        fields["date"] = message["date"].datetime.isoformat()
    body = message.get_body(("plain", "html"))
    if body is not None:
        text = body.get_content()
        if body.get_content_subtype() == "html":
            _, sections, _ = html_sections.read(text)
            lines += [line for each in sections for line in each.lines]
        else:
            lines += documents.paragraphs(text)
    names = [each.get_filename() for each in message.iter_attachments()]
    lines += [f"Attachment: {name}" for name in names if name]
    anchor = str(message["message-id"] or "").strip("<> ")
    return (
        fields.get("subject", ""),
        html_sections.Section([], anchor, lines),
        fields,
    )


def _begins_mailbox(head, text):
    return head.startswith(_BEGINNING)


FORMATS = (
    Format("xlsx", None, documents.reader(_parse_workbook), "xlsx"),
    Format(
        "pandoc", None, documents.reader(_parse_with_pandoc), "|".join(PANDOC)
    ),
    Format("mail", None, documents.reader(_parse_mail), "eml"),
    Format("mbox", _begins_mailbox, documents.reader(_parse_mailbox), "mbox"),
)
