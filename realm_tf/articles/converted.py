"""Reading what other programs convert or send: office files, books, mail.

Pandoc (of the package pypandoc_binary, in the extra `documents`) makes HTML of
what `PANDOC` names, and `html_sections` reads it; openpyxl reads tables.
"""

import array
import codecs
import datetime
import email
import email.policy
import importlib
import io
import re
import subprocess
import sys
import urllib.parse

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
_OPTIONS = (
    "--to html --standalone --sandbox --wrap none --syntax-highlighting=none "
    "+RTS -M2G -RTS"
)
# Sphinx's names of directives, such as "py:function". Pandoc passes over any that
# is not of letters alone, with all its text.
_DIRECTIVE = re.compile(r"(?<=\.\. )[\w:.+-]+(?=::)")
_LETTERS = {ord(mark): 0x3400 + ord(mark) for mark in ":_.+0123456789"}
_MARKS = {letter: mark for mark, letter in _LETTERS.items()}
# What Sphinx shows of a role's text: "title <target>", "~module.name".
_ROLE = re.compile(
    r'(<code class="interpreted-text"[^>]*>)[~!]?([^<]{0,200}?)(?:\s+&lt;[^<]{0,200}&gt;)?'
    "(?=</code>)"
)
_CAPTION = re.compile(r'(<[^<>]* data-caption="([^"]+)"[^<>]*>)')
# Of LaTeX: what pandoc does not know, and what shows nothing.
_TEX = "".join(
    rf"\newcommand{{\text{name}}}{{{text}}}"
    for name, text in {
        **{"bar": "|", "underscore": r"\_", "ellipsis": "…", "endash": "–"},
        **{"periodcentered": "·", "trademark": "™", "euro": "€", "minus": "−"},
    }.items()
)
_BODY = r"\begin{document}"
_VERBATIM = r"\{(?:verbatim|Verbatim|lstlisting|minted)\}"
_VERBATIM = re.compile(rf"(\\begin{_VERBATIM}.*?\\end{_VERBATIM})", re.S)
# Braces in braces, four deep.
_INNER = r"[^{}\\]|\\[\s\S]"
for _ in range(4):
    _BRACED = rf"\{{(?:{_INNER})*+\}}"
    _INNER = rf"[^{{}}\\]|\\[\s\S]|{_BRACED}"
# Columns of tables that pandoc does not know, and lines within a cell.
_COLUMNS = re.compile(
    rf"\\begin\{{(?:tabular|longtable)\}}(?:\[\w\])?{_BRACED}"
)
_COLUMN = re.compile(rf"[<>@!]{_BRACED}|[A-Z](?:\[[^]]*\])?(?:{_BRACED})*")
_PART_RULE = re.compile(r"\\c(?:line|midrule)(?:\([lr]+\))?\{[\d-]+\}")
_RULE = re.compile(r"\\(?:hline|(?:top|mid|bottom)rule)\b(?=\s*[^\s\\])")
_LINES = re.compile(
    rf"\\(?:makecell|thead|shortstack)\*?(?:\[\w+\])?({_BRACED})"
)
_ITEM = re.compile(
    rf"\\item\s*(?:<[^<>]*>\s*)?\[((?:{_BRACED}|[^]{{}}\\]|\\[\s\S])*+)\]"
    r"|\\(begin|end)\{description\}"
)
_SKIPPED = re.compile(
    r"Skipped '\\(?!(?:add\w+|begin|bibliography\w*|captionsetup|\w*color|end"
    r"|fancy\w+|geometry|hspace|hypersetup|index|input|label|linespread|lstset"
    r"|mark\w+|no\w+|page\w+|rotatebox|set\w+|sisetup|thispagestyle|use\w+|vspace)\b)"
    r"([A-Za-z]+)(?:\[[^]]*\])?\{"
)
# Of RTF: a character with what older programs show instead, and codes.
_INSTEAD = re.compile(rb"(?<!\\)((?:\\\\)*\\u-?\d++ ?+)[^\\{}\r\n]")
_RTF_PAGE = re.compile(rb"\\ansicpg(\d+)")
# The second byte of a character may be a letter.
_CODES = re.compile(
    rb"(?<!\\)((?:\\\\)*)(\\u-?\d+(?: |[\r\n]+)?)?((?:\\'[\da-f]{2})+[@-[\]-z|~]?)",
    re.I,
)
# Two numbers for one character, which pandoc takes for two: it is given those
# of two private characters, that many places after them.
_UNIT = re.compile(rb"(?<!\\)((?:\\\\)*\\u)(-?\d{4,5})(?!\d)")
_AFTER = 0x800
_PAIR = re.compile("[\ue000-\ue3ff][\ue400-\ue7ff]")
_BEGINNING = b"From "
# In a mailbox: what is above a message's first header, and ">From" in its text.
_MESSAGE = re.compile(rb"^From [^\n]*\n(?=[\w-]+:)", re.M)
_QUOTED = re.compile(rb"^>(?=>*From )", re.M)


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
        # Some programs write a wrong one.
        sheet.reset_dimensions()
        rows = (
            list(map(_shown, row)) for row in sheet.iter_rows(values_only=True)
        )
        rows = [row for row in rows if any(row)]
        lines = table_rows.lines_of(
            [table_rows.Cell(text, is_header=not number) for text in row]
            for number, row in enumerate(rows)
        )
        sections.append(html_sections.Section([sheet.title], "", lines))
    return book.properties.title or "", sections, {}


