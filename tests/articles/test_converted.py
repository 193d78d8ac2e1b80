"""Formats that pandoc, openpyxl and the standard library read."""

import datetime
import re
import subprocess
import sys
import zipfile

import openpyxl
import pypandoc
import pytest

from realm_tf.articles import readers

MARKDOWN = """---
title: Travel
---

Book with `./configure -o`.

# Hotels

| City | Limit |
|------|-------|
| Oslo | 1.10  |

## Late

- Call the hotel.
- Keep receipts

Note[^1].

[^1]: A foot.
"""
TEXTS = {
    "Travel": "Book with ./configure -o.",
    "Travel: Hotels": "City: Oslo; Limit: 1.10.",
    "Travel: Hotels: Late": "Call the hotel.\nKeep receipts\nNote 1.\nA foot.",
}


def _read(path):
    return {page.title: page.text for page in readers.read_pages(str(path))}


@pytest.mark.parametrize(
    ("extension", "writer"),
    [
        ("adoc", "asciidoc"),
        ("docx", "docx"),
        ("epub", "epub"),
        ("org", "org"),
        ("rst", "rst"),
        ("tex", "latex"),
    ],
)
def test_what_pandoc_writes_is_read(tmp_path, extension, writer):
    path = tmp_path / f"x.{extension}"
    pypandoc.convert_text(
        MARKDOWN, writer, "markdown", outputfile=str(path), extra_args=["-s"]
    )
    assert _read(path) == TEXTS


def test_a_file_without_a_title(tmp_path):
    path = tmp_path / "x.odt"
    pypandoc.convert_text(
        "# A\n\nText.", "odt", "markdown", outputfile=str(path)
    )
    assert _read(path) == {"A": "Text."}


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        (
            "x.rst",
            """.. py:function:: read(path, *, n=1)
   :module: io

   Reads :ref:`a file <file>` by :py:class:`~io.Reader`.

.. _h5:

.. c:macro:: MOST_2
.. toctree::
   :caption: Contents

   install

.. automodule:: a.b_c

Literal::

   .. py:data:: x
""",
            "read(path, *, n=1)\nReads a file by io.Reader.\nMOST_2\nContents\n"
            "install\na.b_c\nLiteral:\n.. py:data:: x",
        ),
        ("x.org", "Set max_size to x^2.", "Set max_size to x^2."),
        (
            "x.tex",
            r"""\usepackage{keys}\geometry{a4}\begin{document}\vspace{1cm}
Use \code{a b}\index{c}, \key[x]{Ctrl}\textbar{}{\bf x}. \end{document}""",
            "Use a b, Ctrl|x.",
        ),
        (
            "x.tex",
            r"""\begin{itemize}\item[\textbf{\texttt{a}}] b
\item<2->[X] c\end{itemize}
\begin{lstlisting}
\hline \makecell{d\\e} \begin{tabular}{lS}
\end{lstlisting}
\begin{tabular}{lD{.}{.}{2}}f & \makecell{\emph{g}\\h} \\ i & 1.5 \\
\end{tabular}""",
            "a\nb\nX\nc\n\\hline \\makecell{d\\\\e} \\begin{tabular}{lS}\n"
            "f; g h.\ni; 1.5.",
        ),
        (
            "x.rtf",
            r"""{\rtf1\ansi\ansicpg932 \'83e\'83X\'83g, \u8364?\'83\'65x, \u8364
\'88\'83\'65}""",
            "テスト, €テx, €テ",
        ),
        ("x.rtf", r"{\rtf1\ansi\ansicpg1251\uc0 \u960 \'cf\'f0}", "πПр"),
        ("x.rtf", r"{\rtf1\mac\ansicpg10000 caf\'8e C:\\\'8e}", "café C:\\é"),
        ("x.rtf", r"{\rtf1\ansi\ansicpg708 a \'e9 \\\u8364?b}", "a é \\€b"),
        (
            "x.rtf",
            r"{\rtf1\ansi\ansicpg1251 \u8211-\'cf\'f0, \u8364\'88\'cf}",
            "–Пр, €П",
        ),
        (
            "x.tex",
            r"""\begin{description}\item[Quota] 5 GB.\item Free.\end{description}
\begin{enumerate}\item[A1] First.\begin{verbatim}
\item[x] y
\end{verbatim}\end{enumerate}
\begin{tabular}{lS[table-format=1.1]C{3cm}}
Port & Rate & \makecell{Used\\for} \\ \cmidrule(lr){1-2}
\multicolumn{1}{c}{7410} & 3.5 & reads \\ \cline{1-2} 7411 & 4 & \\
\end{tabular}
\begin{tabu} to 3cm {ll} a & \multicolumn{2}{c}{both} \end{tabu}""",
            "Quota\n5 GB.\nFree.\nA1\nFirst.\n\\item[x] y\n"
            "Port: 7410; Rate: 3.5; Used for: reads.\nPort: 7411; Rate: 4.\n"
            "to 3cm ll a & both",
        ),
        (
            "x.rtf",
            r"""{\rtf1\ansi\ansicpg1251\deff0{\fonttbl{\f0\fcharset204 A;}
}\f0 \'cf\'f0\'e8\'e2\'e5\'f2 1.5, \u8364?5, \u8364\'88 6,
 {\uc2\u26085\'93\'fa}, \{\u8211-x\}, \\u8211-x}""",
            "Привет 1.5, €5, € 6, 日, {–x}, \\u8211-x",
        ),
        (
            "x.rtf",
            r"{\rtf1\mac caf\'8e: {\uc0 \u960 r \u8364 ?}}",
            "café: πr €?",
        ),
        (
            "x.rtf",
            r"{\rtf1\ansi a\u-10179?\u-8704?b, \u55357 ?\u56832 ?, \u8364?}",
            "a😀b, 😀, €",
        ),
        (
            "x.rtf",
            r"{\rtf1\ansi {\uc0\u-10179 \u-8704 \u-4096 }\\u-8704}",
            "😀\uf000\\u-8704",
        ),
        (
            "x.rtf",
            r"{\rtf1\ansi\ansicpg1251 \'cf\u-10179\'3f\u-8704\'3f\'f0 1}",
            "П😀р 1",
        ),
    ],
)
def test_markup_that_pandoc_knows_in_part(tmp_path, name, content, text):
    (tmp_path / name).write_text(content)
    assert _read(tmp_path / name) == {"x": text}


