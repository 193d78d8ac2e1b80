"""Pages of an evaluation: one file each, which needs nothing else.

Everything is escaped unless it is `Markup`: blocks, answers and questions come
from anywhere.
"""

import html
import string

from realm_tf.artifacts.paths import write_text
from realm_tf.errors import InputError

# No page can hold these, escaped or not: control characters, halves of
# surrogate pairs.
_NO_CHARACTERS = {
    code: "\ufffd"
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000))
    if chr(code) not in "\t\n\r"
}

_PAGE = string.Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>$title</title>
<style>
:root { --back: #fff; --text: #1c1c1e; --soft: #5c5c64; --line: #d8d8dd;
  --mark: #ffe08a; --right: #00694d; --wrong: #a63c00; --fill: #e8f1f8;
  --c0: #0072b2; --c1: #c44e00; --c2: #00805c; --c3: #b0558a; --c4: #8a6500;
  --c5: #2f8fc4; }
@media (prefers-color-scheme: dark) {
  :root { --back: #17181b; --text: #ececee; --soft: #a8a8b1; --line: #3a3b40;
    --mark: #665200; --right: #3ccfa4; --wrong: #ff9257; --fill: #1d2a35;
    --c0: #4ba3dd; --c1: #ff8a45; --c2: #2fc297; --c3: #e39ac3;
    --c4: #e6b422; --c5: #8fd0f5; }
}
body { margin: 0 auto; max-width: 46rem; padding: 0 1rem 3rem;
  background: var(--back); color: var(--text);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: 1.2rem 0 .2rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
h3 { font-size: 1rem; margin: 0 0 .3rem; }
p { margin: .4rem 0; }
a { color: var(--c0); }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .9rem; }
.soft, figcaption { color: var(--soft); font-size: .88rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; margin: .4rem 0;
  overflow-wrap: normal; }
th, td { padding: .25rem .7rem .25rem 0; text-align: left;
  vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
td { font-variant-numeric: tabular-nums; white-space: nowrap; }
td.text { overflow-wrap: anywhere; min-width: 7rem; white-space: normal; }
figure { margin: .6rem 0; }
svg.chart { display: block; width: 100%; max-width: 34rem; height: auto; }
svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .curve { fill: none; stroke-width: 2.2; }
svg .reference { stroke: var(--soft); stroke-width: 1.2;
  stroke-dasharray: 3 4; fill: none; }
svg.bar { width: 7rem; height: .7rem; vertical-align: middle; }
svg.bar .all { fill: var(--fill); } svg.bar .share { fill: var(--c0); }
svg.bar .interval { stroke: var(--text); stroke-width: 1.5; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem;
  font-size: .88rem; }
.legend svg { width: 2.2rem; height: .7rem; vertical-align: middle; }
article { padding: .9rem 0; border-bottom: 1px solid var(--line); }
blockquote { margin: .4rem 0; padding: .1rem 0 .1rem .8rem;
  border-left: 3px solid var(--line); }
mark { background: var(--mark); color: inherit; border-radius: .2rem;
  padding: .05rem .15rem; }
.right { color: var(--right); } .wrong { color: var(--wrong); }
@media (max-width: 32rem) {
  table { font-size: .84rem; } th, td { padding-right: .5rem; }
  svg.bar { width: 3.5rem; }
}
</style>
</head>
<body>
<header>
<h1 dir="auto">$title</h1>
<p class="soft">$subtitle</p>
<nav aria-label="Sections">
$links
</nav>
</header>
<main>
$sections
</main>
</body>
</html>
""")


class Markup(str):
    """HTML that is safe as it stands."""


def escape(text) -> Markup:
    """Text for an element or a quoted attribute; `Markup` stays as it is."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(str(text).translate(_NO_CHARACTERS)))


def join(parts) -> Markup:
    """Parts one after the other, each escaped unless it is `Markup`."""
    return Markup("".join(map(escape, parts)))


def table(header, rows, *, text_columns: tuple[int, ...] = ()) -> Markup:
    """A table of cells, escaped unless they are `Markup`.

    Args:
        header: list of str.
        rows: list of lists, as long as `header`.
        text_columns: tuple of int. Columns of running text, which may be
            wrapped anywhere.
    """
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="text" dir="auto">{escape(cell)}</td>'
            if column in text_columns
            else f"<td>{escape(cell)}</td>"
            for column, cell in enumerate(row)
        )
        + "</tr>\n"
        for row in rows
    )
    return Markup(
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table></div>\n"
    )


def paragraph(text, *, soft: bool = False) -> Markup:
    """A paragraph; a `soft` one is small and pale."""
    attribute = ' class="soft"' if soft else ""
    return Markup(f'<p dir="auto"{attribute}>{escape(text)}</p>\n')


def write(path: str, *, title: str, subtitle: str, sections) -> None:
    """Writes a page.

    Args:
        path: str. The file to write; one that is there is replaced.
        title: str.
        subtitle: str.
        sections: list of (heading, `Markup`). One that is empty is left out.

    Raises:
        InputError: if the file cannot be written.
    """
    sections = [(heading, body) for heading, body in sections if body]
    content = _PAGE.substitute(
        title=escape(title),
        subtitle=escape(subtitle),
        links="\n".join(
            f'<a href="#section-{number}">{escape(heading)}</a>'
            for number, (heading, _) in enumerate(sections, 1)
        ),
        sections="\n".join(
            f'<section id="section-{number}"><h2>{escape(heading)}</h2>\n'
            f"{escape(body)}</section>"
            for number, (heading, body) in enumerate(sections, 1)
        ),
    )
    try:
        write_text(path, content)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror or error}. Choose "
            "another file."
        ) from error