def _shown(value):
    """The value of a cell as text: a day has no time."""
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ").removesuffix(" 00:00:00")
    return "" if value is None else " ".join(str(value).split())


def _parse_with_pandoc(file, path):
    library = _library("pypandoc", path)
    extension = pages.extension_of(path)

    def convert(content):
        try:
            return subprocess.run(
                [
                    library.get_pandoc_path(),
                    f"--from={PANDOC[extension]}",
                    *["--verbose"] * (extension == "tex"),
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

    if extension in _TEXT:
        text = pages.decoded(file, path)
        done = _convert_text(convert, text, extension)
    else:
        content = pages.read_all(file, pages.MOST_BYTES_WITH_PICTURES)
        done = convert(_rtf(content) if extension == "rtf" else content)
    if done.returncode:
        reason = " ".join(done.stderr.decode("utf-8", "replace").split())
        if extension not in _TEXT:
            raise pages.Unreadable(f"pandoc cannot read it: {reason}")
        print(
            f"warning: {path} is read as plain text, because pandoc cannot read "
            f"it: {reason}",
            file=sys.stderr,
        )
        lines = documents.paragraphs(text)
        return "", [html_sections.Section([], "", lines)], {}
    # Authors and abstract stand beside the title there; "-" is what pandoc calls
    # its standard input.
    markup = done.stdout.decode().replace("<title>-</title>", "", 1)
    if extension == "rtf":
        markup = _PAIR.sub(_joined, markup)
    markup = markup.replace('<header id="title-block-header">', "<div>", 1)
    markup = _CAPTION.sub(r"<p>\2</p>\1", _ROLE.sub(r"\1\2", markup))
    markup = _DIRECTIVE.sub(lambda name: name[0].translate(_MARKS), markup)
    title, sections, fields = html_sections.read(markup)
    fields.pop("generator", None)
    fields.pop("viewport", None)
    return title, sections, fields


def _convert_text(convert, text, extension):
    """What pandoc makes of markup that it does not know in part."""
    if extension == "rst":
        text = _DIRECTIVE.sub(lambda name: name[0].translate(_LETTERS), text)
    elif extension == "org":
        text = f"#+OPTIONS: ^:{{}}\n{text}"
    elif extension == "tex":
        text = _TEX + _plain(text)
    done = convert(text.encode())
    if extension != "tex":
        return done
    body = set(re.findall(r"\\([A-Za-z]+)", text.split(_BODY, 1)[-1]))
    unknown = set(_SKIPPED.findall(done.stderr.decode("utf-8", "replace")))
    # Commands of packages show what they are given.
    defined = [
        rf"\newcommand{{\{name}}}"
        + ("[3]{#3}" if name.startswith("multi") else "[2][]{#2}")
        for name in sorted(unknown & body)
    ]
    again = convert(("".join(defined) + text).encode()) if defined else done
    return done if again.returncode else again


def _rtf(content):
    """RTF whose characters pandoc knows."""
    found = _RTF_PAGE.search(content)
    page = f"cp{found[1].decode()}" if found else "cp1252"
    try:
        page = codecs.lookup(page.replace("cp10000", "mac_roman")).name
    except LookupError:
        page = "cp1252"

    # What older programs show instead of a character: so many codes.
    length = 4 * next((n for n in (0, 2) if b"\\uc%d" % n in content), 1)

    def shown(found):
        before, unicode, codes = found.groups(b"")
        instead = codes[: length * bool(unicode)]
        text = codes[len(instead) :].replace(b"\\'", b"%")
        text = urllib.parse.unquote_to_bytes(text).decode(page, "replace")
        units = array.array("H", text.encode("utf-16-le"))
        each = b"".join(b"{\\uc0\\u%d }" % unit for unit in units)
        return before + unicode + instead + each

    if b"\\uc0" not in content:
        content = _INSTEAD.sub(rb"\1\\'3f", content)
    if page != "cp1252":
        content = _CODES.sub(shown, content)
    return _UNIT.sub(_private, content)


def _private(found):
    unit = int(found[2]) % 0x10000
    return found[1] + b"%d" % (unit + _AFTER * (0xD800 <= unit < 0xE000))


def _joined(pair):
    units = array.array("H", [ord(each) - _AFTER for each in pair[0]])
    return units.tobytes().decode("utf-16-le")


def _plain(text):
    """LaTeX with lists and tables of which pandoc drops nothing."""
    parts = _VERBATIM.split(text)
    for number, part in enumerate(parts[::2]):
        part = _LINES.sub(lambda cell: cell[1].replace(r"\\", " "), part)
        # Where it knows no table, a rule takes what follows with it.
        part = _RULE.sub(r"\\hline{}", _PART_RULE.sub(r"\\hline ", part))
        part = _COLUMNS.sub(_known_columns, part)
        parts[2 * number] = _ITEM.sub(_item, part)
    return "".join(parts)


def _known_columns(begin):
    return _COLUMN.sub(lambda each: "l" * each[0][0].isupper(), begin[0])


def _item(found):
    label, end = found.groups()
    return rf"\{end}{{itemize}}" if end else rf"\item {{{label}}}\\ "


def _parse_mail(file, path):
    message = email.message_from_bytes(
        pages.read_all(file), policy=email.policy.default
    )
    subject, section, fields = _read_message(message, path)
    return subject, [section], fields


def _parse_mailbox(file, path):
    content = pages.read_all(file, pages.MOST_BYTES_WITH_PICTURES)
    sections = []
    for part in _MESSAGE.split(content)[1:]:
        message = email.message_from_bytes(
            _QUOTED.sub(b"", part), policy=email.policy.default
        )
        subject, section, _ = _read_message(message, path)
        section.headings = [subject] if subject else []
        sections.append(section)
    return "", sections, {}


def _read_message(message, path):
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
    lines += _lines_of(message, path)
    anchor = str(message["message-id"] or "").strip("<> ")
    return (
        fields.get("subject", ""),
        html_sections.Section([], anchor, lines),
        fields,
    )


def _lines_of(part, path):
    """The lines of a part of a message: text, an attachment's name, others."""
    kind = part.get_content_type()
    if kind == "message/rfc822" and part.is_multipart():
        subject, section, _ = _read_message(part.get_payload(0), path)
        return [subject, *section.lines]
    if part.is_multipart():
        parts = list(part.iter_parts())
        if kind == "multipart/alternative":
            parts = {part.get_body(("plain", "html"))} - {None}
        return [line for each in parts for line in _lines_of(each, path)]
    if name := part.get_filename():
        return [f"Attachment: {name}"]
    if kind not in ("text/plain", "text/html"):
        return []
    content = part.get_payload(decode=True)
    charset = pages.encoding_of(content, path, part.get_content_charset())
    text = content.decode(charset, "replace")
    if kind == "text/plain":
        return documents.paragraphs(text)
    _, sections, _ = html_sections.read(text)
    return [line for each in sections for line in each.lines]


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