def test_a_workbook(tmp_path):
    path = tmp_path / "rooms.xlsx"
    book = openpyxl.Workbook()
    book.active.title = "Rooms"
    book.active.append(["Room", "Seats", "Since"])
    book.active.append(["01067", 12.5, datetime.date(2024, 5, 1)])
    book.create_sheet("Note").append(["Ask Ann"])
    book.save(path)
    # As some programs write it.
    with zipfile.ZipFile(path) as whole:
        files = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(tmp_path / "seats.xlsx", "w") as other:
        for name, content in files.items():
            other.writestr(name, re.sub(rb'ref="A1:\w+"', b'ref="A1"', content))
    for name in ("rooms", "seats"):
        assert _read(tmp_path / f"{name}.xlsx") == {
            f"{name}: Rooms": "Room: 01067; Seats: 12.5; Since: 2024-05-01.",
            f"{name}: Note": "Ask Ann.",
        }


MESSAGE = """From: Ann <a@x.example>
Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=
Date: Wed, 1 May 2024 10:00:00 +0200

Hello Bob,

the room is 5.
"""


def test_mail(tmp_path):
    path = tmp_path / "a.eml"
    path.write_text(MESSAGE)
    (page,) = readers.read_pages(str(path))
    assert (page.title, page.text.split("\n")) == (
        "Gr\u00fc\u00dfe",
        [
            "From: Ann <a@x.example>",
            "Date: Wed, 01 May 2024 10:00:00 +0200",
            "Hello Bob,",
            "the room is 5.",
        ],
    )
    assert page.fields["date"] == "2024-05-01T10:00:00+02:00"
    path = tmp_path / "b.mbox"
    path.write_text(f"From a\n{MESSAGE}\nFrom b\nSubject: Two\n\nText.\n")
    assert list(_read(path)) == ["b: Gr\u00fc\u00dfe", "b: Two"]
    assert _read(path)["b: Two"] == "Text."


MIXED = """Subject: Mixed
Content-Type: multipart/mixed; boundary=B

--B

First.
--B
Content-Type: multipart/alternative; boundary=C

--C
Content-Type: text/html

<p>Not.
--C

Plain.
--C--
--B
Content-Type: image/png; name=x.png

--B
Content-Type: text/html

<p>Second.
--B
Content-Type: message/rfc822

Subject: Inner

Forwarded.
--B--
"""


@pytest.mark.parametrize(
    ("headers", "content", "text"),
    [
        ("", "5 \u20ac f\u00fcr".encode(), "5 \u20ac f\u00fcr"),
        ("iso-8859-1", b"\x93a\x94 5 \x80", "\u201ca\u201d 5 \u20ac"),
        ("x-unknown", b"a", "a"),
        (
            "iso-2022-jp",
            "\u6f22\u5b57".encode("iso-2022-jp"),
            "\u6f22\u5b57",
        ),
    ],
)
def test_encodings_of_mail(tmp_path, headers, content, text):
    path = tmp_path / "a.eml"
    if headers:
        headers = f"Content-Type: text/plain; charset={headers}\n"
    path.write_bytes(f"{headers}Subject: S\n\n".encode() + content)
    assert _read(path) == {"S": text}


def test_all_parts_of_a_message(tmp_path):
    path = tmp_path / "a.mbox"
    path.write_text(
        f"From a\n{MIXED}\nFrom b\nSubject: B\n\nFrom us\n\n>From you\n"
    )
    assert _read(path) == {
        "a: Mixed": "First.\nPlain.\nAttachment: x.png\nSecond.\nInner\n"
        "Forwarded.",
        "a: B": "From us\nFrom you",
    }


@pytest.mark.parametrize(
    ("name", "library"), [("x.docx", "pypandoc"), ("x.xlsx", "openpyxl")]
)
def test_without_the_extra(tmp_path, monkeypatch, name, library):
    monkeypatch.setitem(sys.modules, library, None)
    path = tmp_path / name
    path.write_bytes(b"x")
    (page,) = readers.read_pages(str(path))
    assert page.dropped
    assert "pip install 'realm-tf[documents]'" in page.text


def test_what_pandoc_cannot_read(tmp_path, monkeypatch, capsys):
    path = tmp_path / "x.rst"
    path.write_text('.. csv-table::\n\n   "a "b" c"\n\nText.\n')
    assert _read(path)["x"].endswith("Text.")
    assert "x.rst is read as plain text" in capsys.readouterr().err
    path = tmp_path / "x.docx"
    path.write_bytes(b"x")
    (page,) = readers.read_pages(str(path))
    assert page.text.startswith("pandoc cannot read it: couldn't unpack docx")

    def too_long(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", too_long)
    (page,) = readers.read_pages(str(path))
    assert page.text == "pandoc takes more than 60 seconds for it"
