"""Pages of the site that are made: of files elsewhere, and of the public names.

MkDocs calls these functions (mkdocs.yml, `hooks`). README.md, CONTRIBUTING.md
and CHANGELOG.md are pages too, so that nothing is written twice.
"""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

import realm_tf

ROOT = pathlib.Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")


def on_files(files, config):
    """Adds the pages that are not in docs/."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(
            File.generated(config, page, content=_links(text, folder="."))
        )
    return files


def on_page_markdown(markdown, page, config, files):
    """Gives the reference its names, and links out of docs/ a text."""
    if page.file.src_uri in PAGES.values():
        return markdown
    if page.file.src_uri == "reference.md":
        markdown += "".join(
            f"\n::: realm_tf.{module}.{name}\n"
            f"    options:\n      heading: realm.{name}\n"
            for name, module in realm_tf.MODULES.items()
        )
    return _links(markdown, folder="docs")


def _links(markdown, *, folder):
    """Links of a file in `folder` of the repository, as the site has them."""

    def link(match):
        mark, text, target, anchor = match.groups(default="")
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in PAGES:
            return f"[{text}]({PAGES[path]}{anchor})"
        inside = path.removeprefix("docs/")
        if inside != path:
            return f"{mark}[{text}]({inside}{anchor})"
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return _LINK.sub(link, markdown)
