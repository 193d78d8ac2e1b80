"""README, CONTRIBUTING and docs say what is there: commands, files, links."""

import pathlib
import re

import pytest

from realm_tf import cli

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
# A file or folder of the repository, in code; `DIR/...` and the like are not.
_FILE = re.compile(
    r"(?<![\w/.-])(?:realm_tf|beam_pipelines|export|serving|benchmarks|tests|notebooks)"
    r"/[\w./-]*\w"
)


@pytest.fixture(params=PAGES, ids=lambda path: path.name)
def page(request):
    """A page of the documentation."""
    return request.param


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_readme_has_a_line_for_each_command():
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", text, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"[a-z-]+", row)]
    assert sorted(named) == sorted(cli.COMMANDS)


def test_links_lead_somewhere(page):
    for target, anchor in _LINK.findall(page.read_text()):
        path = (page.parent / target) if target else page
        assert path.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
            slugs = [
                re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                for title in titles
            ]
            assert anchor in slugs, f"{target}#{anchor}"


def test_files_are_there(page):
    for name in _FILE.findall(" ".join(_code(page.read_text()))):
        assert (ROOT / name).exists(), name


def _code(text):
    """Fenced and indented blocks of code, and code between backticks."""
    found = []
    for pattern in (
        r"^```\w*\n(.*?)^```$",
        r"((?:^ {4,}\S.*\n)+)",
        r"`([^`]+)`",
    ):
        found += re.findall(pattern, text, re.MULTILINE | re.DOTALL)
        text = re.sub(pattern, "", text, flags=re.MULTILINE | re.DOTALL)
    return found
